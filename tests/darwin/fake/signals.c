/* signals.c: kill, killpg, the signal by audit token and getsid, by Darwin's rules, carried out through pidfds.
 *
 * For the machine's safety a signal reaches only descendants of the process that made the world: EPERM otherwise.
 * Signal 0 is a question, which hurts nobody. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "server.h"

static bool may_signal(const struct caller *caller, const struct birth *birth, struct seen *seen, int signal) {
    if ((signal && !birth->ours) || birth->foreign) return false;
    if (caller->uid == 0) return true;
    read_ids(seen->pid, seen);
    return caller->uid == seen->ruid || caller->uid == seen->svuid;
}

/* Through a pidfd, after a second look: the number is then this process's for as long as we hold it. One that exits
 * meanwhile was signalled, as far as anybody can tell. */
static void deliver(const struct birth *birth, int signal) {
    struct seen seen;
    if (signal == 0 || birth->held) return; /* an exit that is stuck takes no signal */
    int pidfd = (int)syscall(SYS_pidfd_open, birth->pid, 0);
    if (pidfd < 0) return;
    if (read_stat(birth->pid, &seen) && seen.start_ticks == birth->ticks)
        syscall(SYS_pidfd_send_signal, pidfd, signal, NULL, 0);
    close(pidfd);
}

static void kill_one(const struct caller *caller, pid_t pid, int signal, struct reply *r) {
    struct seen seen;
    const struct birth *birth = look(pid, &seen);
    if (!birth) r->error = ESRCH;
    else if (seen.state >= DEAD) return; /* zombies and the exiting: 0, whoever asks */
    else if (!may_signal(caller, birth, &seen, signal)) r->error = EPERM;
    else deliver(birth, signal);
}

struct group {
    pid_t pgid;
    const struct caller *caller;
    int signal;
    bool exists, self;
    int reached;
};

/* A member that XNU's list names but cannot find yet (`hidden`) is passed over: so one killpg is not enough. */
static void signal_member(struct birth *birth, const struct seen *found, void *context) {
    struct group *group = context;
    struct seen seen = *found;
    if (seen.pgid != group->pgid) return;
    group->exists = true;
    if (birth->hidden || seen.state >= DEAD || !may_signal(group->caller, birth, &seen, group->signal)) return;
    group->reached++;
    if (birth->pid == group->caller->pid) group->self = true;
    else deliver(birth, group->signal);
}

static void kill_group(const struct caller *caller, pid_t pgid, int signal, struct reply *r) {
    struct group group = {.pgid = pgid, .caller = caller, .signal = signal};
    if (pgid == 1) {
        r->error = EPERM;
        return;
    }
    each_listed(signal_member, &group);
    if (!group.exists) r->error = ESRCH;
    else if (!group.reached) r->error = EPERM;
    if (group.self) { /* last, so that the others are not spared when the caller dies of it */
        const struct birth *self = birth_of(caller->pid);
        if (self) deliver(self, signal);
    }
}

static pid_t own_group(const struct caller *caller) {
    struct seen seen;
    return read_stat(caller->pid, &seen) ? seen.pgid : -1;
}

void answer_kill(const struct caller *caller, const struct request *q, struct reply *r) {
    pid_t pid = (pid_t)q->a[0];
    int signal = (int)q->a[1];
    if (signal < 0 || signal >= NSIG) r->error = EINVAL;
    else r->error = failure_of("kill", pid, 0);
    if (r->error) return;
    if (pid > 0) kill_one(caller, pid, signal, r);
    else if (pid == 0) kill_group(caller, own_group(caller), signal, r);
    else if (pid == -1) r->error = EPERM; /* everybody: never here */
    else kill_group(caller, -pid, signal, r);
}

void answer_killpg(const struct caller *caller, const struct request *q, struct reply *r) {
    pid_t pgid = (pid_t)q->a[0];
    int signal = (int)q->a[1];
    if (signal < 0 || signal >= NSIG || pgid < 0) r->error = EINVAL;
    else r->error = failure_of("killpg", pgid, 0);
    if (!r->error) kill_group(caller, pgid ? pgid : own_group(caller), signal, r);
}

/* pid and pidversion must both be of one process that is not exiting; there is no probe with signal 0. */
void answer_token(const struct caller *caller, const struct request *q, struct reply *r) {
    pid_t pid = (pid_t)q->a[0];
    int signal = (int)q->a[2];
    struct seen seen;
    if (signal <= 0 || signal >= NSIG) r->error = EINVAL;
    else r->error = failure_of("audittoken", pid, 0);
    if (r->error) return;
    const struct birth *birth = look(pid, &seen);
    if (!birth || seen.state >= DEAD || birth->idversion != (int32_t)q->a[1]) r->error = ESRCH;
    else if (!may_signal(caller, birth, &seen, signal)) r->error = EPERM;
    else deliver(birth, signal);
}

void answer_getsid(const struct caller *caller, const struct request *q, struct reply *r) {
    struct seen seen;
    pid_t pid = q->a[0] ? (pid_t)q->a[0] : caller->pid;
    r->error = failure_of("getsid", pid, 0);
    if (r->error) return;
    if (!look(pid, &seen) || seen.state >= DEAD) r->error = ESRCH;
    else r->value = seen.sid;
}

/* The world ends: what still descends from its maker is killed, so that no test leaves anything. Returns how many. */
int end_all(void) {
    int killed = 0;
    struct seen seen;
    events_drain();
    refresh_table();
    for (struct birth *birth = newest, *older; birth; birth = older) {
        older = birth->older;
        struct birth *now = birth->ours ? look(birth->pid, &seen) : NULL;
        if (!now || seen.state == ZOMBIE || !strncmp(seen.comm, "fakexnud", 8)) continue;
        let_go(now);
        deliver(now, SIGKILL);
        killed++;
    }
    return killed;
}
