/* watches.c: who has attached EVFILT_PROC to which birth. A queue is a connection; notes are pushed to it and merged
 * by the library, as XNU merges them in the knote. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "server.h"

struct watch {
    struct watch *next;
    int queue, pidfd;
    pid_t pid;
    uint64_t uniq;
    uint32_t fflags;
    int status;             /* last known; -1 = unknown */
    bool ended;
};

static struct watch *watches;

static struct watch **find(int queue, pid_t pid) {
    struct watch **at = &watches;
    while (*at && ((*at)->queue != queue || (*at)->pid != pid)) at = &(*at)->next;
    return at;
}

static void drop(struct watch **at) {
    struct watch *gone = *at;
    *at = gone->next;
    close(gone->pidfd);
    free(gone);
}

static void push(const struct watch *watch, uint32_t fflags, int64_t data) {
    struct note note = {watch->pid, fflags, data};
    send(watch->queue, &note, sizeof note, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static int refusal(const struct request *q, struct birth *birth, const struct seen *seen) {
    int failure = failure_of("attach", (pid_t)q->a[1], 0);
    if (failure) return failure;
    if (q->a[2] & (NOTE_TRACK | NOTE_CHILD)) return ENOTSUP; /* since 10.5 */
    if (!birth || seen->state >= DEAD || birth->attach_lost) return ESRCH;
    if ((q->a[2] & NOTE_EXITSTATUS) && birth->foreign) return EACCES;
    return 0;
}

/* queue, pid, fflags. A process that exits already cannot be attached to: ESRCH, and no event. */
void watch_attach(const struct request *q, struct reply *r) {
    struct seen seen;
    struct birth *birth = look((pid_t)q->a[1], &seen);
    r->error = refusal(q, birth, &seen);
    if (r->error) return;
    struct watch **at = find((int)q->a[0], birth->pid), *watch = *at;
    if (watch && watch->uniq != birth->uniq) {
        drop(at);
        watch = NULL;
    }
    if (!watch) {
        int pidfd = (int)syscall(SYS_pidfd_open, birth->pid, 0);
        if (pidfd < 0) { /* reaped since the look */
            r->error = errno;
            return;
        }
        watch = calloc(1, sizeof *watch);
        if (!watch) abort();
        *watch = (struct watch){watches, (int)q->a[0], pidfd, birth->pid, birth->uniq, 0, -1, false};
        watches = watch;
        poll_add(pidfd, ON_PIDFD);
    }
    watch->fflags = (uint32_t)q->a[2];
}

void watch_detach(const struct request *q) {
    struct watch **at = find((int)q->a[0], (pid_t)q->a[1]);
    if (*at) drop(at);
}

void watch_forget(int queue) {
    for (struct watch **at = &watches; *at;)
        if ((*at)->queue == queue) drop(at);
        else at = &(*at)->next;
}

static void ended(struct watch *watch) {
    if (watch->ended) return;
    watch->ended = true;
    bool wanted = watch->fflags & (NOTE_EXIT | NOTE_EXITSTATUS);
    uint32_t fflags = NOTE_EXIT | (watch->fflags & NOTE_EXITSTATUS);
    if (wanted) push(watch, fflags, fflags & NOTE_EXITSTATUS && watch->status >= 0 ? watch->status & 0xffff : 0);
}

/* From the connector and from holds; the ordinary exit comes through the pidfd. */
void notify(const struct birth *birth, uint32_t fflags) {
    for (struct watch *watch = watches; watch; watch = watch->next) {
        if (watch->pid != birth->pid || watch->uniq != birth->uniq) continue;
        if (birth->exit_status >= 0) watch->status = birth->exit_status;
        if (fflags & NOTE_EXIT) ended(watch);
        else if (watch->fflags & fflags) push(watch, fflags, 0);
    }
}

void watches_ready(int pidfd) {
    for (struct watch **at = &watches; *at; at = &(*at)->next) {
        struct watch *watch = *at;
        if (watch->pidfd != pidfd) continue;
        const struct birth *birth = birth_of(watch->pid);
        struct seen seen;
        if (birth && birth->uniq == watch->uniq && birth->exit_status >= 0) watch->status = birth->exit_status;
        else if (read_stat(watch->pid, &seen) && seen.state == ZOMBIE) watch->status = seen.exit_code;
        ended(watch);
        drop(at);
        return;
    }
}
