/* keeper.c: the only process that clones inits, one for each wrapper.
 *
 * It is a process of its own, not a thread of the wrapper, because the parent-death signal of an init follows the
 * *thread* that cloned it: this one has a single thread, which lives exactly as long as the process. It is small,
 * so that a clone of it costs the same whatever the wrapper weighs, and it keeps nothing of a job. */
#include "contain-init.h"

enum { LIFELINE_READ = 6, LIFELINE_WRITE = 7, FIRST_FREE = 8 };

/* Answers go to a wrapper that may be gone or stopped: never block on it. A lost answer leaves an init without a
 * wrapper's hand on its control socket, and that init exits. */
static void answer(struct launch_reply *reply, int pidfd) {
    struct iovec part = {reply, sizeof *reply};
    struct { struct control_head head; int fd, padding; } control = {
        {sizeof(struct control_head) + sizeof(int), SOL_SOCKET, SCM_RIGHTS}, pidfd, 0};
    struct message message = {NULL, 0, &part, 1, NULL, 0, 0};
    if (!reply->error) {
        message.control = &control;
        message.control_length = sizeof control;
    }
    sys(__NR_sendmsg, KEEPER_REQUESTS, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static int is_bounded(unsigned capability) {
    return sys(__NR_prctl, PR_CAPBSET_READ, capability, 0, 0, 0) == 0;
}

/* The way without a user namespace needs CAP_SYS_ADMIN, and what setup.c drops must be dropped for good: without
 * CAP_SETPCAP a set-uid program would bring it back. A user namespace gives us both. */
static int may_make_namespaces(void) {
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {{0, 0, 0}, {0, 0, 0}};
    if (sys(__NR_capget, &head, data) < 0 || !(data[0].effective & (1u << CAP_SYS_ADMIN))) return 0;
    return data[0].effective & (1u << CAP_SETPCAP) || (is_bounded(CAP_SYS_PTRACE) && is_bounded(CAP_SYS_BOOT));
}

/* Always a copy of the keeper, never a fresh execve: an init that was executed inside its user namespace could be
 * traced by its own job. No CLONE_VFORK: an init that waits for a disk in state D must not hold the keeper. */
static long clone_init(unsigned long namespaces, int *pidfd) {
    struct clone_args args = {0};
    args.flags = CLONE_PIDFD | namespaces;
    args.pidfd = (uint64_t)(uintptr_t)pidfd;
    args.exit_signal = SIGCHLD;
    long pid = sys(__NR_clone3, &args, sizeof args);
    /* Old seccomp profiles answer EPERM or ENOSYS to clone3 alone; both mean "absent", clone(2) has the last word. */
    if (pid == -ENOSYS || pid == -EPERM)
        pid = sys(__NR_clone, CLONE_PIDFD | namespaces | SIGCHLD, 0, pidfd, 0, 0);
    return pid;
}

/* Root (CAP_SYS_ADMIN) needs no user namespace, and does better without: every uid stays mapped. Anyone else, and a
 * root that is refused, gets one. */
static long clone_init_somehow(uint32_t flags, int *pidfd, uint32_t *user_namespace) {
    unsigned long namespaces = CLONE_NEWPID | CLONE_NEWNS | (flags & NEW_NETWORK ? CLONE_NEWNET : 0);
    long pid = -EPERM;
    *user_namespace = 0;
    if (may_make_namespaces()) pid = clone_init(namespaces, pidfd);
    if (pid == -EPERM) {
        *user_namespace = 1;
        pid = clone_init(namespaces | CLONE_NEWUSER, pidfd);
    }
    return pid;
}

static void launch(const struct launch_request *request, const int *fds) {
    struct launch_reply reply = {0, STEP_DIRECTORY, 0, 0};
    struct job job = {*request, fds[LAUNCH_CONTROL], fds[LAUNCH_GATE], fds[LAUNCH_COMMAND],
                      fds[LAUNCH_DIRECTORY], {fds[LAUNCH_STDIN], fds[LAUNCH_STDOUT], fds[LAUNCH_STDERR]},
                      fds + LAUNCH_FDS, fds + LAUNCH_FDS + request->cgroups, LIFELINE_READ, KEEPER_WRAPPER, 0,
                      (unsigned)sys(__NR_getuid), (unsigned)sys(__NR_getgid), 0};
    int pidfd = -1;
    /* Before the clone: the working directory is then copied with the mounts. After it, `..` would lead out of the
     * job's mount namespace, to a /proc of the host. */
    at_step(STEP_DIRECTORY);
    long result = sys(__NR_fchdir, fds[LAUNCH_DIRECTORY]);
    if (result == 0) {
        reply.step = STEP_CLONE;
        at_step(STEP_CLONE);
        uint32_t user_namespace = 0;
        result = clone_init_somehow(request->flags, &pidfd, &user_namespace);
        if (result == 0) {
            job.user_namespace = (int)user_namespace;
            init_main(&job);
        }
        reply.user_namespace = user_namespace;
    }
    sys(__NR_chdir, "/");
    reply.pid = result > 0 ? (int32_t)result : 0;
    reply.error = result > 0 ? 0 : (int32_t)-result;
    at_step(STEP_ANSWER);
    answer(&reply, pidfd);
}

struct request_control {
    struct control_head head;
    char rest[sizeof(struct control_head) + sizeof(struct credentials) + (MOST_FDS + 2) * sizeof(int)];
};

/* Takes descriptors and sender out of the ancillary data; returns the number of descriptors that came. */
static int unpack(const struct message *message, int *fds, struct credentials *sender) {
    const char *at = message->control, *end = at + message->control_length;
    int count = 0;
    while ((size_t)(end - at) >= sizeof(struct control_head)) {
        struct control_head head;
        __builtin_memcpy(&head, at, sizeof head);
        if (head.length < sizeof head || head.length > (size_t)(end - at)) break;
        const char *data = at + sizeof head;
        size_t bytes = head.length - sizeof head;
        if (head.level == SOL_SOCKET && head.type == SCM_RIGHTS)
            for (size_t i = 0; i + sizeof(int) <= bytes; i += sizeof(int), count++)
                if (count < MOST_FDS) __builtin_memcpy(&fds[count], data + i, sizeof(int));
        if (head.level == SOL_SOCKET && head.type == SCM_CREDENTIALS && bytes >= sizeof *sender)
            __builtin_memcpy(sender, data, sizeof *sender);
        size_t step = (head.length + sizeof(size_t) - 1) & ~(sizeof(size_t) - 1);
        if (step > (size_t)(end - at)) break;
        at += step;
    }
    return count;
}

static void serve_one(void) {
    struct launch_request request = {0};
    struct request_control control = {0};
    struct iovec part = {&request, sizeof request};
    struct message message = {NULL, 0, &part, 1, &control, sizeof control, 0};
    struct credentials sender = {0, ~0u, ~0u};
    int fds[MOST_FDS];
    at_step(STEP_REQUEST);
    long bytes = sys(__NR_recvmsg, KEEPER_REQUESTS, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (bytes == -EINTR || bytes == -EAGAIN) return;
    if (bytes <= 0) leave(0);   /* the wrapper closed its end: it is done, or dead */
    int count = unpack(&message, fds, &sender);
    /* A wrapper that changed its user since it started us must not go on commanding a keeper of its old user. */
    if (sender.uid != (unsigned)sys(__NR_getuid) || sender.gid != (unsigned)sys(__NR_getgid)) leave(1);
    if (bytes == (long)sizeof request && !(message.flags & (MSG_TRUNC | MSG_CTRUNC)) &&
        request.version == WIRE_VERSION && request.cgroups <= MOST_CGROUPS && request.kept <= MOST_KEPT &&
        count == (int)(LAUNCH_FDS + request.cgroups + request.kept))
        launch(&request, fds);
    else
        answer(&(struct launch_reply){EINVAL, STEP_REQUEST, 0, 0}, -1);
    sys(__NR_close_range, FIRST_FREE, ~0u, 0);
}

/* A keeper that could not be killed by its wrapper's end must not be: no answer, no job. */
static void must(long result) {
    if (result < 0) leave(1);
}

/* The kernel kills us by SIGKILL the moment the wrapper's end of this pipe closes. A poll cannot do that: a stopped
 * process polls nothing, and would stay behind. PR_SET_PDEATHSIG cannot either: it follows the wrapper's *thread*
 * that spawned us, and API users spawn from threads that end. (fcntl(2), F_SETSIG; pipe_release in fs/pipe.c.) */
static void die_with_wrapper(void) {
    struct f_owner_ex me = {F_OWNER_PID, (int)sys(__NR_getpid)};
    must(sys(__NR_fcntl, KEEPER_WRAPPER_LIFE, F_SETOWN_EX, &me));
    must(sys(__NR_fcntl, KEEPER_WRAPPER_LIFE, F_SETSIG, SIGKILL));
    must(sys(__NR_fcntl, KEEPER_WRAPPER_LIFE, F_SETFL, FASYNC | O_NONBLOCK));
}

static void ignore_signals(void) {
    static const int ignored[] = {SIGHUP, SIGINT, SIGQUIT, SIGPIPE, SIGTERM, SIGCHLD, SIGTSTP, SIGTTIN, SIGTTOU};
    const struct sigaction action = {.sa_handler = SIG_IGN};
    for (unsigned i = 0; i < sizeof ignored / sizeof *ignored; i++)
        sys(__NR_rt_sigaction, ignored[i], &action, NULL, SIGNAL_SET_BYTES);
}

void keeper_main(void) {
    int lifeline[2] = {-1, -1};
    /* SIGCHLD ignored: the kernel reaps a dead init at once, so that nobody takes its number for a living one. */
    ignore_signals();
    must(sys(__NR_close_range, LIFELINE_READ, ~0u, 0));
    sys(__NR_prctl, PR_SET_NAME, "contain-keeper");
    must(sys(__NR_pipe2, lifeline, O_CLOEXEC));
    if (lifeline[0] != LIFELINE_READ || lifeline[1] != LIFELINE_WRITE) leave(1);    /* one of 0 to 5 was missing */
    die_with_wrapper();
    sys(__NR_chdir, "/");
    for (;;) {
        /* POLLHUP of the life pipe covers the moment before die_with_wrapper: an end that closed earlier sends no
         * signal. The pidfd covers a wrapper whose forked child still holds both other ends. */
        struct pollfd fds[] = {{KEEPER_REQUESTS, POLLIN, 0}, {KEEPER_WRAPPER, POLLIN, 0}, {KEEPER_WRAPPER_LIFE, 0, 0}};
        if (poll_fds(fds, 3, -1) <= 0) continue;
        if (fds[1].revents || fds[2].revents) leave(0);
        if (fds[0].revents) serve_one();
    }
}
