"""The Darwin ABI as the contract suite sees it: declared by hand once more, opened on the system or on the fake."""

from __future__ import annotations

from typing import Any, TypeAlias

from cffi import FFI

STRUCTS = """
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
struct proc_taskallinfo { struct proc_bsdinfo pbsd; struct proc_taskinfo ptinfo; };
struct proc_pidcoalitioninfo { uint64_t coalition_id[2], reserved1, reserved2, reserved3; };
struct procinfo_coalinfo { uint64_t coalition_id; uint32_t coalition_type, coalition_tasks; };
struct coalition_resource_usage { uint64_t tasks_started, tasks_exited, time_nonempty, cpu_time, rest[41]; };
struct rusage_info_v4 {
    uint8_t ri_uuid[16];
    uint64_t ri_user_time, ri_system_time, ri_pkg_idle_wkups, ri_interrupt_wkups, ri_pageins, ri_wired_size;
    uint64_t ri_resident_size, ri_phys_footprint, ri_proc_start_abstime, ri_proc_exit_abstime, rest[25];
};
struct audit_token { uint32_t val[8]; };
struct vm_statistics64 {
    uint32_t free_count, active_count, inactive_count, wire_count;
    uint64_t zero_fill_count, reactivations, pageins, pageouts, faults, cow_faults, lookups, hits, purges;
    uint32_t purgeable_count, speculative_count;
    uint64_t decompressions, compressions, swapins, swapouts;
    uint32_t compressor_page_count, throttled_count, external_page_count, internal_page_count;
    uint64_t total_uncompressed_pages_in_compressor;
};
struct xsw_usage { uint64_t xsu_total, xsu_avail, xsu_used; uint32_t xsu_pagesize; int32_t xsu_encrypted; };
struct statfs {
    uint32_t f_bsize;
    int32_t f_iosize;
    uint64_t f_blocks, f_bfree, f_bavail, f_files, f_ffree;
    int32_t f_fsid[2];
    uint32_t f_owner, f_type, f_flags, f_fssubtype;
    char f_fstypename[16], f_mntonname[1024], f_mntfromname[1024];
    uint32_t f_flags_ext, f_reserved[7];
};
struct mach_timebase_info { uint32_t numer, denom; };
struct timespec { long tv_sec, tv_nsec; };
struct timeval_64 { int64_t tv_sec; int64_t tv_usec; };
"""

PACKED = """
struct kevent { uint64_t ident; int16_t filter; uint16_t flags; uint32_t fflags; int64_t data; uint64_t udata; };
"""

CALLS = """
int proc_pidinfo(int pid, int flavor, uint64_t arg, void *buffer, int buffersize);
int proc_listpids(uint32_t type, uint32_t typeinfo, void *buffer, int buffersize);
int proc_listallpids(void *buffer, int buffersize);
int proc_listpgrppids(int pgrpid, void *buffer, int buffersize);
int proc_listchildpids(int ppid, void *buffer, int buffersize);
int proc_pidpath(int pid, void *buffer, uint32_t buffersize);
int proc_name(int pid, void *buffer, uint32_t buffersize);
int proc_pid_rusage(int pid, int flavor, void *buffer);
int proc_listpidspath(uint32_t type, uint32_t typeinfo, const char *path, uint32_t flags, void *buffer, int size);
int proc_listcoalitions(int flavor, int coaltype, void *buffer, int buffersize);
int proc_signal_with_audittoken(struct audit_token *token, int sig);
int coalition_info_resource_usage(uint64_t cid, struct coalition_resource_usage *usage, size_t size);
int kqueue(void);
int kevent(int kq, const struct kevent *changes, int nchanges, struct kevent *events, int nevents,
           const struct timespec *timeout);
int kill(int pid, int sig);
int killpg(int pgrp, int sig);
int getsid(int pid);
int sysctl(int *name, unsigned int namelen, void *oldp, size_t *oldlenp, void *newp, size_t newlen);
int sysctlbyname(const char *name, void *oldp, size_t *oldlenp, void *newp, size_t newlen);
int host_statistics64(uint32_t host, int flavor, int *info, uint32_t *count);
int host_processor_info(uint32_t host, int flavor, uint32_t *cpus, int **info, uint32_t *count);
uint32_t mach_host_self(void);
int mach_port_deallocate(uint32_t task, uint32_t name);
int vm_deallocate(uint32_t task, uintptr_t address, uintptr_t size);
int mach_timebase_info(struct mach_timebase_info *info);
uint64_t mach_absolute_time(void);
extern uint32_t mach_task_self_;
extern uintptr_t vm_kernel_page_size;
int fcntl(int fd, int command, ...);
int fstatfs(int fd, struct statfs *into);
int fstatfs$INODE64(int fd, struct statfs *into);
int getsockopt(int socket, int level, int option, void *value, uint32_t *length);
"""

KINFO_BYTES = 648
KINFO_START_S, KINFO_START_US, KINFO_STATUS, KINFO_PID = 0, 8, 36, 40
KINFO_PPID, KINFO_PGID = 560, 564

BSD, SHORT, UNIQUE, BOTH, PATH, COALITION, TASK, ALL_INFO = 3, 13, 17, 18, 11, 20, 4, 2
ALL_PIDS, GROUP, USER, CHILDREN = 1, 2, 4, 6
RUNNING, STOPPED, ZOMBIE = 2, 4, 5
IN_EXIT = 4
READ, PROC, TIMER, USER_EVENT = -1, -5, -7, -10
ADD, DELETE, ONESHOT, RECEIPT, ERROR, EOF = 1, 2, 0x10, 0x40, 0x4000, 0x8000
NOTE_EXIT, NOTE_FORK, NOTE_EXEC, NOTE_EXITSTATUS, NOTE_TRACK = (
    0x80000000,
    0x40000000,
    0x20000000,
    0x04000000,
    1,
)
NOTE_TRIGGER = 0x01000000
FULL, BARRIER = 51, 85
LOCAL, PEER_PID, PEER_TOKEN = 0, 2, 6

STRUCT_OF = {
    BSD: "struct proc_bsdinfo",
    SHORT: "struct proc_bsdshortinfo",
    UNIQUE: "struct proc_uniqidentifierinfo",
    BOTH: "struct proc_bsdinfowithuniqid",
    TASK: "struct proc_taskinfo",
    ALL_INFO: "struct proc_taskallinfo",
    COALITION: "struct proc_pidcoalitioninfo",
}

Struct: TypeAlias = Any
"""A C struct: cffi knows its members, mypy does not."""

ffi = FFI()
ffi.cdef(STRUCTS)
ffi.cdef(PACKED, pack=4)
ffi.cdef(CALLS)


class Darwin:
    """The calls of one library (``None``: the system's), raw but for their buffers; ``errno`` is the last call's."""

    def __init__(self, library: str | None) -> None:
        """Opens it."""
        self.path = library
        self.lib: Any = ffi.dlopen(library)

    @property
    def errno(self) -> int:
        """What the last call left; 0 when it set nothing."""
        return ffi.errno

    def pidinfo(self, pid: int, flavour: int, arg: int = 0, size: int | None = None) -> Struct:
        """The struct, or None with ``errno`` when the answer is not whole. ``size`` in bytes, default: its own."""
        answer = ffi.new(STRUCT_OF[flavour] + " *")
        whole = ffi.sizeof(STRUCT_OF[flavour])
        ffi.errno = 0
        got = self.lib.proc_pidinfo(pid, flavour, arg, answer, whole if size is None else size)
        return answer if got == whole else None

    def unique(self, pid: int, arg: int = 0) -> Struct:
        """Flavour 17; asserts that there is an answer."""
        answer = self.pidinfo(pid, UNIQUE, arg)
        assert answer is not None, f"pid {pid}: errno {self.errno}"
        return answer

    def listpids(self, kind: int, value: int = 0, room: int = 8192) -> list[int]:
        """The pids; an empty list with ``errno`` set is a failure."""
        buffer = ffi.new("int[]", room)
        ffi.errno = 0
        got = self.lib.proc_listpids(kind, value, buffer, room * 4)
        return list(buffer[0 : got // 4])

    def kinfo(self, pid: int) -> bytes | None:
        """The record of KERN_PROC_PID; None for an empty reply."""
        buffer, size = ffi.new("char[]", 2 * KINFO_BYTES), ffi.new("size_t *", 2 * KINFO_BYTES)
        name = ffi.new("int[]", [1, 14, 1, pid])
        assert self.lib.sysctl(name, 4, buffer, size, ffi.NULL, 0) == 0, self.errno
        return bytes(ffi.buffer(buffer, size[0])) if size[0] else None

    def named(self, name: str, room: int = 256) -> bytes | None:
        """The value of a sysctl; None with ``errno``."""
        buffer, size = ffi.new("char[]", room), ffi.new("size_t *", room)
        ffi.errno = 0
        if self.lib.sysctlbyname(name.encode(), buffer, size, ffi.NULL, 0):
            return None
        return bytes(ffi.buffer(buffer, size[0]))

    def signal_exactly(self, pid: int, version: int, number: int) -> int:
        """proc_signal_with_audittoken: 0 or an errno as the value."""
        token: Struct = ffi.new("struct audit_token *")
        token.val[5], token.val[7] = pid, version & 0xFFFFFFFF
        return int(self.lib.proc_signal_with_audittoken(token, number))

    def killpg(self, group: int, number: int) -> int:
        """0, or the errno."""
        ffi.errno = 0
        return 0 if self.lib.killpg(group, number) == 0 else self.errno

    def kill(self, pid: int, number: int) -> int:
        """0, or the errno."""
        ffi.errno = 0
        return 0 if self.lib.kill(pid, number) == 0 else self.errno

    def getsid(self, pid: int) -> int | None:
        """The session, or None with ``errno``."""
        ffi.errno = 0
        session = int(self.lib.getsid(pid))
        return None if session < 0 else session
