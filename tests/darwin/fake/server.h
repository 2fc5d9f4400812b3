/* server.h: the parts of fakexnud, the kernel of one world.
 *
 *   events  forks, execs and exits as they happen (proc connector)  -> table
 *   table   births: what is fixed when a process starts             procfs  what /proc says of it now
 *   pidinfo, census, signals, machine   the answers                 faults  what a test has asked to go wrong
 *   watches who waits for an exit, fork or exec                     holds   exits that take longer (ptrace)
 */
#ifndef FAKE_SERVER_H
#define FAKE_SERVER_H

#include <stdbool.h>
#include <sys/types.h>

#include "wire.h"
#include "xnu.h"

enum state { ABSENT, LIVE, BEGUN, DEAD, ZOMBIE };

struct seen {                       /* one look at /proc */
    enum state state;
    char letter, comm[17];
    pid_t pid, ppid, pgid, sid, tpgid;
    int tty, nice, threads, exit_code;
    uid_t ruid, euid, svuid;
    gid_t rgid, egid, svgid;
    uint64_t user_ticks, system_ticks, start_ticks, vsize, resident_pages;
};

struct birth {
    struct birth *older, *newer;    /* all that are known, newest first */
    pid_t pid, parent;              /* parent: at the fork */
    uint64_t uniq, puniq, coalition;
    int32_t idversion, opidversion;
    uint64_t ticks;                 /* Linux's start time, to tell a reused number; 0 = not seen yet */
    int64_t start_us;               /* wall clock */
    uint64_t start_ns, exit_ns;     /* since boot */
    bool ours;                      /* descends from the process that made the world */
    bool traced;
    int exit_status;                /* as wait would give it; -1 = unknown */
    struct seen last;               /* of others: what a census saw, and when */
    uint64_t last_ns;
    enum { NOT_HELD, HELD_BEGUN, HELD_DEAD } held;
    /* faults */
    int hidden, hide_next_child, bumps;
    bool attach_lost;
    uid_t foreign;                  /* 0 = no */
    int64_t hold_ms;                /* 0 = none, -1 = for ever */
    bool hold_early;                /* hold as "exit begun", not yet dead */
    uint64_t joins;                 /* coalition to join after the next look */
};

struct caller {
    pid_t pid;
    uid_t uid;
};

/* procfs.c */
bool read_stat(pid_t pid, struct seen *seen);
void read_ids(pid_t pid, struct seen *seen);
void every_pid(void (*each)(pid_t));

/* table.c */
extern struct birth *newest;
extern pid_t maker;
extern int64_t clock_step_us;
extern bool reset_puniqueid, with_opidversion;
void table_open(void);
struct birth *birth_of(pid_t pid);              /* as far as events have told; NULL */
struct birth *born(pid_t pid, pid_t parent, uint64_t at_ns);
void executed(pid_t pid);
void renumber(struct birth *birth);
struct birth *look(pid_t pid, struct seen *seen); /* NULL when absent */
void refresh_table(void);                       /* without a connector: finds who is new */
int32_t next_idversion(void);
uint64_t next_coalition(void);
uint64_t now_ns(void);
bool is_ours(const struct birth *birth, const struct seen *seen);

/* events.c */
extern bool lineage;
extern long events_lost;
int events_open(void);                          /* fd, or -1: lineage is false */
long events_drain(void);                        /* how many were read */

/* pidinfo.c, census.c, coalitions.c, signals.c, machine.c: each fills the reply */
bool same_user(const struct caller *caller, const struct birth *birth, const struct seen *seen);
void answer_pidinfo(const struct caller *caller, const struct request *q, struct reply *r);
void answer_rusage(const struct caller *caller, const struct request *q, struct reply *r);
void answer_kinfo(const struct request *q, struct reply *r);
void answer_listpids(const struct request *q, struct reply *r);
void answer_listpath(const struct caller *caller, const struct request *q, struct reply *r);
void answer_coalitions(const struct request *q, struct reply *r);
void answer_coalition_usage(const struct request *q, struct reply *r);
void coalition_joined(uint64_t id);
void answer_kill(const struct caller *caller, const struct request *q, struct reply *r);
void answer_killpg(const struct caller *caller, const struct request *q, struct reply *r);
void answer_token(const struct caller *caller, const struct request *q, struct reply *r);
void answer_getsid(const struct caller *caller, const struct request *q, struct reply *r);
int end_all(void);
void answer_sysctl(const struct request *q, struct reply *r);
void answer_vm(struct reply *r);
void answer_ticks(struct reply *r);
extern int64_t page_bytes;
extern bool stale_vm;
void machine_open(void);
void new_boot_session(void);
bool override_sysctl(const char *name, const char *value);
void forget_overrides(void);

/* A walk over everything that a census at this moment would list, newest first. */
void each_listed(void (*visit)(struct birth *, const struct seen *, void *), void *context);

/* faults.c */
struct rule {
    char call[24];
    pid_t pid;
    int64_t flavour, error, amount;
    int times;                                  /* -1 = until clear */
};
struct rule *rule_for(const char *call, pid_t pid, int64_t flavour); /* spends one of its times */
int failure_of(const char *call, pid_t pid, int64_t flavour);        /* errno, or 0 */
void answer_control(const struct request *q, struct reply *r);

/* watches.c */
void watch_attach(const struct request *q, struct reply *r);
void watch_detach(const struct request *q);
void watch_forget(int queue);
void notify(const struct birth *birth, uint32_t fflags);
void watches_ready(int pidfd);

/* holds.c */
int holds_open(void);                           /* a signalfd */
int hold(struct birth *birth, int64_t ms, bool early); /* errno, or 0 */
void holds_ready(void);
void holds_tick(void);
int holds_timeout_ms(void);
void let_go(struct birth *birth);

/* main.c */
int poll_add(int fd, int kind);
enum { ON_EVENTS, ON_LISTENER, ON_CLIENT, ON_PIDFD, ON_CHILD, ON_MAKER };

#endif
