/* init.c: PID 1 of one job.
 *
 *   set up -> READY -> (wrapper looks) ARM -> ARMED -> command runs -> EXITED -> leftovers -> EMPTY -> exit
 *                                                                        |
 *                  grace, TERM and CONT, grace, KILL (each from the inside, where -1 means exactly this job)
 *
 * Facts that hold in the loop: every signal is blocked; the only descriptors are those of `enum` below; nothing
 * waits but the one poll; every wake-up reaps until nothing is left to reap, so that a lost or merged SIGCHLD costs
 * nothing. Exits for any reason end the job: the kernel kills and reaps what is in the namespace before anyone can
 * see that this process is gone (zap_pid_ns_processes, kernel/pid_namespace.c). */
#include "contain-init.h"

enum { CONTROL, LIFELINE, WRAPPER, CHILDREN, EXECUTED, WATCHED };
enum { EXIT_SETUP = 125, EXIT_ABANDONED = 124 };
enum { REAPED_AT_ONCE = 128 };

enum phase {
    RUNNING,                    /* the command lives */
    LEFT,                       /* it ended; what is left may still end by itself */
    TERMINATED,                 /* the tree was sent TERM */
    KILLED                      /* and KILL */
};

struct init {
    struct job *job;
    struct command command;
    enum phase phase;
    long deadline_ms;           /* when the phase ends; -1 = never */
    int ended;                  /* the command was reaped */
    int status;                 /* as wait4 gave it */
    uint32_t reaped;
    int signals;                /* signalfd of SIGCHLD */
};

static void report(const struct init *init, struct report *message) {
    struct rusage usage = {0};
    sys(__NR_getrusage, RUSAGE_CHILDREN, &usage);
    message->reaped = init->reaped;
    message->user_us = (uint64_t)usage.ru_utime.tv_sec * 1000000u + (uint64_t)usage.ru_utime.tv_usec;
    message->system_us = (uint64_t)usage.ru_stime.tv_sec * 1000000u + (uint64_t)usage.ru_stime.tv_usec;
    message->max_rss_bytes = (uint64_t)usage.ru_maxrss * 1024u;
    message->read_bytes = (uint64_t)usage.ru_inblock * 512u;
    message->written_bytes = (uint64_t)usage.ru_oublock * 512u;
    /* A wrapper that does not read loses a report, never an init: the receipt then says less, not something wrong. */
    sys(__NR_sendto, init->job->control, message, sizeof *message, MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0);
}

static void say(const struct init *init, enum report_kind kind) {
    struct report message = {.kind = (uint32_t)kind};
    report(init, &message);
}

static NORETURN void fail(const struct init *init, struct failure failure) {
    struct report message = {.kind = REPORT_FAILED, .step = failure.step, .error = failure.error};
    report(init, &message);
    leave(EXIT_SETUP);
}

/* -1 reaches every process of this namespace but its caller, and is checked to be just that. */
static void signal_tree(int number) {
    if (sys(__NR_getpid) == 1) sys(__NR_kill, -1, number);
}

/* TERM to a stopped process does nothing until it is continued. */
static void terminate(struct init *init, long grace_ms) {
    signal_tree(SIGTERM);
    signal_tree(SIGCONT);
    init->phase = TERMINATED;
    init->deadline_ms = now_ms() + grace_ms;
}

static void next_phase(struct init *init) {
    if (init->phase == LEFT) {
        terminate(init, init->job->request.kill_ms);
        say(init, REPORT_TERM);
    } else {
        /* Atomic against forks: kill(2) holds the task list, and a fork that started before is refused once its
         * parent has a fatal signal pending (copy_process). */
        signal_tree(SIGKILL);
        init->phase = KILLED;
        init->deadline_ms = -1;
        say(init, REPORT_KILL);
    }
}

/* The command ended: say so at once, whatever is left. */
static void command_ended(struct init *init, int leftovers) {
    struct report message = {.kind = REPORT_EXITED, .status = init->status, .leftovers = (uint32_t)leftovers};
    struct failure failure = {init->command.failure.step, init->command.failure.error};
    if (failure.step && failure.step != STEP_EXEC) fail(init, failure);
    message.step = failure.step;
    message.error = failure.error;
    report(init, &message);
    if (init->phase == RUNNING) {
        init->phase = LEFT;
        init->deadline_ms = now_ms() + init->job->request.leftovers_ms;
    }
}

static NORETURN void finish(const struct init *init) {
    say(init, REPORT_EMPTY);
    /* The exit status stays readable through any pidfd of this process (PIDFD_GET_INFO, Linux 6.15). */
    leave(init->status & 0x7f ? 128 + (init->status & 0x7f) : init->status >> 8 & 0xff);
}

/* Reaps what can be reaped, but not for ever: a job that forks without end must not keep us from cancel, deadline
 * and the wrapper's end. Returns whether more may be waiting. Children of a namespace's processes that lost their
 * parent become ours, so no child left means an empty job (but for a stranger that entered from outside, whom the
 * kernel ends when we exit). */
static int reap(struct init *init) {
    const int was_running = !init->ended;
    const long stops = init->job->request.flags & SHARED_SESSION ? WUNTRACED : 0;
    long pid = 1;
    for (int turn = 0; turn < REAPED_AT_ONCE; turn++) {
        int status = 0;
        pid = sys(__NR_wait4, -1, &status, WNOHANG | __WALL | stops, NULL);
        if (pid <= 0) break;
        if ((status & 0xff) == 0x7f) {          /* stopped, not ended */
            if (pid == init->command.pid) say(init, REPORT_STOPPED);
            continue;
        }
        init->reaped++;
        if (pid == init->command.pid && was_running) {
            init->ended = 1;
            init->status = status;
        }
    }
    if (was_running && init->ended) command_ended(init, pid != -ECHILD);
    if (init->ended && pid == -ECHILD) finish(init);
    return pid > 0;
}

static void obey(struct init *init) {
    struct order order = {0};
    long bytes = sys(__NR_recvfrom, init->job->control, &order, sizeof order, MSG_DONTWAIT | MSG_TRUNC, NULL, NULL);
    if (bytes == -EAGAIN || bytes == -EINTR) return;
    /* EOF: the wrapper is gone, or has let go of the job. Any other size is not from a wrapper of ours. */
    if (bytes != (long)sizeof order) leave(EXIT_ABANDONED);
    if (order.kind == ORDER_ARM) {
        struct failure failure = arm_death_signal();
        if (!failure.step) failure = become_undumpable();
        if (failure.step) fail(init, failure);
        say(init, REPORT_ARMED);
    } else if (order.kind == ORDER_CANCEL && init->phase != KILLED) {
        terminate(init, order.grace_ms);
    } else if (order.kind == ORDER_SIGNAL && !init->ended) {
        sys(__NR_kill, init->command.pid, order.signal);        /* our own unreaped child: the number is its */
    }
}

/* Of the phase: 0 = it is over, -1 = it has no end. */
static long time_left_ms(const struct init *init) {
    if (init->phase == RUNNING || init->deadline_ms < 0) return -1;
    long left = init->deadline_ms - now_ms();
    return left > 0 ? left : 0;
}

static NORETURN void watch(struct init *init) {
    struct pollfd fds[WATCHED] = {
        [CONTROL] = {init->job->control, POLLIN, 0}, [LIFELINE] = {init->job->lifeline, 0, 0},
        [WRAPPER] = {init->job->wrapper, POLLIN, 0}, [CHILDREN] = {init->signals, POLLIN, 0},
        [EXECUTED] = {init->command.executed, 0, 0}};
    for (;;) {
        int more = reap(init);
        if (time_left_ms(init) == 0) next_phase(init);
        if (poll_fds(fds, WATCHED, more ? 0 : time_left_ms(init)) <= 0) continue;
        /* A stopped keeper sends no death signal: these two see the wrapper's end without it. */
        if (fds[LIFELINE].revents || fds[WRAPPER].revents) leave(EXIT_ABANDONED);
        if (fds[CHILDREN].revents) {
            char drained[8 * 128];
            sys(__NR_read, init->signals, drained, sizeof drained);
        }
        if (fds[EXECUTED].revents) {
            forget_command_block(&init->command);
            fds[EXECUTED].fd = -1;
        }
        if (fds[CONTROL].revents) obey(init);
    }
}

static void close_what_is_the_commands(const struct job *job) {
    sys(__NR_close, job->gate);
    sys(__NR_close, job->block);
    for (int i = 0; i < 3; i++) sys(__NR_close, job->stdio[i]);
    for (uint32_t i = 0; i < job->request.kept; i++) sys(__NR_close, job->kept[i]);
    sys(__NR_chdir, "/");       /* hold no directory of the job's */
}

void init_main(struct job *job) {
    struct init init = {.job = job, .deadline_ms = -1};
    const unsigned long children = 1UL << (SIGCHLD - 1);
    struct failure failure = set_up(job);
    if (failure.step) fail(&init, failure);
    init.signals = (int)sys(__NR_signalfd4, -1, &children, SIGNAL_SET_BYTES, O_CLOEXEC | O_NONBLOCK);
    if (init.signals < 0) fail(&init, (struct failure){STEP_SIGNALS, -init.signals});
    failure = start_command(job, &init.command);
    if (failure.step) fail(&init, failure);
    close_what_is_the_commands(job);
    failure = arm_death_signal();
    if (!failure.step) failure = parents_alive(job);
    if (failure.step) fail(&init, failure);
    struct report ready = {.kind = REPORT_READY, .pid = (int32_t)sys(__NR_getpid), .proc_fresh = job->proc_fresh};
    at_step(STEP_READY);
    report(&init, &ready);
    watch(&init);
}
