/* unruly.c: what a job may do that a containment has to survive.  unruly MODE FILE SECONDS
 *
 * Every process that it makes adds a byte to FILE every 2 ms for as long as it runs, so that a look at the file's size
 * says whether anything still runs, and ends by itself after SECONDS. But for the stopped ones: those end only when
 * somebody ends them. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SPAWNERS = 8, TREES = 1000, STOPPED = 5, PAUSE_US = 2000, HOP_US = 500 };

static int file;
static double deadline_s;

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void byte(void) {
    if (write(file, ".", 1) != 1) _exit(3);
}

static void pause_us(long us) {
    nanosleep(&(struct timespec){0, us * 1000}, NULL);
}

static void beat(void) {
    while (now_s() < deadline_s) {
        byte();
        pause_us(PAUSE_US);
    }
    _exit(0);
}

static pid_t must_fork(void) {
    pid_t pid = fork();
    if (pid < 0) _exit(4);
    return pid;
}

/* Two forks and a session of its own: nothing of the caller's is left to find it by. */
static void daemonize_and_beat(void) {
    if (must_fork() == 0) {
        setsid();
        if (must_fork() == 0) beat();
        _exit(0);
    }
    wait(NULL);
}

static void become_deaf(void) {
    sigset_t all;
    for (int number = 1; number < 32; number++) signal(number, SIG_IGN);
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
}

static void *spawn(void *unused) {
    while (now_s() < deadline_s) {
        pid_t pid = fork();
        if (pid == 0) {
            setsid();
            if (fork() == 0) {
                for (int i = 0; i < 20; i++) byte(), pause_us(PAUSE_US);
            }
            _exit(0);
        }
        if (pid > 0) waitpid(pid, NULL, 0);
        pause_us(PAUSE_US);
    }
    return unused;
}

static void storm(void) {
    pthread_t threads[SPAWNERS];
    for (int i = 0; i < SPAWNERS; i++)
        if (pthread_create(&threads[i], NULL, spawn, NULL)) _exit(4);
    for (int i = 0; i < SPAWNERS; i++) pthread_join(threads[i], NULL);
}

/* No process lives long enough to be found and killed by its number. */
static void relay(void) {
    while (now_s() < deadline_s) {
        byte();
        pause_us(HOP_US);
        if (must_fork() > 0) _exit(0);
        setsid();
    }
    _exit(0);
}

static void stop_children(void) {
    for (int i = 0; i < STOPPED; i++) {
        if (must_fork() == 0) {
            setsid();
            raise(SIGSTOP);
            beat();
        }
        waitpid(-1, NULL, WUNTRACED);
    }
}

/* One child runs under a tracer, one is held by it. */
static void trace(void) {
    for (int held = 0; held < 2; held++) {
        pid_t pid = must_fork();
        if (pid == 0) {
            if (held && ptrace(PTRACE_TRACEME, 0, 0, 0) == 0) raise(SIGSTOP);
            beat();
        }
        if (held) waitpid(pid, NULL, 0);
        else if (ptrace(PTRACE_SEIZE, pid, 0, 0) != 0) _exit(5);
    }
}

static void grow_forest(void) {
    for (int i = 0; i < TREES; i++) {
        if (must_fork() > 0) continue;
        if (i % 5 == 0) setsid();
        while (now_s() < deadline_s) sleep(1);
        _exit(0);
    }
    byte();
    while (now_s() < deadline_s) sleep(1);
}

/* Twice as many processes: each is an orphan when it ends, as its parent has ended before. */
static void leave_orphans(int count) {
    for (int i = 0; i < count; i++) {
        if (must_fork() == 0) {
            if (must_fork() == 0) _exit(0);
            _exit(0);
        }
        if (i % 64 == 63)
            while (waitpid(-1, NULL, 0) > 0) {}
    }
    _exit(0);
}

/* Ends with children that ended before and that nobody has waited for. */
static void leave_zombies(int count) {
    siginfo_t info;
    for (int i = 0; i < count; i++)
        if (must_fork() == 0) _exit(0);
    for (int i = 0; i < count; i++) waitid(P_ALL, 0, &info, WEXITED | WNOWAIT);
    pause_us(20000);
    _exit(0);
}

/* What can a job do to its own PID 1? Says "seized" when it could trace it, "attacked" when it has tried all. */
static void attack_init(void) {
    int status;
    if (ptrace(PTRACE_SEIZE, 1, 0, 0) == 0 && ptrace(PTRACE_INTERRUPT, 1, 0, 0) == 0) {
        waitpid(1, &status, __WALL);
        if (write(file, "seized\n", 7) != 7) _exit(3);
    }
    for (int number = 1; number <= 64; number++) kill(1, number);
    if (write(file, "attacked\n", 9) != 9) _exit(3);
    _exit(0);
}

int main(int count, char **args) {
    if (count != 4) return 64;
    const char *mode = args[1];
    file = open(args[2], O_WRONLY | O_APPEND | O_CREAT, 0666);
    if (file < 0) return 1;
    int number = atoi(args[3]);
    deadline_s = now_s() + number;
    if (!strcmp(mode, "daemon")) daemonize_and_beat();
    else if (!strcmp(mode, "deaf")) become_deaf(), daemonize_and_beat();
    else if (!strcmp(mode, "storm")) storm();
    else if (!strcmp(mode, "relay")) { if (must_fork() == 0) relay(); }
    else if (!strcmp(mode, "hop")) relay();
    else if (!strcmp(mode, "stopped")) stop_children();
    else if (!strcmp(mode, "traced")) trace();
    else if (!strcmp(mode, "forest")) grow_forest();
    else if (!strcmp(mode, "orphans")) leave_orphans(number);
    else if (!strcmp(mode, "zombies")) leave_zombies(number);
    else if (!strcmp(mode, "attack")) attack_init();
    else if (strcmp(mode, "beat")) return 64;
    beat();
}
