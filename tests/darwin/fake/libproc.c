/* libproc.c: the wrappers turn the kernel's -1 into 0 with errno; those that count divide bytes by four. */
#include <errno.h>
#include <sys/types.h>

#include "client.h"

EXPORTED int proc_pidinfo(int pid, int flavor, uint64_t arg, void *buffer, int buffersize);
EXPORTED int proc_listpids(uint32_t type, uint32_t typeinfo, void *buffer, int buffersize);
EXPORTED int proc_listallpids(void *buffer, int buffersize);
EXPORTED int proc_listpgrppids(pid_t pgrpid, void *buffer, int buffersize);
EXPORTED int proc_listchildpids(pid_t ppid, void *buffer, int buffersize);
EXPORTED int proc_pidpath(int pid, void *buffer, uint32_t buffersize);
EXPORTED int proc_name(int pid, void *buffer, uint32_t buffersize);
EXPORTED int proc_pid_rusage(int pid, int flavor, void *buffer);
EXPORTED int proc_listpidspath(uint32_t type, uint32_t typeinfo, const char *path, uint32_t pathflags, void *buffer,
                               int buffersize);
EXPORTED int proc_listcoalitions(int flavor, int coaltype, void *buffer, int buffersize);
EXPORTED int coalition_info_resource_usage(uint64_t cid, struct coalition_resource_usage *usage, size_t size);
EXPORTED int proc_signal_with_audittoken(audit_token_t *token, int sig);

static size_t room(int size) {
    return size > 0 ? (size_t)size : 0;
}

int proc_pidinfo(int pid, int flavor, uint64_t arg, void *buffer, int buffersize) {
    int64_t value;
    struct request q = {.op = OP_PIDINFO, .a = {pid, flavor, (int64_t)arg, buffersize}};
    return ask(&q, &value, buffer, room(buffersize), NULL) ? 0 : (int)value;
}

int proc_listpids(uint32_t type, uint32_t typeinfo, void *buffer, int buffersize) {
    int64_t value;
    struct request q = {.op = OP_LISTPIDS, .a = {type, typeinfo, buffer ? (int64_t)room(buffersize) : -1}};
    return ask(&q, &value, buffer, room(buffersize), NULL) ? 0 : (int)value;
}

int proc_listallpids(void *buffer, int buffersize) {
    return proc_listpids(PROC_ALL_PIDS, 0, buffer, buffersize) / 4;
}

int proc_listpgrppids(pid_t pgrpid, void *buffer, int buffersize) {
    return proc_listpids(PROC_PGRP_ONLY, (uint32_t)pgrpid, buffer, buffersize) / 4;
}

int proc_listchildpids(pid_t ppid, void *buffer, int buffersize) {
    return proc_listpids(PROC_PPID_ONLY, (uint32_t)ppid, buffer, buffersize) / 4;
}

int proc_pidpath(int pid, void *buffer, uint32_t buffersize) {
    char path[PATH_MOST] = {0};
    if (buffersize < PATH_LEAST || buffersize > PATH_MOST) {
        errno = buffersize < PATH_LEAST ? ENOMEM : EOVERFLOW;
        return 0;
    }
    struct request q = {.op = OP_PIDINFO, .a = {pid, PROC_PIDPATHINFO, 0, buffersize}};
    if (ask(&q, NULL, path, sizeof path - 1, NULL)) return 0;
    return snprintf(buffer, buffersize, "%s", path);
}

int proc_name(int pid, void *buffer, uint32_t buffersize) {
    struct proc_bsdinfo info;
    if (buffersize < sizeof info.pbi_name) {
        errno = ENOMEM;
        return 0;
    }
    if (proc_pidinfo(pid, PROC_PIDTBSDINFO, 0, &info, sizeof info) < (int)sizeof info) return 0;
    return snprintf(buffer, buffersize, "%s", info.pbi_name);
}

int proc_pid_rusage(int pid, int flavor, void *buffer) {
    struct request q = {.op = OP_RUSAGE, .a = {pid, flavor}};
    return ask(&q, NULL, buffer, sizeof(struct rusage_info_v4), NULL) ? -1 : 0;
}

int proc_listpidspath(uint32_t type, uint32_t typeinfo, const char *path, uint32_t pathflags, void *buffer,
                      int buffersize) {
    int64_t value;
    struct request q = {.op = OP_LISTPATH, .a = {type, typeinfo, buffersize, pathflags}};
    if (strlen(path) >= sizeof q.text) {
        errno = ENAMETOOLONG;
        return -1;
    }
    snprintf(q.text, sizeof q.text, "%s", path);
    return ask(&q, &value, buffer, room(buffersize), NULL) ? -1 : (int)value;
}

int proc_listcoalitions(int flavor, int coaltype, void *buffer, int buffersize) {
    size_t bytes;
    struct request q = {.op = OP_COALITIONS, .a = {flavor, coaltype}};
    if (ask(&q, NULL, buffer, room(buffersize), &bytes)) return -1;
    return (int)(buffer && bytes > room(buffersize) ? room(buffersize) : bytes);
}

int coalition_info_resource_usage(uint64_t cid, struct coalition_resource_usage *usage, size_t size) {
    struct request q = {.op = OP_COALITION_USAGE, .a = {(int64_t)cid}};
    return ask(&q, NULL, usage, size, NULL) ? -1 : 0;
}

#ifndef BEFORE_14_2
int proc_signal_with_audittoken(audit_token_t *token, int sig) {
    struct request q = {.op = OP_TOKEN, .a = {token->val[5], (int32_t)token->val[7], sig}};
    return ask(&q, NULL, NULL, 0, NULL);
}
#endif
