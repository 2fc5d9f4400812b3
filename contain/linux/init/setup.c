/* setup.c: from the clone to a containment, in the order in which the steps must happen. */
#include "contain-init.h"

static const struct failure none = {STEP_NONE, 0};

static struct failure failed(enum step step, long result) {
    return (struct failure){(uint32_t)step, (int32_t)-result};
}

static long write_file(const char *path, const char *text) {
    size_t length = 0;
    while (text[length]) length++;
    long fd = sys(__NR_openat, AT_FDCWD, path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return fd;
    long result = sys(__NR_write, fd, text, length);
    sys(__NR_close, fd);
    return result < 0 ? result : 0;
}

/* "ID ID 1": the one id that we are, mapped to itself and not to root, so that `id -u` and every file's owner read
 * inside the job as they do outside. */
static long write_map(const char *path, unsigned id) {
    char text[32], digits[12];
    int n = 0, at = 0;
    do digits[n++] = (char)('0' + id % 10); while (id /= 10);
    for (int twice = 0; twice < 2; twice++) {
        for (int i = n; i; ) text[at++] = digits[--i];
        text[at++] = ' ';
    }
    text[at++] = '1';
    text[at] = 0;
    return write_file(path, text);
}

static struct failure map_ids(const struct job *job) {
    long result;
    at_step(STEP_SETGROUPS);
    if ((result = write_file("/proc/self/setgroups", "deny")) < 0) return failed(STEP_SETGROUPS, result);
    at_step(STEP_UID_MAP);
    if ((result = write_map("/proc/self/uid_map", job->uid)) < 0) return failed(STEP_UID_MAP, result);
    at_step(STEP_GID_MAP);
    if ((result = write_map("/proc/self/gid_map", job->gid)) < 0) return failed(STEP_GID_MAP, result);
    return none;
}

/* The keeper's descriptors go first: its lifeline hangs up only when no write end is left, and ours would count. The
 * directory is ours by fchdir; its descriptor belongs to the host's mounts, which it would hold and lead out to. */
static struct failure detach(struct job *job) {
    at_step(STEP_DETACH);
    sys(__NR_close, job->lifeline + 1);
    sys(__NR_close, KEEPER_REQUESTS);
    sys(__NR_close, KEEPER_WRAPPER_LIFE);
    sys(__NR_close, job->directory);
    /* On a terminal the job stays where its caller's shell put the wrapper: Ctrl-C, Ctrl-Z and `fg` then reach it as
     * any other command. What they send is blocked here (reset_signals). */
    long result = job->request.flags & SHARED_SESSION ? 0 : sys(__NR_setsid);
    sys(__NR_prctl, PR_SET_NAME, "contain-init");
    return result < 0 ? failed(STEP_DETACH, result) : none;
}

/* "0" is the writer itself. Who may write was decided when the wrapper opened the file, so this holds in a user
 * namespace too. Before the command is cloned: everything of the job is born inside. */
static struct failure enter_cgroups(const struct job *job) {
    at_step(STEP_CGROUPS);
    for (uint32_t i = 0; i < job->request.cgroups; i++) {
        long result = sys(__NR_write, job->cgroups[i], "0", 1);
        if (result < 0) return failed(STEP_CGROUPS, result);
        sys(__NR_close, job->cgroups[i]);
    }
    return none;
}

/* A new network has a loopback that is down: without this, `localhost` would fail in most test suites. */
static struct failure raise_loopback(const struct job *job) {
    struct interface loopback = {"lo", 0, {0}};
    at_step(STEP_NETWORK);
    if (!(job->request.flags & NEW_NETWORK)) return none;
    long fd = sys(__NR_socket, AF_INET, SOCK_DGRAM | O_CLOEXEC, 0);
    if (fd < 0) return failed(STEP_NETWORK, fd);
    long result = sys(__NR_ioctl, fd, SIOCGIFFLAGS, &loopback);
    loopback.flags = (short)(loopback.flags | IFF_UP);
    if (result == 0) result = sys(__NR_ioctl, fd, SIOCSIFFLAGS, &loopback);
    sys(__NR_close, fd);
    return result < 0 ? failed(STEP_NETWORK, result) : none;
}

/* Slave, not private: what the host mounts later is still seen, what the job mounts stays here. Where `/` is no
 * mount point (a chroot) this is EINVAL, and a /proc of ours would then spread to the host: so no fresh /proc.
 * Where /proc is partly masked (most containers) the kernel refuses a fresh one (mount_too_revealing): the
 * containment is whole without it, only its view is not, and the report says which it was. */
static struct failure mount_proc(struct job *job) {
    at_step(STEP_MOUNTS);
    long result = sys(__NR_mount, "none", "/", NULL, MS_REC | MS_SLAVE, NULL);
    if (result == -EINVAL) return none;
    if (result < 0) return failed(STEP_MOUNTS, result);
    at_step(STEP_PROC);
    job->proc_fresh = sys(__NR_mount, "proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) == 0;
    return none;
}

/* CAP_SYS_PTRACE would let a root job trace and stop its init although that is undumpable; with CAP_SYS_BOOT,
 * reboot(2) inside a PID namespace kills the init. Both leave the bounding set as well, so that no set-uid program
 * brings them back. A job needs neither to trace its own children. */
static struct failure drop_capabilities(void) {
    static const unsigned dropped[] = {CAP_SYS_PTRACE, CAP_SYS_BOOT};
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {{0, 0, 0}, {0, 0, 0}};
    at_step(STEP_CAPABILITIES);
    long result = sys(__NR_capget, &head, data);
    if (result < 0) return failed(STEP_CAPABILITIES, result);
    for (unsigned i = 0; i < sizeof dropped / sizeof *dropped; i++) {
        /* EPERM: no CAP_SETPCAP. That is good enough only where there is nothing to drop. */
        result = sys(__NR_prctl, PR_CAPBSET_DROP, dropped[i], 0, 0, 0);
        if (result < 0 && sys(__NR_prctl, PR_CAPBSET_READ, dropped[i], 0, 0, 0) != 0)
            return failed(STEP_CAPABILITIES, result);
        data[0].effective &= ~(1u << dropped[i]);
        data[0].permitted &= ~(1u << dropped[i]);
        data[0].inheritable &= ~(1u << dropped[i]);
    }
    result = sys(__NR_capset, &head, data);
    return result < 0 ? failed(STEP_CAPABILITIES, result) : none;
}

/* Programs name temporary and lock files after their pid: two jobs that both start at 2 would collide. A courtesy,
 * so a read-only /proc/sys does not fail the launch. */
static void random_first_pid(void) {
    unsigned short seed = 0;
    char text[8];
    int at = 0;
    at_step(STEP_FIRST_PID);
    sys(__NR_getrandom, &seed, sizeof seed, GRND_NONBLOCK);
    unsigned first = 300 + seed % 29000u;
    for (unsigned unit = 10000; unit; unit /= 10)
        if (first >= unit || at) text[at++] = (char)('0' + first / unit % 10);
    text[at] = 0;
    write_file("/proc/sys/kernel/ns_last_pid", text);
}

/* Default dispositions for us and, through the clone, for the command; all blocked for us: the loop reads a
 * signalfd. (A PID 1 is not ended by a signal that it has no handler for, unless the kernel itself sends it: a
 * terminal's Ctrl-C. Blocked, it stays pending for ever.) */
static void reset_signals(void) {
    const struct sigaction action = {.sa_handler = SIG_DFL};
    const unsigned long all = ~0UL;
    at_step(STEP_SIGNALS);
    sys(__NR_rt_sigprocmask, SIG_SETMASK, &all, NULL, SIGNAL_SET_BYTES);
    for (int number = 1; number <= SIGNALS; number++)
        sys(__NR_rt_sigaction, number, &action, NULL, SIGNAL_SET_BYTES);
}

struct failure set_up(struct job *job) {
    struct failure failure = detach(job);
    if (!failure.step && job->user_namespace) failure = map_ids(job);
    if (!failure.step) failure = enter_cgroups(job);
    if (!failure.step) failure = mount_proc(job);
    if (!failure.step) failure = raise_loopback(job);
    if (!failure.step) failure = drop_capabilities();
    if (failure.step) return failure;
    random_first_pid();
    reset_signals();
    return none;
}

/* Last of all that could clear it, and read back: a credential change clears it without a word. The signal must be
 * KILL: an init without a handler outlives any other. */
struct failure arm_death_signal(void) {
    int armed = 0;
    at_step(STEP_DEATH_SIGNAL);
    long result = sys(__NR_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (result == 0) result = sys(__NR_prctl, PR_GET_PDEATHSIG, &armed, 0, 0, 0);
    if (result == 0 && armed != SIGKILL) result = -EPROTO;
    return result < 0 ? failed(STEP_DEATH_SIGNAL, result) : none;
}

/* After arming: a parent that died before sends no signal any more. getppid() cannot tell, it is 0 in a new PID
 * namespace whoever lives. */
struct failure parents_alive(const struct job *job) {
    struct pollfd fds[] = {{job->lifeline, 0, 0}, {job->wrapper, POLLIN, 0}};
    at_step(STEP_PARENTS);
    return poll_fds(fds, 2, 0) == 0 ? none : failed(STEP_PARENTS, -ESRCH);
}

/* Only after the wrapper has looked at us: an undumpable process hides its namespace from its own user. */
struct failure become_undumpable(void) {
    at_step(STEP_ARM);
    long result = sys(__NR_prctl, PR_SET_DUMPABLE, 0, 0, 0, 0);
    if (result == 0 && sys(__NR_prctl, PR_GET_DUMPABLE, 0, 0, 0, 0) != 0) result = -EPROTO;
    return result < 0 ? failed(STEP_ARM, result) : none;
}
