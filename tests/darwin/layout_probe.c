/* layout_probe.c: prints, as JSON, where a compiler puts the members of the structs that cross the seam. On a Mac the
 * SDK's headers are asked, elsewhere our own definitions. */
#include <stddef.h>
#include <stdio.h>

#ifdef __APPLE__
#include <libproc.h>
#include <mach/vm_statistics.h>
#include <sys/event.h>
#include <sys/mount.h>
#include <sys/proc_info.h>
#include <sys/resource.h>
#include <sys/sysctl.h>
#define START_S kp_proc.p_un.__p_starttime.tv_sec
#define START_US kp_proc.p_un.__p_starttime.tv_usec
#define KINFO(name) kp_proc.name
#define RUID kp_eproc.e_pcred.p_ruid
#define EUID kp_eproc.e_ucred.cr_uid
#define EPROC(name) kp_eproc.name
#else
#include "fake/xnu.h"
#define START_S start_s
#define START_US start_us
#define KINFO(name) name
#define RUID ruid
#define EUID euid
#define EPROC(name) name
#endif

#define STRUCT(type) printf("%s\"" #type "\": {\"size\": %zu", first++ ? "},\n" : "{", sizeof(struct type))
#define MEMBER(type, member) printf(", \"" #member "\": %zu", offsetof(struct type, member))
#define AS(type, name, member) printf(", \"" name "\": %zu", offsetof(struct type, member))

static int first;

static void processes(void) {
    STRUCT(proc_bsdinfo);
    MEMBER(proc_bsdinfo, pbi_flags), MEMBER(proc_bsdinfo, pbi_status), MEMBER(proc_bsdinfo, pbi_xstatus);
    MEMBER(proc_bsdinfo, pbi_pid), MEMBER(proc_bsdinfo, pbi_ppid), MEMBER(proc_bsdinfo, pbi_uid);
    MEMBER(proc_bsdinfo, pbi_gid), MEMBER(proc_bsdinfo, pbi_ruid), MEMBER(proc_bsdinfo, pbi_svuid);
    MEMBER(proc_bsdinfo, pbi_comm), MEMBER(proc_bsdinfo, pbi_name), MEMBER(proc_bsdinfo, pbi_nfiles);
    MEMBER(proc_bsdinfo, pbi_pgid), MEMBER(proc_bsdinfo, e_tdev), MEMBER(proc_bsdinfo, e_tpgid);
    MEMBER(proc_bsdinfo, pbi_nice), MEMBER(proc_bsdinfo, pbi_start_tvsec), MEMBER(proc_bsdinfo, pbi_start_tvusec);
    STRUCT(proc_bsdshortinfo);
    MEMBER(proc_bsdshortinfo, pbsi_pid), MEMBER(proc_bsdshortinfo, pbsi_ppid);
    MEMBER(proc_bsdshortinfo, pbsi_pgid), MEMBER(proc_bsdshortinfo, pbsi_status);
    MEMBER(proc_bsdshortinfo, pbsi_comm), MEMBER(proc_bsdshortinfo, pbsi_flags);
    MEMBER(proc_bsdshortinfo, pbsi_uid), MEMBER(proc_bsdshortinfo, pbsi_ruid), MEMBER(proc_bsdshortinfo, pbsi_svuid);
    STRUCT(proc_taskinfo);
    MEMBER(proc_taskinfo, pti_virtual_size), MEMBER(proc_taskinfo, pti_resident_size);
    MEMBER(proc_taskinfo, pti_total_user), MEMBER(proc_taskinfo, pti_total_system), MEMBER(proc_taskinfo, pti_csw);
    MEMBER(proc_taskinfo, pti_threadnum), MEMBER(proc_taskinfo, pti_numrunning);
    STRUCT(proc_taskallinfo);
    MEMBER(proc_taskallinfo, pbsd), MEMBER(proc_taskallinfo, ptinfo);
    STRUCT(rusage_info_v4);
    MEMBER(rusage_info_v4, ri_user_time), MEMBER(rusage_info_v4, ri_system_time);
    MEMBER(rusage_info_v4, ri_phys_footprint), MEMBER(rusage_info_v4, ri_proc_start_abstime);
    MEMBER(rusage_info_v4, ri_proc_exit_abstime);
}

static void kernel(void) {
    STRUCT(kinfo_proc);
    AS(kinfo_proc, "start_s", START_S), AS(kinfo_proc, "start_us", START_US);
    AS(kinfo_proc, "p_flag", KINFO(p_flag)), AS(kinfo_proc, "p_stat", KINFO(p_stat));
    AS(kinfo_proc, "p_pid", KINFO(p_pid)), AS(kinfo_proc, "p_comm", KINFO(p_comm));
    AS(kinfo_proc, "p_xstat", KINFO(p_xstat)), AS(kinfo_proc, "ruid", RUID), AS(kinfo_proc, "euid", EUID);
    AS(kinfo_proc, "e_ppid", EPROC(e_ppid)), AS(kinfo_proc, "e_pgid", EPROC(e_pgid));
    AS(kinfo_proc, "e_tpgid", EPROC(e_tpgid)), AS(kinfo_proc, "e_flag", EPROC(e_flag));
    STRUCT(kevent);
    MEMBER(kevent, ident), MEMBER(kevent, filter), MEMBER(kevent, flags), MEMBER(kevent, fflags);
    MEMBER(kevent, data), MEMBER(kevent, udata);
    STRUCT(xsw_usage);
    MEMBER(xsw_usage, xsu_total), MEMBER(xsw_usage, xsu_avail), MEMBER(xsw_usage, xsu_used);
    MEMBER(xsw_usage, xsu_pagesize), MEMBER(xsw_usage, xsu_encrypted);
    STRUCT(vm_statistics64);
    MEMBER(vm_statistics64, free_count), MEMBER(vm_statistics64, active_count);
    MEMBER(vm_statistics64, inactive_count), MEMBER(vm_statistics64, wire_count), MEMBER(vm_statistics64, pageouts);
    MEMBER(vm_statistics64, purgeable_count), MEMBER(vm_statistics64, speculative_count);
    MEMBER(vm_statistics64, swapouts), MEMBER(vm_statistics64, compressor_page_count);
    MEMBER(vm_statistics64, throttled_count), MEMBER(vm_statistics64, external_page_count);
    MEMBER(vm_statistics64, internal_page_count);
    STRUCT(statfs);
    MEMBER(statfs, f_type), MEMBER(statfs, f_fstypename), MEMBER(statfs, f_mntonname);
}

#ifndef __APPLE__
static void without_a_public_header(void) {
    STRUCT(proc_uniqidentifierinfo);
    MEMBER(proc_uniqidentifierinfo, p_uuid), MEMBER(proc_uniqidentifierinfo, p_uniqueid);
    MEMBER(proc_uniqidentifierinfo, p_puniqueid), MEMBER(proc_uniqidentifierinfo, p_idversion);
    MEMBER(proc_uniqidentifierinfo, p_orig_ppidversion);
    STRUCT(proc_bsdinfowithuniqid);
    MEMBER(proc_bsdinfowithuniqid, pbsd), MEMBER(proc_bsdinfowithuniqid, p_uniqidentifier);
    STRUCT(proc_pidcoalitioninfo);
    MEMBER(proc_pidcoalitioninfo, coalition_id);
    STRUCT(procinfo_coalinfo);
    MEMBER(procinfo_coalinfo, coalition_id), MEMBER(procinfo_coalinfo, coalition_type);
    MEMBER(procinfo_coalinfo, coalition_tasks);
}
#endif

int main(void) {
    processes();
    kernel();
#ifndef __APPLE__
    without_a_public_header();
#endif
    puts("}}");
    return 0;
}
