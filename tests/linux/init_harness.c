/* init_harness.c: what a wrapper does, in C, so that contain-init can be proven where there is no Python.
 *
 *   init_harness PROGRAM           every check as this user, and as root every check again as nobody (user namespace)
 *   init_harness --job KIND ...    what the jobs of those checks are (init_jobs.c)
 *
 * One line for each check, then a verdict; the exit status is 0 only when every check held.
 * A job holds the write end of a pipe as its standard output: that pipe's EOF is how the death of all of it is seen,
 * without asking contain-init. HARNESS_WAIT_MS bounds every wait. */
#include "init_harness.h"

static int checks, failures, wait_ms = 10000;
static const char *program, *variant;
static char myself[4096];

static void check(int holds, const char *rule) {
    checks++;
    failures += !holds;
    printf("%s %s: %s\n", holds ? "ok  " : "FAIL", variant, rule);
    fflush(stdout);
}

static void must(long result, const char *what) {
    if (result >= 0) return;
    printf("FAIL %s: the harness itself: %s: %s\n", variant, what, strerror(errno));
    exit(2);
}

/* ---- the wrapper's side of the keeper ---- */

static void start_keeper(struct keeper *keeper) {
    int pair[2], life[2], yes = 1;
    must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), "socketpair");
    must(pipe2(life, O_CLOEXEC), "pipe2");
    must(setsockopt(pair[1], SOL_SOCKET, SO_PASSCRED, &yes, sizeof yes), "SO_PASSCRED");
    int wrapper = (int)syscall(SYS_pidfd_open, getpid(), 0);
    must(wrapper, "pidfd_open");
    keeper->pid = fork();
    must(keeper->pid, "fork");
    if (keeper->pid == 0) {
        int requests = fcntl(pair[1], F_DUPFD, 20), self = fcntl(wrapper, F_DUPFD, 20);
        int end = fcntl(life[0], F_DUPFD, 20);
        int null = open("/dev/null", O_RDWR);
        for (int fd = 0; fd < 3; fd++) dup2(null, fd);
        dup2(requests, KEEPER_REQUESTS);
        dup2(self, KEEPER_WRAPPER);
        dup2(end, KEEPER_WRAPPER_LIFE);
        syscall(SYS_close_range, 6, ~0u, 0);
        char *const arguments[] = {"contain-init", "keeper", NULL}, *const no_environment[] = {NULL};
        execve(program, arguments, no_environment);
        _exit(99);
    }
    close(pair[1]);
    close(life[0]);
    close(wrapper);
    keeper->requests = pair[0];
    keeper->life = life[1];
    keeper->pidfd = (int)syscall(SYS_pidfd_open, keeper->pid, 0);
}

static int readable(int fd, int ms) {
    struct pollfd one = {fd, POLLIN, 0};
    return poll(&one, 1, ms) == 1;
}

static void end_keeper(struct keeper *keeper) {
    close(keeper->requests);
    if (keeper->life >= 0) close(keeper->life);
    check(readable(keeper->pidfd, wait_ms), "the keeper ends with its wrapper's ends");
    kill(keeper->pid, SIGKILL);     /* our unreaped child; one that did not end must not be left */
    waitpid(keeper->pid, NULL, 0);
    close(keeper->pidfd);
}

static void send_request(int socket, const void *data, size_t bytes, const int *fds, size_t count) {
    char control[CMSG_SPACE(20 * sizeof(int))] = {0};
    struct iovec part = {(void *)(uintptr_t)data, bytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (count) {
        message.msg_control = control;
        message.msg_controllen = CMSG_SPACE(count * sizeof(int));
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(head), fds, count * sizeof(int));
    }
    must(sendmsg(socket, &message, MSG_NOSIGNAL), "sendmsg");
}

/* Returns the reply's errno, ETIME when none came. */
static int take_reply(int socket, struct launch_reply *reply, int *pidfd) {
    char control[CMSG_SPACE(sizeof(int))];
    struct iovec part = {reply, sizeof *reply};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    *pidfd = -1;
    if (!readable(socket, wait_ms) || recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != sizeof *reply) return ETIME;
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    if (head && head->cmsg_type == SCM_RIGHTS) memcpy(pidfd, CMSG_DATA(head), sizeof(int));
    return reply->error;
}

/* A sealed command_block: `path` to be executed with the NULL-ended `args`, and one variable. */
static int make_block(const char *path, const char *const *args, int seals) {
    static const char variable[] = "HARNESS=1";
    int fd = memfd_create("block", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    struct command_block head = {WIRE_VERSION, 1, 0, 1};
    while (args[head.args]) head.args++;
    must(write(fd, &head, sizeof head), "write");
    must(write(fd, path, strlen(path) + 1), "write");
    for (uint32_t i = 0; i < head.args; i++) must(write(fd, args[i], strlen(args[i]) + 1), "write");
    must(write(fd, variable, sizeof variable), "write");
    must(fcntl(fd, F_ADD_SEALS, seals), "F_ADD_SEALS");
    return fd;
}

static const struct launch_request usual = {
    .version = WIRE_VERSION, .leftovers_ms = 100, .kill_ms = 100, .umask = 022, .nice = NICE_KEEP};

#define SEALED (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)
#define MAX_FDS 9

/* Asks for a job; another `fd_count` than LAUNCH_FDS, or other seals than SEALED, must be refused. */
static int ask(const struct keeper *keeper, struct job *job, const char *path, const char *const *args, size_t fd_count,
               int seals) {
    int control[2], gate[2], output[2];
    must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control), "socketpair");
    must(pipe2(gate, O_CLOEXEC), "pipe2");
    must(pipe2(output, O_CLOEXEC), "pipe2");
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC), directory = open("/", O_PATH | O_CLOEXEC);
    int block = make_block(path, args, seals);
    int fds[MAX_FDS] = {control[1], gate[0], block, directory, null, output[1], output[1], null, null};
    send_request(keeper->requests, &usual, sizeof usual, fds, fd_count);
    *job = (struct job){.control = control[0], .gate = gate[1], .output = output[0]};
    int error = take_reply(keeper->requests, &job->reply, &job->pidfd);
    close(control[1]), close(gate[0]), close(output[1]), close(null), close(directory), close(block);
    return error;
}

static void forget(struct job *job) {
    close(job->control), close(job->output);
    if (job->gate >= 0) close(job->gate);
    if (job->pidfd >= 0) close(job->pidfd);
}

/* The next report of this kind; what comes before it is skipped. kind 0 when it never comes. */
static struct report report_of(const struct job *job, uint32_t kind) {
    struct report found = {0};
    while (readable(job->control, wait_ms) && recv(job->control, &found, sizeof found, 0) == sizeof found)
        if (found.kind == kind) return found;
    return (struct report){0};
}

static void send_order(const struct job *job, uint32_t kind, int32_t number, uint32_t grace_ms) {
    struct order order = {kind, number, grace_ms, 0};
    must(send(job->control, &order, sizeof order, MSG_NOSIGNAL), "send");
}

static void open_gate(struct job *job, char byte) {
    must(write(job->gate, &byte, 1), "the gate");
    close(job->gate);
    job->gate = -1;
}

/* A job of ours up to the gate. */
static int launch(const struct keeper *keeper, struct job *job, const char *kind, const char *more) {
    const char *const args[] = {"init_harness", "--job", kind, more, NULL};
    if (ask(keeper, job, myself, args, LAUNCH_FDS, SEALED)) return 0;
    if (report_of(job, REPORT_READY).pid != 1) return 0;
    send_order(job, ORDER_ARM, 0, 0);
    return report_of(job, REPORT_ARMED).kind == REPORT_ARMED;
}

static int run(const struct keeper *keeper, struct job *job, const char *kind, const char *more) {
    if (!launch(keeper, job, kind, more)) return 0;
    open_gate(job, GATE_OPEN);
    return 1;
}

/* Reads the output to its end: the moment at which nothing of the job holds it any more. */
static int all_gone(const struct job *job, char *text, size_t room) {
    size_t got = 0;
    char more[512];
    for (;;) {
        if (!readable(job->output, wait_ms)) return 0;
        ssize_t bytes = read(job->output, more, sizeof more);
        if (bytes <= 0) break;
        if (text && got + (size_t)bytes < room) memcpy(text + got, more, (size_t)bytes), got += (size_t)bytes;
    }
    if (text) text[got] = 0;
    return 1;
}

/* ---- the checks ---- */

static void check_a_whole_job(const struct keeper *keeper) {
    struct job job;
    char text[64] = "";
    check(launch(keeper, &job, "exit", "7"), "READY as pid 1, then ARMED");
    check(job.reply.user_namespace == (uint32_t)(getuid() != 0), "a user namespace exactly where root is missing");
    check(!readable(job.output, 100), "nothing runs before the gate is open");
    open_gate(&job, GATE_OPEN);
    struct report ended = report_of(&job, REPORT_EXITED);
    check(ended.status == 7 << 8 && !ended.error && !ended.leftovers, "the wait status is the command's");
    check(report_of(&job, REPORT_EMPTY).reaped == 1, "EMPTY, with one process reaped");
    check(readable(job.pidfd, wait_ms) && all_gone(&job, text, sizeof text), "the init ends");
    check(!strcmp(text, "started\n"), "the command's output is the one descriptor given");
    forget(&job);
}

static void check_the_gate(const struct keeper *keeper) {
    for (int eof = 0; eof < 2; eof++) {
        struct job job;
        char text[64];
        launch(keeper, &job, "exit", "0");
        if (eof) close(job.gate), job.gate = -1; else open_gate(&job, 'x');
        struct report failed = report_of(&job, REPORT_FAILED);
        check(failed.step == STEP_GATE && failed.error == ECANCELED, eof ? "EOF refuses" : "a wrong byte refuses");
        check(all_gone(&job, text, sizeof text) && !*text, "and the command never ran");
        forget(&job);
    }
}

static void check_exec_failures(const struct keeper *keeper) {
    static const struct { const char *path; int error; } wrong[] = {
        {"/nowhere/at/all", ENOENT}, {"/", EACCES}, {"/proc/version/x", ENOTDIR}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct job job;
        const char *const args[] = {"x", NULL};
        ask(keeper, &job, wrong[i].path, args, LAUNCH_FDS, SEALED);
        report_of(&job, REPORT_READY);
        open_gate(&job, GATE_OPEN);
        struct report ended = report_of(&job, REPORT_EXITED);
        check(ended.step == STEP_EXEC && ended.error == wrong[i].error, "execve's errno is reported, not an exit code");
        forget(&job);
    }
}

static void check_ends(const struct keeper *keeper) {
    struct job job;
    run(keeper, &job, "signal", "9");
    check(report_of(&job, REPORT_EXITED).status == 9, "death by a signal is reported as that");
    forget(&job);
    run(keeper, &job, "deaf", NULL);
    readable(job.output, wait_ms);
    send_order(&job, ORDER_CANCEL, 0, 100);
    check(report_of(&job, REPORT_KILL).kind == REPORT_KILL, "cancel: deaf to TERM, so KILL after the grace");
    check(report_of(&job, REPORT_EXITED).status == 9 && all_gone(&job, NULL, 0), "and nothing is left");
    forget(&job);
    run(keeper, &job, "leave", "sleep");
    check(report_of(&job, REPORT_EXITED).leftovers == 1, "leftovers are said");
    check(report_of(&job, REPORT_TERM).kind && report_of(&job, REPORT_EMPTY).kind, "and sent TERM");
    check(all_gone(&job, NULL, 0), "and gone");
    forget(&job);
    run(keeper, &job, "leave", "deaf");
    check(report_of(&job, REPORT_KILL).kind && report_of(&job, REPORT_EMPTY).kind, "leftovers deaf to TERM get KILL");
    check(all_gone(&job, NULL, 0), "and are gone");
    forget(&job);
    run(keeper, &job, "orphans", "2000");
    check(report_of(&job, REPORT_EMPTY).reaped >= 2001, "two thousand orphans are reaped");
    forget(&job);
}

static void check_attacks(const struct keeper *keeper) {
    struct job job;
    char text[4096];
    run(keeper, &job, "attack", NULL);
    check(report_of(&job, REPORT_EXITED).status == 0 && all_gone(&job, text, sizeof text), "the attacks ran");
    check(strstr(text, "attacks failed") != NULL, "every attack of the job on its init failed");
    if (!strstr(text, "attacks failed")) printf("%s", text);
    forget(&job);
}

static void check_refusals(const struct keeper *keeper) {
    const char *const args[] = {"x", NULL};
    struct launch_reply reply;
    struct job job;
    int pidfd;
    send_request(keeper->requests, "garbage", 7, NULL, 0);
    check(take_reply(keeper->requests, &reply, &pidfd) == EINVAL && reply.step == STEP_REQUEST, "garbage is refused");
    send_request(keeper->requests, &usual, sizeof usual, NULL, 0);
    check(take_reply(keeper->requests, &reply, &pidfd) == EINVAL, "a request without descriptors is refused");
    check(ask(keeper, &job, "/", args, LAUNCH_FDS - 1, SEALED) == EINVAL, "a request with one too few is refused");
    forget(&job);
    check(ask(keeper, &job, "/", args, LAUNCH_FDS + 1, SEALED) == EINVAL, "a request with one too many is refused");
    forget(&job);
    check(ask(keeper, &job, "/", args, LAUNCH_FDS, F_SEAL_GROW) == 0, "a launch with an unsealed block begins");
    check(report_of(&job, REPORT_FAILED).step == STEP_COMMAND, "and fails at its step");
    forget(&job);
    run(keeper, &job, "exit", "3");
    check(report_of(&job, REPORT_EXITED).status == 3 << 8, "and the keeper goes on serving");
    forget(&job);
}

enum death { KEEPER_KILLED, LIFE_CLOSED, STOPPED_AND_CLOSED, CONTROL_CLOSED, INIT_KILLED, DEATHS };

static void check_deaths(void) {
    static const char *const rule[] = {
        "the keeper is killed: all die", "the wrapper's end of the life pipe closes: all die", "the same with a stopped keeper", "the control socket closes: the job dies", "the init is killed: all die"};
    for (int death = 0; death < DEATHS; death++) {
        struct keeper keeper;
        struct job job;
        start_keeper(&keeper);
        check(run(&keeper, &job, "leave-and-stay", "deaf") && readable(job.output, wait_ms), "a job runs");
        if (death == KEEPER_KILLED) kill(keeper.pid, SIGKILL);
        if (death == STOPPED_AND_CLOSED) kill(keeper.pid, SIGSTOP);
        if (death == LIFE_CLOSED || death == STOPPED_AND_CLOSED) close(keeper.life), keeper.life = -1;
        if (death == CONTROL_CLOSED) close(job.control), job.control = -1;
        if (death == INIT_KILLED) syscall(SYS_pidfd_send_signal, job.pidfd, SIGKILL, NULL, 0);
        check(readable(job.pidfd, wait_ms) && all_gone(&job, NULL, 0), rule[death]);
        forget(&job);
        end_keeper(&keeper);
    }
}

/* A process of its own is the wrapper here, and is killed; we keep only the pidfd of the init that it sends over. */
static void check_a_killed_wrapper(void) {
    int pair[2], pidfd;
    struct launch_reply reply;
    must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), "socketpair");
    pid_t pid = fork();
    must(pid, "fork");
    if (pid == 0) {
        struct keeper keeper;
        struct job job;
        start_keeper(&keeper);
        if (!run(&keeper, &job, "leave-and-stay", "deaf") || !readable(job.output, wait_ms)) _exit(1);
        send_request(pair[1], &job.reply, sizeof job.reply, &job.pidfd, 1);
        for (;;) pause();
    }
    check(take_reply(pair[0], &reply, &pidfd) == 0 && pidfd >= 0, "a job runs under another wrapper");
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    check(readable(pidfd, wait_ms), "the wrapper is killed: all die");
    close(pidfd), close(pair[0]), close(pair[1]);
}

static int run_all(const char *name) {
    struct keeper keeper;
    variant = name;
    checks = failures = 0;
    start_keeper(&keeper);
    check_a_whole_job(&keeper);
    check_the_gate(&keeper);
    check_exec_failures(&keeper);
    check_ends(&keeper);
    check_attacks(&keeper);
    check_refusals(&keeper);
    end_keeper(&keeper);
    check_deaths();
    check_a_killed_wrapper();
    printf("%s: %d checks, %d failed\n", name, checks, failures);
    return failures;
}

static int run_as_nobody(void) {
    int status = 1;
    fflush(stdout);
    pid_t pid = fork();
    must(pid, "fork");
    if (pid == 0) {
        must(setgroups(0, NULL), "setgroups");
        must(setgid(65534), "setgid");
        must(setuid(65534), "setuid");
        must(prctl(PR_SET_DUMPABLE, 1), "PR_SET_DUMPABLE");
        exit(run_all("user namespace") != 0);
    }
    waitpid(pid, &status, 0);
    return status != 0;
}

int main(int count, char **args) {
    if (count >= 3 && !strcmp(args[1], "--job")) return job_main(count - 2, args + 2);
    if (count != 2) return 64;
    program = args[1];
    if (getenv("HARNESS_WAIT_MS")) wait_ms = atoi(getenv("HARNESS_WAIT_MS"));
    must(readlink("/proc/self/exe", myself, sizeof myself - 1), "/proc/self/exe");
    signal(SIGPIPE, SIG_IGN);
    int failed = run_all(getuid() ? "user namespace" : "root");
    if (getuid() == 0) failed += run_as_nobody();
    printf("verdict: %s\n", failed ? "FAILED" : "all checks held");
    return failed != 0;
}
