"""Darwin's calls and structures as XNU's headers have them; the only place of its numbers.

``SIZES`` and ``OFFSETS`` are the golden table: what the declarations below must come to on every LP64 machine.
"""

from __future__ import annotations

DECLARATIONS = """
struct proc_bsdinfo {
    uint32_t flags, status, xstatus, pid, ppid;
    uint32_t uid, gid, ruid, rgid, svuid, svgid, rfu;
    char comm[16];
    char name[32];
    uint32_t nfiles, pgid, pjobc, e_tdev, e_tpgid;
    int32_t nice;
    uint64_t start_tvsec, start_tvusec;
};
struct proc_bsdshortinfo {
    uint32_t pid, ppid, pgid, status;
    char comm[16];
    uint32_t flags, uid, gid, ruid, rgid, svuid, svgid, rfu;
};
struct proc_uniqidentifierinfo {
    uint8_t uuid[16];
    uint64_t uniqueid, puniqueid;
    int32_t idversion, orig_ppidversion;
    uint64_t reserve2, reserve3;
};
struct proc_bsdinfowithuniqid {
    struct proc_bsdinfo bsd;
    struct proc_uniqidentifierinfo unique;
};
struct proc_pidcoalitioninfo { uint64_t coalition_id[2], reserved1, reserved2, reserved3; };
struct procinfo_coalinfo { uint64_t coalition_id; uint32_t coalition_type, coalition_tasks; };
typedef struct { uint32_t val[8]; } audit_token_t;
struct kevent {
    uintptr_t ident;
    int16_t filter;
    uint16_t flags;
    uint32_t fflags;
    intptr_t data;
    void *udata;
};
struct darwin_timespec { int64_t sec, nsec; };
struct xsw_usage { uint64_t total, avail, used; uint32_t pagesize, encrypted; };
struct statfs {
    uint32_t bsize;
    int32_t iosize;
    uint64_t blocks, bfree, bavail, files, ffree;
    int32_t fsid[2];
    uint32_t owner, type, flags, fssubtype;
    char fstypename[16], mntonname[1024], mntfromname[1024];
    uint32_t flags_ext, reserved[7];
};
struct vm_statistics64 {
    uint32_t free, active, inactive, wire;
    uint64_t zero_fill, reactivations, pageins, pageouts, faults, cow_faults, lookups, hits, purges;
    uint32_t purgeable, speculative;
    uint64_t decompressions, compressions, swapins, swapouts;
    uint32_t compressor, throttled, external, internal;
    uint64_t uncompressed_in_compressor;
};

int proc_listpids(uint32_t type, uint32_t typeinfo, void *buffer, int buffersize);
int proc_listpidspath(uint32_t type, uint32_t typeinfo, const char *path, uint32_t pathflags, void *buffer,
    int buffersize);
int proc_listcoalitions(int flavor, int type, void *buffer, int buffersize);
int proc_pidinfo(int pid, int flavor, uint64_t arg, void *buffer, int buffersize);
int proc_signal_with_audittoken(audit_token_t *token, int sig);
int sysctl(int *name, unsigned int namelen, void *oldp, size_t *oldlenp, void *newp, size_t newlen);
int sysctlbyname(const char *name, void *oldp, size_t *oldlenp, void *newp, size_t newlen);
int kqueue(void);
int kevent(int kq, const struct kevent *changes, int nchanges, struct kevent *events, int nevents,
    const struct darwin_timespec *timeout);
int kill(int pid, int sig);
int killpg(int pgrp, int sig);
int getsid(int pid);
int fstatfs(int fd, struct statfs *into);
int fstatfs$INODE64(int fd, struct statfs *into);
int getsockopt(int socket, int level, int option, void *value, uint32_t *length);
int getpeereid(int fd, uint32_t *uid, uint32_t *gid);
unsigned int mach_host_self(void);
int host_statistics64(unsigned int host, int flavor, void *info, unsigned int *count);
int host_processor_info(unsigned int host, int flavor, unsigned int *cpus, uint32_t **info, unsigned int *count);
int vm_deallocate(unsigned int task, uintptr_t address, uintptr_t size);
extern unsigned int mach_task_self_;
extern uintptr_t vm_kernel_page_size;
"""

SIZES = {
    "struct proc_bsdinfo": 136,
    "struct proc_bsdshortinfo": 64,
    "struct proc_uniqidentifierinfo": 56,
    "struct proc_bsdinfowithuniqid": 192,
    "struct proc_pidcoalitioninfo": 40,
    "struct procinfo_coalinfo": 16,
    "audit_token_t": 32,
    "struct kevent": 32,
    "struct xsw_usage": 32,
    "struct statfs": 2168,
    "struct vm_statistics64": 152,
}
OFFSETS = {
    "struct proc_bsdinfo": {"status": 4, "pid": 12, "uid": 20, "comm": 48, "pgid": 100, "start_tvsec": 120},
    "struct proc_bsdshortinfo": {"pgid": 8, "status": 12, "comm": 16, "flags": 32, "uid": 36},
    "struct proc_uniqidentifierinfo": {
        "uniqueid": 16,
        "puniqueid": 24,
        "idversion": 32,
        "orig_ppidversion": 36,
    },
    "struct proc_bsdinfowithuniqid": {"unique": 136},
    "struct procinfo_coalinfo": {"coalition_type": 8, "coalition_tasks": 12},
    "struct kevent": {"filter": 8, "flags": 10, "fflags": 12, "data": 16, "udata": 24},
    "struct xsw_usage": {"used": 16, "pagesize": 24},
    "struct statfs": {"type": 60, "fstypename": 72, "mntonname": 88},
    "struct vm_statistics64": {
        "wire": 12,
        "pageouts": 40,
        "purgeable": 88,
        "speculative": 92,
        "swapouts": 120,
        "compressor": 128,
        "external": 136,
        "internal": 140,
    },
}

# proc_listpids(3): which processes.
ALL_PIDS, PGRP_ONLY, PPID_ONLY = 1, 2, 6

# proc_pidinfo(3): flavours. These and the lists need no privilege; 3 asks for the same uid.
SHORT_INFO, UNIQUE_INFO, COALITION_INFO = 13, 17, 20

# proc_listcoalitions: those of one type, and which type; each process is in one of either.
ONE_TYPE, RESOURCE = 2, 0


# p_stat, and a flag of the short and the full information.
RUNNING_STATUS, ZOMBIE_STATUS = 2, 5
IN_EXIT = 4

# sysctl {CTL_KERN, KERN_PROC, KERN_PROC_PID, pid}: struct kinfo_proc, of which a few fields are read.
PROCESS_RECORD = (1, 14, 1)
RECORD_BYTES = 648
START_S_AT, START_US_AT, STATUS_AT, PID_AT, UID_AT = 0, 8, 36, 40, 420

# What fills struct statfs. On x86-64 the plain name is an older call of another layout, and programs are linked with
# the one with a suffix (fstatfs64 is its other name); arm64 has the plain one alone.
FSTATFS_OF_INTEL, FSTATFS = "fstatfs$INODE64", "fstatfs"

# getsockopt(2) of an AF_UNIX socket, unix(4): the pid of who used the other end last.
SOL_LOCAL, LOCAL_PEERPID = 0, 2

# kqueue(2).
READ_FILTER, PROC_FILTER = -1, -5
EV_ADD, EV_RECEIPT, EV_ERROR, EV_EOF, EV_CLEAR = 0x1, 0x40, 0x4000, 0x8000, 0x20
NOTE_EXIT, NOTE_FORK = 0x80000000, 0x40000000

# host_statistics64 and host_processor_info.
VM_INFO, VM_INFO_COUNT, CPU_LOAD_INFO, CPU_STATES = 4, 38, 2, 4

# audit_token_t: which word is the pid, and which its version.
TOKEN_PID, TOKEN_VERSION = 5, 7
