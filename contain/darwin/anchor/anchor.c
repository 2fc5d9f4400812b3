/* anchor.c: the process that leads a job's session or process group on Darwin, and is reaped last.
 *
 * The supervisor spawns it (posix_spawn, which makes it a leader before it runs) with the job's 0, 1 and 2. It is told
 * the command, waits at the gate, forks and executes it, and reports its end. It is the dead man's switch: when the
 * supervisor is gone it kills its own group by kill(0), which needs no identity at all. Only POSIX is used, so the
 * same source runs on Linux, under the tests.
 *
 * argv: the numbers of the socket and of the job's working directory. */
#define _DEFAULT_SOURCE
#define _DARWIN_C_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "wire.h"

#ifdef __APPLE__
#define MAX_RSS_UNIT 1          /* getrusage(2): bytes there, KiB elsewhere */
#else
#define MAX_RSS_UNIT 1024
#endif

enum { LOOK_MS = 250 };         /* a stray copy of the socket's other end would hide the supervisor's death: look */

static int control, directory, woken[2];
static pid_t supervisor, command;

/* The group dies with us: SIGKILL reaches this process too, last of all, so nothing after it runs. */
static void end_group(void) {
    kill(0, SIGKILL);
    _exit(1);
}

static void note(int signal) {
    int saved = errno;
    (void)signal;
    if (write(woken[1], "", 1) < 0) errno = 0; /* full: it is readable all the same */
    errno = saved;
}

static void take(void *to, size_t bytes) {
    for (char *at = to; bytes;) {
        ssize_t got = read(control, at, bytes);
        if (got > 0) at += got, bytes -= (size_t)got;
        else if (got == 0 || errno != EINTR) end_group();
    }
}

static void tell(const struct report *report) {
    const char *at = (const char *)report;
    for (size_t bytes = sizeof *report; bytes;) {
        ssize_t put = write(control, at, bytes);
        if (put > 0) at += put, bytes -= (size_t)put;
        else if (errno != EINTR) end_group();
    }
}

static uint64_t us(struct timeval time) { return (uint64_t)time.tv_sec * 1000000u + (uint64_t)time.tv_usec; }

static void set_signals(void (*handler)(int)) {
    static const int ours[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE, SIGTSTP, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2,
                               SIGALRM, SIGVTALRM, SIGPROF, SIGXCPU};
    for (unsigned i = 0; i < sizeof ours / sizeof *ours; i++) signal(ours[i], handler);
}

/* A pointer for each of `count` strings; NULL after the last. */
static char **strings(char **at, const char *end, uint32_t count) {
    char **found = calloc(count + 1u, sizeof *found);
    if (!found) end_group();
    for (uint32_t i = 0; i < count; i++) {
        char *stop = memchr(*at, 0, (size_t)(end - *at));
        if (!stop) end_group();
        found[i] = *at;
        *at = stop + 1;
    }
    return found;
}

struct told {
    struct command_block head;
    char **paths, **args, **vars;
};

static void take_command(struct told *told) {
    take(&told->head, sizeof told->head);
    if (told->head.version != WIRE_VERSION || told->head.bytes > MOST_BLOCK_BYTES || told->head.limits > MOST_LIMITS)
        end_group();
    if (told->head.paths > told->head.bytes || told->head.args > told->head.bytes || told->head.vars > told->head.bytes)
        end_group();
    char *text = malloc(told->head.bytes + 1u);
    if (!text) end_group();
    take(text, told->head.bytes);
    const char *end = text + told->head.bytes;
    told->paths = strings(&text, end, told->head.paths);
    told->args = strings(&text, end, told->head.args);
    told->vars = strings(&text, end, told->head.vars);
}

static void broke(int to, uint32_t step) {
    int32_t words[2] = {(int32_t)step, errno};
    if (write(to, words, sizeof words) < 0) _exit(126);
    _exit(127);
}

/* As a shell's child does it. Its signals are the command's own by now: what is typed from here on reaches it, and what
 * was typed before has reached the wrapper, which hands it on. */
static void take_terminal(void) {
    for (int fd = 0; fd < 3; fd++)
        if (tcsetpgrp(fd, getpgrp()) == 0) return;
}

static void become_command(const struct told *told, int foreground, int to) {
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGTTOU); /* or taking the terminal from the background would stop us */
    sigprocmask(SIG_SETMASK, &mask, NULL);
    for (int number = 1; number < NSIG; number++)
        if (number != SIGKILL && number != SIGSTOP) signal(number, SIG_DFL);
    if (foreground) take_terminal();
    sigemptyset(&mask);
    sigprocmask(SIG_SETMASK, &mask, NULL);
    if (fchdir(directory) < 0) broke(to, STEP_DIRECTORY);
    umask((mode_t)told->head.umask);
    if (told->head.nice != NICE_KEEP && setpriority(PRIO_PROCESS, 0, told->head.nice) < 0) broke(to, STEP_LIMITS);
    for (uint32_t i = 0; i < told->head.limits; i++) {
        const struct block_limit *limit = &told->head.limit[i];
        const struct rlimit values = {(rlim_t)limit->soft, (rlim_t)limit->hard};
        if (setrlimit((int)limit->resource, &values) < 0) broke(to, STEP_LIMITS);
    }
    int first = ENOENT;
    for (char **path = told->paths; *path; path++) {
        execve(*path, told->args, told->vars);
        /* As execvp(3): a file that may not be executed is remembered, and the next place is tried. */
        if (errno == EACCES) first = EACCES;
        else if (errno != ENOENT && errno != ENOTDIR) broke(to, STEP_EXEC);
    }
    errno = first;
    broke(to, STEP_EXEC);
}

/* Forks the command and waits until it is executed. A process this small, with one thread, may fork. */
static void start(const struct told *told, int foreground) {
    int failure[2];
    int32_t words[2] = {0, 0};
    struct report report = {.kind = REPORT_STARTED};
    if (pipe(failure) < 0) end_group();
    fcntl(failure[0], F_SETFD, FD_CLOEXEC);
    fcntl(failure[1], F_SETFD, FD_CLOEXEC);
    command = fork();
    if (command == 0) become_command(told, foreground, failure[1]);
    if (command < 0) words[0] = STEP_FORK, words[1] = errno;
    close(failure[1]);
    ssize_t got = sizeof words;
    while (command > 0 && (got = read(failure[0], words, sizeof words)) < 0 && errno == EINTR) continue;
    close(failure[0]);
    if (words[0]) report.kind = REPORT_BROKE, report.step = (uint32_t)words[0], report.error = words[1];
    report.pid = command;
    tell(&report);
}

static void reap(void) {
    struct rusage usage;
    int status;
    pid_t pid;
    while (command > 0 && (pid = wait4(command, &status, WNOHANG | WUNTRACED, &usage)) > 0) {
        struct report report = {.kind = WIFSTOPPED(status) ? REPORT_STOPPED : REPORT_ENDED, .status = status, .pid = pid};
        if (report.kind == REPORT_ENDED) {
            report.user_us = us(usage.ru_utime);
            report.system_us = us(usage.ru_stime);
            report.max_rss_bytes = (uint64_t)usage.ru_maxrss * MAX_RSS_UNIT;
            command = 0;
        } else {
            report.group = getpgid(pid);
        }
        tell(&report);
    }
}

static void obey(const struct told *told, int *opened) {
    struct order order;
    take(&order, sizeof order);
    if (!*opened) {
        if (order.kind != ORDER_OPEN) end_group();
        *opened = 1;
        start(told, order.number);
    } else if (order.kind == ORDER_GROUP) {
        kill(0, order.number); /* reaches us too, who ignore it */
    }
    int outside = order.kind == ORDER_GROUP && command > 0 && getpgid(command) != getpgrp();
    if (command > 0 && (order.kind == ORDER_SIGNAL || outside))
        kill(command, order.number); /* our own unreaped child: the number is surely its */
}

int main(int argc, char **argv) {
    struct told told;
    int opened = 0;
    if (argc != 3) return 64;
    control = atoi(argv[1]);
    directory = atoi(argv[2]);
    supervisor = getppid();
    set_signals(SIG_IGN);
    if (getpgrp() != getpid() || pipe(woken) < 0) return 1; /* never kill(0) in somebody else's group */
    int ours[] = {control, directory, woken[0], woken[1]};
    for (unsigned i = 0; i < sizeof ours / sizeof *ours; i++) fcntl(ours[i], F_SETFD, FD_CLOEXEC);
    fcntl(woken[0], F_SETFL, O_NONBLOCK);
    fcntl(woken[1], F_SETFL, O_NONBLOCK);
    signal(SIGCHLD, note);
    take_command(&told);
    tell(&(struct report){.kind = REPORT_READY, .pid = getpid()});
    for (;;) {
        struct pollfd fds[] = {{control, POLLIN, 0}, {woken[0], POLLIN, 0}};
        char drained[64];
        poll(fds, 2, LOOK_MS);
        if (getppid() != supervisor) end_group();
        while (read(woken[0], drained, sizeof drained) > 0) continue;
        reap();
        if (fds[0].revents) obey(&told, &opened);
    }
}
