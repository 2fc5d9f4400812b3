/* xnu.h: the Darwin structs and numbers that cross the seam, written down by us from the published layouts (LP64).
 *
 * From source: no Mac was at hand. layout.c prints sizes and offsets, tests/darwin/test_contract_layout.py compares. */
#ifndef FAKE_XNU_H
#define FAKE_XNU_H

#include <stdint.h>

enum {
    PROC_ALL_PIDS = 1, PROC_PGRP_ONLY, PROC_TTY_ONLY, PROC_UID_ONLY, PROC_RUID_ONLY, PROC_PPID_ONLY, PROC_KDBG_ONLY
};
enum {
    PROC_PIDTASKALLINFO = 2, PROC_PIDTBSDINFO = 3, PROC_PIDTASKINFO = 4, PROC_PIDPATHINFO = 11,
    PROC_PIDT_SHORTBSDINFO = 13, PROC_PIDUNIQIDENTIFIERINFO = 17, PROC_PIDT_BSDINFOWITHUNIQID = 18,
    PROC_PIDCOALITIONINFO = 20
};
enum { SIDL = 1, SRUN, SSLEEP, SSTOP, SZOMB };
enum { PROC_FLAG_INEXIT = 4, PROC_FLAG_LP64 = 0x10, PROC_FLAG_SLEADER = 0x20, PROC_FLAG_EXEC = 0x4000 };
enum { P_LP64 = 4, P_WEXIT = 0x2000 };
enum { CTL_KERN = 1, KERN_PROC = 14, KERN_PROC_PID = 1, KERN_PROC_PGRP = 2 };
enum { PATH_LEAST = 1024, PATH_MOST = 4096 };
enum { KERN_SUCCESS = 0, KERN_INVALID_ADDRESS = 1, KERN_INVALID_ARGUMENT = 4, KERN_FAILURE = 5 };
enum { HOST_VM_INFO64 = 4, PROCESSOR_CPU_LOAD_INFO = 2 };
enum { F_FULLFSYNC = 51, F_BARRIERFSYNC = 85 };
enum { SOL_LOCAL = 0, LOCAL_PEERPID = 2 };

enum { EVFILT_READ = -1, EVFILT_PROC = -5, EVFILT_TIMER = -7, EVFILT_USER = -10, EVFILT_MEMORYSTATUS = -14 };
enum { EV_ADD = 1, EV_DELETE = 2, EV_ENABLE = 4, EV_DISABLE = 8, EV_ONESHOT = 0x10, EV_CLEAR = 0x20 };
enum { EV_RECEIPT = 0x40, EV_ERROR = 0x4000, EV_EOF = 0x8000 };
#define NOTE_EXIT 0x80000000u
#define NOTE_FORK 0x40000000u
#define NOTE_EXEC 0x20000000u
#define NOTE_EXITSTATUS 0x04000000u
#define NOTE_TRACK 1u
#define NOTE_CHILD 4u
#define NOTE_TRIGGER 0x01000000u
enum { NOTE_SECONDS = 1, NOTE_USECONDS = 2, NOTE_NSECONDS = 4 };

struct proc_bsdinfo {
    uint32_t pbi_flags, pbi_status, pbi_xstatus, pbi_pid, pbi_ppid;
    uint32_t pbi_uid, pbi_gid, pbi_ruid, pbi_rgid, pbi_svuid, pbi_svgid, rfu_1;
    char pbi_comm[16], pbi_name[32];
    uint32_t pbi_nfiles, pbi_pgid, pbi_pjobc, e_tdev, e_tpgid;
    int32_t pbi_nice;
    uint64_t pbi_start_tvsec, pbi_start_tvusec;
};

struct proc_bsdshortinfo {
    uint32_t pbsi_pid, pbsi_ppid, pbsi_pgid, pbsi_status;
    char pbsi_comm[16];
    uint32_t pbsi_flags, pbsi_uid, pbsi_gid, pbsi_ruid, pbsi_rgid, pbsi_svuid, pbsi_svgid, pbsi_rfu;
};

struct proc_uniqidentifierinfo {
    uint8_t p_uuid[16];
    uint64_t p_uniqueid, p_puniqueid;
    int32_t p_idversion, p_orig_ppidversion;
    uint64_t p_reserve2, p_reserve3;
};

struct proc_bsdinfowithuniqid {
    struct proc_bsdinfo pbsd;
    struct proc_uniqidentifierinfo p_uniqidentifier;
};

struct proc_taskinfo {
    uint64_t pti_virtual_size, pti_resident_size, pti_total_user, pti_total_system;
    uint64_t pti_threads_user, pti_threads_system;
    int32_t pti_policy, pti_faults, pti_pageins, pti_cow_faults, pti_messages_sent, pti_messages_received;
    int32_t pti_syscalls_mach, pti_syscalls_unix, pti_csw, pti_threadnum, pti_numrunning, pti_priority;
};

struct proc_taskallinfo {
    struct proc_bsdinfo pbsd;
    struct proc_taskinfo ptinfo;
};

struct proc_pidcoalitioninfo {
    uint64_t coalition_id[2], reserved1, reserved2, reserved3;
};

struct procinfo_coalinfo {
    uint64_t coalition_id;
    uint32_t coalition_type, coalition_tasks;
};

struct coalition_resource_usage { /* the part that every release has */
    uint64_t tasks_started, tasks_exited, time_nonempty, cpu_time, interrupt_wakeups, platform_idle_wakeups;
    uint64_t bytesread, byteswritten, gpu_time;
};

struct kinfo_proc { /* names of ours: the public one nests two structs and hides these in unions */
    int64_t start_s;
    int32_t start_us, unused_12;
    uint8_t unused_16[16];
    int32_t p_flag;
    uint8_t p_stat, unused_37[3];
    int32_t p_pid;
    uint8_t unused_44[199];
    char p_comm[17];
    uint8_t unused_260[20];
    uint16_t p_xstat;
    uint8_t unused_282[110];
    uint32_t ruid;
    uint8_t unused_396[24];
    uint32_t euid;
    uint8_t unused_424[136];
    int32_t e_ppid, e_pgid;
    uint8_t unused_568[8];
    int32_t e_tpgid;
    uint8_t unused_580[32];
    int32_t e_flag;
    uint8_t unused_616[32];
};

struct rusage_info_v4 {
    uint8_t ri_uuid[16];
    uint64_t ri_user_time, ri_system_time, ri_pkg_idle_wkups, ri_interrupt_wkups, ri_pageins, ri_wired_size;
    uint64_t ri_resident_size, ri_phys_footprint, ri_proc_start_abstime, ri_proc_exit_abstime;
    uint64_t unused_96[25];
};

typedef struct {
    uint32_t val[8];
} audit_token_t;

struct __attribute__((packed, aligned(4))) kevent {
    uint64_t ident;
    int16_t filter;
    uint16_t flags;
    uint32_t fflags;
    int64_t data;
    uint64_t udata;
};

struct vm_statistics64 {
    uint32_t free_count, active_count, inactive_count, wire_count;
    uint64_t zero_fill_count, reactivations, pageins, pageouts, faults, cow_faults, lookups, hits, purges;
    uint32_t purgeable_count, speculative_count;
    uint64_t decompressions, compressions, swapins, swapouts;
    uint32_t compressor_page_count, throttled_count, external_page_count, internal_page_count;
    uint64_t total_uncompressed_pages_in_compressor;
};

struct xsw_usage {
    uint64_t xsu_total, xsu_avail, xsu_used;
    uint32_t xsu_pagesize;
    int32_t xsu_encrypted;
};

struct mach_timebase_info {
    uint32_t numer, denom;
};

#endif
