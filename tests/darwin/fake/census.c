/* census.c: proc_listpids and proc_listpidspath. XNU walks live and zombie processes under one lock; here a walk is
 * repeated for whoever was born during it, so that nobody who lives at its end is missing. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "server.h"

enum { OTHERS_STAY_NS = 1000000000 };

/* A machine may run a thousand processes that no test is about: of those a look is good for a second. */
static struct birth *glance(struct birth *birth, struct seen *seen) {
    if (!lineage || birth->ours || birth->pid == maker) return look(birth->pid, seen);
    if (birth->last_ns && now_ns() - birth->last_ns < OTHERS_STAY_NS) {
        *seen = birth->last;
        return birth;
    }
    struct birth *now = look(birth->pid, seen);
    if (now) {
        now->last = *seen;
        now->last_ns = now_ns();
    }
    return now;
}

void each_listed(void (*visit)(struct birth *, const struct seen *, void *), void *context) {
    uint64_t told = 0;
    struct seen seen;
    refresh_table();
    events_drain();
    for (bool again = true; again;) { /* ends: each round takes only the births of the round before */
        uint64_t last = newest ? newest->uniq : 0;
        for (struct birth *birth = newest, *older; birth && birth->uniq > told; birth = older) {
            older = birth->older;
            uint64_t uniq = birth->uniq;
            struct birth *now = glance(birth, &seen);
            if (now && now->uniq == uniq) visit(now, &seen, context); /* another's number by now: the next round's */
        }
        told = last;
        events_drain();
        again = newest && newest->uniq > told;
    }
}

struct census {
    int64_t type, value;
    pid_t *pids;
    size_t count, most;
};

static bool matches(const struct birth *birth, struct seen *seen, const struct census *c) {
    switch (c->type) {
    case PROC_PGRP_ONLY: return seen->pgid == c->value;
    case PROC_PPID_ONLY: return seen->ppid == c->value;
    case PROC_TTY_ONLY: return seen->tty == c->value;
    case PROC_KDBG_ONLY: return false;
    case PROC_ALL_PIDS: return true;
    }
    read_ids(seen->pid, seen);
    if (birth->foreign) seen->euid = seen->ruid = birth->foreign;
    return (c->type == PROC_UID_ONLY ? seen->euid : seen->ruid) == (uid_t)c->value;
}

static void count_in(struct birth *birth, const struct seen *found, void *context) {
    struct census *c = context;
    struct seen seen = *found;
    if (c->count >= c->most || !matches(birth, &seen, c)) return;
    if (birth->hidden) {
        birth->hidden--;
        return;
    }
    c->pids[c->count++] = birth->pid;
}

void answer_listpids(const struct request *q, struct reply *r) {
    struct census c = {q->a[0], q->a[1], (pid_t *)(void *)r->data, 0, DATA_MOST / sizeof(pid_t)};
    if (c.type < PROC_ALL_PIDS || c.type > PROC_KDBG_ONLY) r->error = EINVAL;
    else if (q->a[2] >= 0 && q->a[2] < (int64_t)sizeof(pid_t)) r->error = ENOMEM;
    else r->error = failure_of("listpids", 0, 0);
    if (r->error) return;
    if (q->a[2] < 0) { /* no buffer: room for everybody and twenty more, whatever the type */
        c.type = PROC_ALL_PIDS;
        each_listed(count_in, &c);
        r->value = (int64_t)((c.count + 20) * sizeof(pid_t));
        return;
    }
    each_listed(count_in, &c);
    struct rule *cut = rule_for("truncate", 0, 0);
    if (cut && (size_t)cut->amount < c.count) c.count = (size_t)cut->amount;
    size_t room = (size_t)q->a[2] / sizeof(pid_t);
    if (c.count > room) c.count = room; /* in silence, as XNU does */
    r->bytes = (uint32_t)(c.count * sizeof(pid_t));
    r->value = r->bytes;
}

static bool holds_file(pid_t pid, const struct stat *file) {
    char name[300];
    snprintf(name, sizeof name, "/proc/%d/fd", pid);
    DIR *fds = opendir(name);
    bool found = false;
    if (!fds) return false;
    for (struct dirent *entry; !found && (entry = readdir(fds));) {
        struct stat held;
        if (entry->d_name[0] == '.') continue;
        snprintf(name, sizeof name, "/proc/%d/fd/%s", pid, entry->d_name);
        found = !stat(name, &held) && held.st_dev == file->st_dev && held.st_ino == file->st_ino;
    }
    closedir(fds);
    return found;
}

struct path_census {
    struct census census;
    struct stat file;
    const struct caller *caller;
};

static void holder_in(struct birth *birth, const struct seen *found, void *context) {
    struct path_census *c = context;
    struct seen seen = *found;
    if (c->census.count >= c->census.most || seen.state >= DEAD || !matches(birth, &seen, &c->census)) return;
    read_ids(seen.pid, &seen);
    if (same_user(c->caller, birth, &seen) && holds_file(seen.pid, &c->file))
        c->census.pids[c->census.count++] = birth->pid;
}

void answer_listpath(const struct caller *caller, const struct request *q, struct reply *r) {
    struct path_census c = {{q->a[0], q->a[1], (pid_t *)(void *)r->data, 0, DATA_MOST / sizeof(pid_t)}, {0}, caller};
    r->error = failure_of("listpidspath", 0, 0);
    if (!r->error && stat(q->text, &c.file)) r->error = errno;
    if (r->error) return;
    each_listed(holder_in, &c);
    size_t room = q->a[2] > 0 ? (size_t)q->a[2] / sizeof(pid_t) : 0;
    if (c.census.count > room) c.census.count = room;
    r->bytes = (uint32_t)(c.census.count * sizeof(pid_t));
    r->value = r->bytes;
}
