/* coalitions.c: the tag that every descendant keeps. Only launchd makes one; here the test does, in its place. */
#include <errno.h>

#include "server.h"

enum { MOST = 1024 };

static uint64_t started[MOST];

void coalition_joined(uint64_t id) {
    if (id < MOST) started[id]++;
}

struct count {
    uint64_t id;
    uint32_t tasks;
};

static void count_in(struct birth *birth, const struct seen *seen, void *context) {
    struct count *count = context;
    if (birth->coalition == count->id && seen->state < ZOMBIE) count->tasks++;
}

static uint32_t tasks_of(uint64_t id) {
    struct count count = {id, 0};
    each_listed(count_in, &count);
    return count.tasks;
}

/* Those that a test has made wait join only now: the look before did not count them. */
static void let_join(uint64_t id) {
    for (struct birth *birth = newest; birth; birth = birth->older) {
        if (birth->joins != id) continue;
        birth->coalition = id;
        birth->joins = 0;
        coalition_joined(id);
    }
}

static void list(uint64_t id, uint32_t type, struct reply *r) {
    uint32_t tasks = tasks_of(id);
    let_join(id);
    if (!tasks) return; /* an empty one is reaped by launchd */
    struct procinfo_coalinfo *to = (void *)(r->data + r->bytes);
    *to = (struct procinfo_coalinfo){id, type, tasks};
    r->bytes += (uint32_t)sizeof *to;
}

/* Flavour 1: all; 2: of one type (0 resource, 1 jetsam). Both types have the same members here. */
void answer_coalitions(const struct request *q, struct reply *r) {
    if (q->a[0] != 1 && q->a[0] != 2) r->error = EINVAL;
    else r->error = failure_of("listcoalitions", 0, 0);
    if (r->error) return;
    for (uint64_t id = 1; id < MOST; id++) {
        if (!started[id]) continue;
        for (uint32_t type = 0; type < 2; type++)
            if (q->a[0] == 1 || q->a[1] == type) list(id, type, r);
    }
    r->value = r->bytes;
}

void answer_coalition_usage(const struct request *q, struct reply *r) {
    uint64_t id = (uint64_t)q->a[0];
    r->error = failure_of("coalition_info", 0, 0);
    if (!r->error && (id >= MOST || !started[id])) r->error = ESRCH;
    if (r->error) return;
    struct coalition_resource_usage *usage = (void *)r->data;
    memset(usage, 0, sizeof *usage);
    uint32_t tasks = tasks_of(id); /* first: a look may find who has just started */
    usage->tasks_started = started[id];
    usage->tasks_exited = started[id] - tasks;
    r->bytes = sizeof *usage;
}
