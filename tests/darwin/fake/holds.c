/* holds.c: exits that take long. The server traces the process and keeps it where Linux stops it at the beginning of
 * its exit: descriptors (and ports) stay open, no wait returns it, and no signal moves it. */
#include <errno.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server.h"

static int held_count;

int holds_open(void) {
    sigset_t children;
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    sigprocmask(SIG_BLOCK, &children, NULL);
    return signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* ms: how long its exit will take; -1 = for ever, and nobody is told of it. Returns errno. */
int hold(struct birth *birth, int64_t ms, bool early) {
    if (ptrace(PTRACE_SEIZE, birth->pid, NULL, (void *)PTRACE_O_TRACEEXIT)) return errno;
    birth->traced = true;
    birth->hold_ms = ms;
    birth->hold_early = early;
    return 0;
}

void let_go(struct birth *birth) {
    if (birth->held) {
        held_count--;
        birth->held = NOT_HELD;
        birth->hold_ms = 0;
        ptrace(PTRACE_CONT, birth->pid, NULL, NULL);
    } else if (birth->traced) {
        birth->hold_ms = 0; /* its exit passes without a stop of ours */
    }
}

static void exit_begins(struct birth *birth) {
    unsigned long status = 0;
    ptrace(PTRACE_GETEVENTMSG, birth->pid, NULL, &status);
    if (!birth->hold_ms) {
        ptrace(PTRACE_CONT, birth->pid, NULL, NULL);
        return;
    }
    birth->exit_status = (int)status;
    birth->exit_ns = now_ns();
    birth->held = birth->hold_early ? HELD_BEGUN : HELD_DEAD;
    held_count++;
    if (birth->hold_ms > 0 && !birth->hold_early) notify(birth, NOTE_EXIT);
}

static void changed(pid_t pid, int status) {
    struct birth *birth = birth_of(pid);
    if (!WIFSTOPPED(status)) return;
    int event = status >> 16, signal = WSTOPSIG(status);
    if (event == PTRACE_EVENT_EXIT && birth) exit_begins(birth);
    else if (event == PTRACE_EVENT_STOP && signal != SIGTRAP) ptrace(PTRACE_LISTEN, pid, NULL, NULL);
    else ptrace(PTRACE_CONT, pid, NULL, (void *)(long)(event ? 0 : signal));
}

void holds_ready(void) {
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG | __WALL)) > 0) changed(pid, status);
}

void holds_tick(void) {
    for (struct birth *birth = newest; birth && held_count; birth = birth->older) {
        if (birth->held && birth->hold_ms > 0 && now_ns() - birth->exit_ns >= (uint64_t)birth->hold_ms * 1000000u)
            let_go(birth);
    }
}

int holds_timeout_ms(void) {
    return held_count ? 1 : -1;
}
