/* table.c: births. Numbers are Linux's; unique ids, pidversions and lineage are kept here as XNU keeps them. */
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "server.h"

enum { PID_LIMIT = 1 << 22 };

struct birth *newest;
pid_t maker;
int64_t clock_step_us;
bool reset_puniqueid = true, with_opidversion = true;

static struct birth **by_pid;
static const uint64_t session_coalition = 1;
static uint64_t last_uniq, last_coalition = 1;
static int32_t last_idversion;

uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int64_t wall_us(uint64_t at_ns) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t wall_now_us = (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
    return wall_now_us - (int64_t)(now_ns() - at_ns) / 1000 + clock_step_us;
}

int32_t next_idversion(void) {
    return ++last_idversion;
}

uint64_t next_coalition(void) {
    return ++last_coalition;
}

struct birth *birth_of(pid_t pid) {
    return pid > 0 && pid < PID_LIMIT ? by_pid[pid] : NULL;
}

static void unlink_birth(struct birth *birth) {
    if (birth->newer) birth->newer->older = birth->older;
    else newest = birth->older;
    if (birth->older) birth->older->newer = birth->newer;
}

static void make_newest(struct birth *birth) {
    birth->newer = NULL;
    birth->older = newest;
    if (newest) newest->newer = birth;
    newest = birth;
}

static void forget(struct birth *birth) {
    unlink_birth(birth);
    by_pid[birth->pid] = NULL;
    free(birth);
}

struct birth *born(pid_t pid, pid_t parent, uint64_t at_ns) {
    if (pid <= 0 || pid >= PID_LIMIT) return NULL;
    if (by_pid[pid]) forget(by_pid[pid]);
    struct birth *birth = calloc(1, sizeof *birth), *from = birth_of(parent);
    if (!birth) abort();
    birth->pid = pid;
    birth->parent = parent;
    birth->uniq = ++last_uniq;
    birth->idversion = next_idversion();
    birth->coalition = from ? from->coalition : session_coalition;
    birth->start_ns = at_ns;
    birth->start_us = wall_us(at_ns);
    birth->exit_status = -1;
    if (from) {
        birth->puniq = from->uniq;
        birth->opidversion = from->idversion;
        birth->ours = (from->ours || from->pid == maker) && pid != getpid();
        if (from->hide_next_child) {
            birth->hidden = from->hide_next_child;
            from->hide_next_child = 0;
        }
    }
    coalition_joined(birth->coalition);
    make_newest(birth);
    return by_pid[pid] = birth;
}

/* From macOS 13 on an exec clones the process and so gives it its *present* parent's unique id. */
void executed(pid_t pid) {
    struct birth *birth = birth_of(pid);
    struct seen seen;
    if (!birth) return;
    birth->idversion = next_idversion();
    birth->exit_status = -1; /* when a thread executes, Linux lets the first one exit */
    if (!reset_puniqueid || !read_stat(pid, &seen)) return;
    struct birth *parent = birth_of(seen.ppid == birth->parent ? seen.ppid : 1);
    if (parent) birth->puniq = parent->uniq;
}

/* As if the number had been given to another process: nothing of the old birth is left but its number. */
void renumber(struct birth *birth) {
    unlink_birth(birth);
    make_newest(birth);
    birth->uniq = ++last_uniq;
    birth->idversion = next_idversion();
    birth->start_ns = now_ns();
    birth->start_us = wall_us(birth->start_ns);
}

static uint64_t ns_of_ticks(uint64_t ticks) {
    return ticks * 1000000000u / (uint64_t)sysconf(_SC_CLK_TCK);
}

/* A pid as it is now: its birth (made here when no event told of it) and one look. NULL when XNU would know none:
 * an orphan's zombie is one, because the kernel reaps it inside its own exit. */
struct birth *look(pid_t pid, struct seen *seen) {
    if (pid <= 0 || pid >= PID_LIMIT) return NULL;
    struct birth *birth = by_pid[pid];
    if (!read_stat(pid, seen)) {
        if (birth) forget(birth);
        return NULL;
    }
    if (birth && birth->ticks && birth->ticks != seen->start_ticks) birth = NULL;
    if (!birth) birth = born(pid, seen->ppid, ns_of_ticks(seen->start_ticks));
    if (!birth) return NULL;
    birth->ticks = seen->start_ticks;
    bool orphan = seen->ppid != birth->parent || (!lineage && seen->ppid == 1);
    if (orphan && seen->state == ZOMBIE) return NULL;
    if (orphan) seen->ppid = 1;
    if (birth->held) seen->state = birth->held == HELD_BEGUN ? BEGUN : DEAD;
    if (seen->state >= DEAD && !birth->exit_ns) birth->exit_ns = now_ns();
    if (!lineage && !birth->ours) birth->ours = is_ours(birth, seen);
    return birth;
}

/* Without a connector: by the parents of now, and by the leaders of its group and session. */
bool is_ours(const struct birth *birth, const struct seen *seen) {
    if (birth->pid == getpid() || birth->pid == maker) return false;
    const pid_t kin[] = {seen->ppid, seen->pgid, seen->sid};
    for (unsigned i = 0; i < sizeof kin / sizeof *kin; i++) {
        const struct birth *near = birth_of(kin[i]);
        if (near && (near->ours || (i == 0 && near->pid == maker))) return true;
    }
    return false;
}

static void meet(pid_t pid) {
    struct seen seen;
    if (!birth_of(pid) || !lineage) look(pid, &seen);
}

void refresh_table(void) {
    if (!lineage) every_pid(meet);
}

/* /proc lists by number; after a wrap a child may come before its parent, so the second pass finds the kin. */
void table_open(void) {
    by_pid = calloc(PID_LIMIT, sizeof *by_pid);
    if (!by_pid) abort();
    bool connected = lineage;
    lineage = false;
    every_pid(meet);
    every_pid(meet);
    lineage = connected;
}
