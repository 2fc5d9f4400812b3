/* init_jobs.c: what runs inside: ordinary ends, stubborn ones, and a job that turns against its own init. */
#include "init_harness.h"

static void say(const char *text) {
    if (write(1, text, strlen(text)) < 0) _exit(90);
}

static void stay(const char *how) {
    if (!strcmp(how, "deaf")) signal(SIGTERM, SIG_IGN);
    say("started\n");
    for (;;) pause();
}

/* A session of its own, as a daemon has; the caller goes on once the child has said that it is there. */
static void leave_behind(const char *how) {
    int told[2];
    char byte;
    if (pipe(told) < 0) _exit(91);
    if (fork() == 0) {
        setsid();
        if (!strcmp(how, "deaf")) signal(SIGTERM, SIG_IGN);
        close(told[0]);
        close(told[1]);
        for (;;) pause();
    }
    close(told[1]);
    while (read(told[0], &byte, 1) > 0) ;
    say("started\n");
}

/* Each child leaves a grandchild to the init, and is reaped here. */
static int make_orphans(int count) {
    while (count-- > 0) {
        pid_t child = fork();
        if (child < 0) return 92;
        if (child == 0) {
            fork();
            _exit(0);
        }
        waitpid(child, NULL, 0);
    }
    return 0;
}

static int succeeded;

static void attack(int success, const char *what) {
    if (!success) return;
    succeeded++;
    say("succeeded: ");
    say(what);
    say("\n");
}

/* Since Linux 6.14 CAP_PERFMON opens environ, maps and auxv of any process for reading (may_access_mm, kernel/fork.c).
 * The keeper is started without an environment, and addresses are no secret: so a byte of environ is an attack here,
 * and maps are none. */
static void attack_by_files(void) {
    static const char *const secret[] = {"/proc/1/mem", "/proc/1/environ", "/proc/1/fd/0", "/proc/1/fdinfo/0",
                                         "/proc/1/ns/pid", "/proc/1/exe", "/proc/1/cwd/.", "/proc/1/root/.",
                                         "/proc/1/stack"};
    char name[64];
    for (size_t i = 0; i < sizeof secret / sizeof *secret; i++) {
        errno = 0;
        int fd = open(secret[i], O_RDONLY);
        attack(fd >= 0 && (read(fd, name, 1) > 0 || errno == EISDIR), secret[i]);
        attack(readlink(secret[i], name, sizeof name) >= 0, secret[i]);
        if (fd >= 0) close(fd);
    }
}

static void attack_by_trace(const char *as) {
    char here[64], *there = here;
    struct iovec to = {here, sizeof here}, from = {there, sizeof here};
    attack(ptrace(PTRACE_ATTACH, 1, NULL, NULL) == 0 || errno != EPERM, as);
    attack(ptrace(PTRACE_SEIZE, 1, NULL, NULL) == 0 || errno != EPERM, as);
    attack(process_vm_readv(1, &to, 1, &from, 1, 0) >= 0 || errno != EPERM, as);
}

static void attack_by_signals(void) {
    static const int numbers[] = {SIGKILL, SIGSTOP, SIGTERM, SIGTSTP, SIGSEGV, SIGCHLD, SIGHUP};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) kill(1, numbers[i]);
    kill(-1, SIGKILL);      /* all but PID 1 and the caller */
    attack(kill(1, 0) != 0 && errno == ESRCH, "a signal");
}

static void attack_by_capabilities(void) {
    static const unsigned lost[] = {CAP_SYS_PTRACE, CAP_SYS_BOOT};
    for (size_t i = 0; i < 2; i++) {
        struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
        struct __user_cap_data_struct data[2];
        attack(prctl(PR_CAPBSET_READ, lost[i]) != 0, "the bounding set");
        syscall(SYS_capget, &head, data);
        unsigned held = data[0].permitted | data[0].inheritable | data[0].effective;
        attack((int)(held >> lost[i] & 1), "a capability that was kept");
        data[0].permitted |= 1u << lost[i];
        data[0].effective |= 1u << lost[i];
        attack(syscall(SYS_capset, &head, data) == 0, "capset");
    }
    /* Inside a PID namespace this would end its init alone. */
    attack(reboot(RB_AUTOBOOT) == 0 || errno != EPERM, "reboot");
}

/* All capabilities there are, but in a user namespace that is not the init's. */
static void attack_from_a_user_namespace(void) {
    int status = 0;
    if (fork() == 0) {
        succeeded = 0;
        if (unshare(CLONE_NEWUSER) == 0) attack_by_trace("a trace from a user namespace");
        attack_by_files();
        _exit(succeeded != 0);
    }
    wait(&status);
    attack(status != 0, "something from a user namespace");
}

static void attack_by_descriptors(void) {
    for (int fd = 3; fd < 1024; fd++) attack(fcntl(fd, F_GETFD) >= 0, "a descriptor that was left open");
}

static int attack_init(void) {
    char name[16] = "";
    int fd = open("/proc/1/comm", O_RDONLY);
    if (read(fd, name, sizeof name - 1) <= 0 || strncmp(name, "contain-init", 12)) return 93;   /* never any other */
    close(fd);
    attack_by_descriptors();
    attack_by_files();
    attack_by_trace("a trace");
    attack_by_signals();
    attack_by_capabilities();
    attack_from_a_user_namespace();
    say(succeeded ? "\n" : "attacks failed\n");
    return 0;
}

int job_main(int count, char **args) {
    const char *kind = args[0], *more = count > 1 ? args[1] : "";
    if (!getenv("HARNESS")) return 94;
    if (!strcmp(kind, "exit")) return say("started\n"), atoi(more);
    if (!strcmp(kind, "signal")) raise(atoi(more));
    if (!strcmp(kind, "deaf")) stay("deaf");
    if (!strcmp(kind, "leave")) return leave_behind(more), 0;
    if (!strcmp(kind, "leave-and-stay")) leave_behind(more), stay(more);
    if (!strcmp(kind, "orphans")) return make_orphans(atoi(more));
    if (!strcmp(kind, "attack")) return attack_init();
    return 95;
}
