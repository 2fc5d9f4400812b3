/* pidinfo.c: proc_pidinfo, proc_pid_rusage and the kinfo_proc of sysctl, with their order of refusals:
 * flavour, size, process, permission. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "server.h"

/* Root, or equal effective user ids. Somebody else's process is so whoever asks: tests may run as root. */
bool same_user(const struct caller *caller, const struct birth *birth, const struct seen *seen) {
    return !birth->foreign && (caller->uid == 0 || caller->uid == seen->euid);
}

static void ids(const struct birth *birth, struct seen *seen) {
    read_ids(seen->pid, seen);
    if (birth->foreign) seen->ruid = seen->euid = seen->svuid = birth->foreign;
}

static uint32_t status(const struct seen *seen) {
    if (seen->state == ZOMBIE) return SZOMB;
    return seen->letter == 'T' ? SSTOP : SRUN;
}

static bool exiting(const struct seen *seen) {
    return seen->state == BEGUN || seen->state == DEAD;
}

static void fill_bsd(const struct birth *birth, const struct seen *seen, struct proc_bsdinfo *to) {
    to->pbi_flags = PROC_FLAG_LP64 | PROC_FLAG_EXEC;
    if (exiting(seen)) to->pbi_flags |= PROC_FLAG_INEXIT;
    if (seen->sid == seen->pid) to->pbi_flags |= PROC_FLAG_SLEADER;
    to->pbi_status = status(seen);
    if (seen->state == ZOMBIE && birth->exit_status >= 0) to->pbi_xstatus = (uint32_t)birth->exit_status;
    to->pbi_pid = (uint32_t)seen->pid;
    to->pbi_ppid = (uint32_t)seen->ppid;
    to->pbi_uid = seen->euid;
    to->pbi_gid = seen->egid;
    to->pbi_ruid = seen->ruid;
    to->pbi_rgid = seen->rgid;
    to->pbi_svuid = seen->svuid;
    to->pbi_svgid = seen->svgid;
    memcpy(to->pbi_comm, seen->comm, sizeof to->pbi_comm - 1);
    memcpy(to->pbi_name, seen->comm, sizeof seen->comm);
    to->pbi_pgid = (uint32_t)seen->pgid;
    to->e_tdev = (uint32_t)(seen->tty ? seen->tty : -1);
    to->e_tpgid = (uint32_t)(seen->tpgid > 0 ? seen->tpgid : 0);
    to->pbi_nice = seen->nice;
    to->pbi_start_tvsec = (uint64_t)(birth->start_us / 1000000);
    to->pbi_start_tvusec = (uint64_t)(birth->start_us % 1000000);
}

static void fill_short(const struct seen *seen, struct proc_bsdshortinfo *to) {
    to->pbsi_pid = (uint32_t)seen->pid;
    to->pbsi_ppid = (uint32_t)seen->ppid;
    to->pbsi_pgid = (uint32_t)seen->pgid;
    to->pbsi_status = status(seen);
    memcpy(to->pbsi_comm, seen->comm, sizeof to->pbsi_comm - 1);
    to->pbsi_flags = PROC_FLAG_LP64 | PROC_FLAG_EXEC | (exiting(seen) ? PROC_FLAG_INEXIT : 0u);
    to->pbsi_uid = seen->euid;
    to->pbsi_gid = seen->egid;
    to->pbsi_ruid = seen->ruid;
    to->pbsi_rgid = seen->rgid;
    to->pbsi_svuid = seen->svuid;
    to->pbsi_svgid = seen->svgid;
}

/* Reading is what a test can make stale: the pidversion changes right after. */
static void fill_uniq(struct birth *birth, struct proc_uniqidentifierinfo *to) {
    to->p_uniqueid = birth->uniq;
    to->p_puniqueid = birth->puniq;
    to->p_idversion = birth->idversion;
    to->p_orig_ppidversion = with_opidversion ? birth->opidversion : 0;
    if (birth->bumps > 0) {
        birth->bumps--;
        birth->idversion = next_idversion();
    }
}

/* Nanoseconds in the unit of mach_timebase_info, which is 125/3 of one on Apple silicon, and so here. */
static uint64_t mach_ticks(uint64_t ns) {
    return ns / 125 * 3;
}

static uint64_t cpu_time(uint64_t ticks) {
    return mach_ticks(ticks * 1000000000u / (uint64_t)sysconf(_SC_CLK_TCK));
}

static void fill_task(const struct seen *seen, struct proc_taskinfo *to) {
    to->pti_virtual_size = seen->vsize;
    to->pti_resident_size = seen->resident_pages * (uint64_t)sysconf(_SC_PAGESIZE);
    to->pti_total_user = cpu_time(seen->user_ticks);
    to->pti_total_system = cpu_time(seen->system_ticks);
    to->pti_threadnum = seen->threads;
    to->pti_numrunning = seen->letter == 'R';
}

static void fill_path(pid_t pid, struct reply *r) {
    char link[48];
    snprintf(link, sizeof link, "/proc/%d/exe", pid);
    ssize_t got = readlink(link, (char *)r->data, PATH_MOST - 1);
    if (got < 0) {
        r->error = ESRCH; /* nothing executable is mapped: a kernel thread, or gone meanwhile */
        return;
    }
    r->data[got] = 0;
    if (got > 10 && !strcmp((char *)r->data + got - 10, " (deleted)")) r->error = ENOENT;
    r->bytes = (uint32_t)got + 1;
}

static size_t size_of(int64_t flavour) {
    switch (flavour) {
    case PROC_PIDTASKALLINFO: return sizeof(struct proc_taskallinfo);
    case PROC_PIDTBSDINFO: return sizeof(struct proc_bsdinfo);
    case PROC_PIDTASKINFO: return sizeof(struct proc_taskinfo);
    case PROC_PIDPATHINFO: return PATH_LEAST;
    case PROC_PIDT_SHORTBSDINFO: return sizeof(struct proc_bsdshortinfo);
    case PROC_PIDUNIQIDENTIFIERINFO: return sizeof(struct proc_uniqidentifierinfo);
    case PROC_PIDT_BSDINFOWITHUNIQID: return sizeof(struct proc_bsdinfowithuniqid);
    case PROC_PIDCOALITIONINFO: return sizeof(struct proc_pidcoalitioninfo);
    default: return 0;
    }
}

static bool knows_zombies(int64_t flavour) {
    return flavour == PROC_PIDTBSDINFO || flavour == PROC_PIDT_SHORTBSDINFO ||
           flavour == PROC_PIDUNIQIDENTIFIERINFO || flavour == PROC_PIDT_BSDINFOWITHUNIQID;
}

static bool asks_for_no_privilege(int64_t flavour) {
    return flavour == PROC_PIDT_SHORTBSDINFO || flavour == PROC_PIDUNIQIDENTIFIERINFO ||
           flavour == PROC_PIDPATHINFO || flavour == PROC_PIDCOALITIONINFO;
}

static void fill(struct birth *birth, const struct seen *seen, int64_t flavour, struct reply *r) {
    struct proc_taskallinfo *all = (void *)r->data;
    struct proc_bsdinfowithuniqid *both = (void *)r->data;
    struct proc_pidcoalitioninfo *coalition = (void *)r->data;
    switch (flavour) {
    case PROC_PIDTASKALLINFO:
        fill_bsd(birth, seen, &all->pbsd);
        fill_task(seen, &all->ptinfo);
        return;
    case PROC_PIDTBSDINFO: fill_bsd(birth, seen, (void *)r->data); return;
    case PROC_PIDTASKINFO: fill_task(seen, (void *)r->data); return;
    case PROC_PIDPATHINFO: fill_path(seen->pid, r); return;
    case PROC_PIDT_SHORTBSDINFO: fill_short(seen, (void *)r->data); return;
    case PROC_PIDUNIQIDENTIFIERINFO: fill_uniq(birth, (void *)r->data); return;
    case PROC_PIDT_BSDINFOWITHUNIQID:
        fill_bsd(birth, seen, &both->pbsd);
        fill_uniq(birth, &both->p_uniqidentifier);
        return;
    case PROC_PIDCOALITIONINFO: coalition->coalition_id[0] = coalition->coalition_id[1] = birth->coalition; return;
    }
}

void answer_pidinfo(const struct caller *caller, const struct request *q, struct reply *r) {
    pid_t pid = (pid_t)q->a[0];
    int64_t flavour = q->a[1], size = q->a[3];
    size_t whole = size_of(flavour);
    if (!whole) r->error = EINVAL;
    else if (size < (int64_t)whole) r->error = ENOMEM;
    else if (flavour == PROC_PIDPATHINFO && size > PATH_MOST) r->error = EOVERFLOW;
    else r->error = failure_of("pidinfo", pid, flavour);
    if (r->error) return;
    struct seen seen;
    struct birth *birth = look(pid, &seen);
    bool found = birth && (seen.state < DEAD || (q->a[2] && knows_zombies(flavour)));
    if (!found) {
        r->error = ESRCH;
        return;
    }
    ids(birth, &seen);
    if (!asks_for_no_privilege(flavour) && !same_user(caller, birth, &seen)) {
        r->error = EPERM;
        return;
    }
    memset(r->data, 0, whole);
    r->bytes = (uint32_t)whole;
    fill(birth, &seen, flavour, r);
    struct rule *cut = rule_for("short", pid, flavour);
    if (cut && cut->amount < (int64_t)r->bytes) r->bytes = (uint32_t)cut->amount;
    r->value = r->bytes;
}

/* Zombies too. Flavour 4 only: it is the one that tells the start by a clock that no step moves. */
void answer_rusage(const struct caller *caller, const struct request *q, struct reply *r) {
    struct seen seen;
    pid_t pid = (pid_t)q->a[0];
    if (q->a[1] != 4) r->error = EINVAL;
    else r->error = failure_of("rusage", pid, 0);
    if (r->error) return;
    struct birth *birth = look(pid, &seen);
    if (!birth) {
        r->error = ESRCH;
        return;
    }
    ids(birth, &seen);
    if (!same_user(caller, birth, &seen)) {
        r->error = EPERM;
        return;
    }
    struct rusage_info_v4 *usage = (void *)r->data;
    memset(usage, 0, sizeof *usage);
    usage->ri_user_time = cpu_time(seen.user_ticks);
    usage->ri_system_time = cpu_time(seen.system_ticks);
    usage->ri_resident_size = usage->ri_phys_footprint =
        seen.resident_pages * (uint64_t)sysconf(_SC_PAGESIZE);
    usage->ri_proc_start_abstime = mach_ticks(birth->start_ns);
    usage->ri_proc_exit_abstime = mach_ticks(birth->exit_ns);
    r->bytes = sizeof *usage;
}

static void append_kinfo(struct birth *birth, const struct seen *found, void *context) {
    struct reply *r = context;
    struct seen seen = *found;
    if (r->bytes + sizeof(struct kinfo_proc) > DATA_MOST) return;
    ids(birth, &seen);
    struct kinfo_proc *to = (void *)(r->data + r->bytes);
    memset(to, 0, sizeof *to);
    to->start_s = birth->start_us / 1000000;
    to->start_us = (int32_t)(birth->start_us % 1000000);
    to->p_flag = P_LP64 | (exiting(&seen) ? P_WEXIT : 0);
    to->p_stat = (uint8_t)status(&seen);
    to->p_pid = seen.pid;
    memcpy(to->p_comm, seen.comm, sizeof to->p_comm - 1);
    if (seen.state == ZOMBIE && birth->exit_status >= 0) to->p_xstat = (uint16_t)birth->exit_status;
    to->ruid = seen.ruid;
    to->euid = seen.euid;
    to->e_ppid = seen.ppid;
    to->e_pgid = seen.pgid;
    to->e_tpgid = seen.tpgid > 0 ? seen.tpgid : 0;
    r->bytes += (uint32_t)sizeof *to;
}

struct in_group {
    pid_t pgid;
    struct reply *r;
};

static void append_member(struct birth *birth, const struct seen *seen, void *context) {
    struct in_group *group = context;
    if (seen->pgid == group->pgid) append_kinfo(birth, seen, group->r);
}

/* {1,14,1,pid} and {1,14,2,pgid}: no check of users, zombies too, nothing found is an empty answer. */
void answer_kinfo(const struct request *q, struct reply *r) {
    struct seen seen;
    r->error = failure_of("sysctl", q->a[0] == KERN_PROC_PID ? (pid_t)q->a[1] : 0, 0);
    if (r->error) return;
    if (q->a[0] == KERN_PROC_PID) {
        struct birth *birth = look((pid_t)q->a[1], &seen);
        if (birth) append_kinfo(birth, &seen, r);
    } else if (q->a[0] == KERN_PROC_PGRP) {
        struct in_group group = {(pid_t)q->a[1], r};
        each_listed(append_member, &group);
    } else {
        r->error = EINVAL;
    }
}
