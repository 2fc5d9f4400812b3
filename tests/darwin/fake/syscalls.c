/* syscalls.c: calls that both systems have and that mean something else on Darwin. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "client.h"

EXPORTED int kill(pid_t pid, int sig);
EXPORTED int killpg(pid_t pgrp, int sig);
EXPORTED int fcntl(int fd, int command, ...);
EXPORTED int sysctl(int *name, unsigned int namelen, void *oldp, size_t *oldlenp, void *newp, size_t newlen);
EXPORTED int sysctlbyname(const char *name, void *oldp, size_t *oldlenp, void *newp, size_t newlen);

/* An anchor ends its own group with kill(0): it must be able to when the world is gone as well. */
int kill(pid_t pid, int sig) {
    struct request q = {.op = OP_KILL, .a = {pid, sig}};
    int error = ask(&q, NULL, NULL, 0, NULL);
    if (error == ENOTCONN && pid == 0) return (int)syscall(SYS_kill, 0, sig);
    return error ? -1 : 0;
}

int killpg(pid_t pgrp, int sig) {
    struct request q = {.op = OP_KILLPG, .a = {pgrp, sig}};
    return ask(&q, NULL, NULL, 0, NULL) ? -1 : 0;
}

EXPORTED pid_t getsid(pid_t pid) {
    int64_t value;
    struct request q = {.op = OP_GETSID, .a = {pid}};
    return ask(&q, &value, NULL, 0, NULL) ? -1 : (pid_t)value;
}

static int failure_of(const char *call) {
    struct request q = {.op = OP_FAULT};
    snprintf(q.text, sizeof q.text, "%s", call);
    int error = ask(&q, NULL, NULL, 0, NULL);
    return error == ENOTCONN ? 0 : error; /* a file may still be synced when the world is gone */
}

/* The two syncs that Linux has not; all else is Linux's. */
int fcntl(int fd, int command, ...) {
    va_list rest;
    va_start(rest, command);
    long argument = va_arg(rest, long);
    va_end(rest);
    if (command != F_FULLFSYNC && command != F_BARRIERFSYNC) return (int)syscall(SYS_fcntl, fd, command, argument);
    int error = failure_of(command == F_FULLFSYNC ? "fcntl51" : "fcntl85");
    if (error) {
        errno = error;
        return -1;
    }
    return fsync(fd);
}

/* Who is at the other end of a Unix socket, as Linux tells it. */
static int peer_of(int fd, struct ucred *peer) {
    socklen_t size = sizeof *peer;
    return (int)syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_PEERCRED, peer, &size);
}

EXPORTED int getpeereid(int fd, uid_t *uid, gid_t *gid);
int getpeereid(int fd, uid_t *uid, gid_t *gid) {
    struct ucred peer;
    if (peer_of(fd, &peer)) return -1;
    *uid = peer.uid;
    *gid = peer.gid;
    return 0;
}

EXPORTED int getsockopt(int fd, int level, int name, void *value, socklen_t *length);
int getsockopt(int fd, int level, int name, void *value, socklen_t *length) {
    struct ucred peer;
    if (level != SOL_LOCAL || name != LOCAL_PEERPID) return (int)syscall(SYS_getsockopt, fd, level, name, value, length);
    if (*length < sizeof peer.pid) {
        errno = EINVAL;
        return -1;
    }
    if (peer_of(fd, &peer)) return -1;
    *(pid_t *)value = peer.pid;
    *length = sizeof peer.pid;
    return 0;
}

/* With a buffer too small the part that fits is given, and ENOMEM; without one only the length is. */
static int hand_over(const struct request *q, void *oldp, size_t *oldlenp) {
    size_t bytes = 0, size = oldp && oldlenp ? *oldlenp : 0;
    if (ask(q, NULL, oldp, size, &bytes)) return -1;
    if (!oldlenp) return 0;
    *oldlenp = oldp && bytes > size ? size : bytes;
    if (!oldp || bytes <= size) return 0;
    errno = ENOMEM;
    return -1;
}

int sysctl(int *name, unsigned int namelen, void *oldp, size_t *oldlenp, void *newp, size_t newlen) {
    (void)newlen;
    if (newp) {
        errno = EPERM;
        return -1;
    }
    if (namelen != 4 || name[0] != CTL_KERN || name[1] != KERN_PROC) {
        errno = ENOENT;
        return -1;
    }
    struct request q = {.op = OP_KINFO, .a = {name[2], name[3]}};
    return hand_over(&q, oldp, oldlenp);
}

int sysctlbyname(const char *name, void *oldp, size_t *oldlenp, void *newp, size_t newlen) {
    (void)newlen;
    struct request q = {.op = OP_SYSCTL};
    if (newp || strlen(name) >= sizeof q.text) {
        errno = newp ? EPERM : ENOENT;
        return -1;
    }
    snprintf(q.text, sizeof q.text, "%s", name);
    return hand_over(&q, oldp, oldlenp);
}
