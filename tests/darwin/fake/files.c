/* files.c: what a descriptor is of: its file system, and the other end of its socket.
 *
 * The build with INTEL has two calls for file systems, as x86-64 has: the plain name fills the old layout. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "client.h"

EXPORTED int sysctlbyname(const char *name, void *oldp, size_t *oldlenp, void *newp, size_t newlen);
EXPORTED int proc_pidinfo(int pid, int flavor, uint64_t arg, void *buffer, int buffersize);

/* Every descriptor that is open is of one file system: the one that a test has asked for. */
static int name_of(int fd, char *to, size_t size) {
    struct request q = {.op = OP_FAULT, .text = "fstatfs"};
    struct stat file;
    if (fstat(fd, &file) || ask(&q, NULL, NULL, 0, NULL)) return -1;
    return sysctlbyname("fakexnu.filesystem", to, &size, NULL, 0);
}

#ifdef INTEL
EXPORTED int fstatfs(int fd, struct old_statfs *into);
int fstatfs(int fd, struct old_statfs *into) {
    memset(into, 0, sizeof *into);
    return name_of(fd, into->f_fstypename, sizeof into->f_fstypename);
}
EXPORTED int fstatfs_inode64(int fd, struct statfs *into) __asm__("fstatfs$INODE64");
int fstatfs_inode64(int fd, struct statfs *into) {
#else
EXPORTED int fstatfs(int fd, struct statfs *into);
int fstatfs(int fd, struct statfs *into) {
#endif
    memset(into, 0, sizeof *into);
    return name_of(fd, into->f_fstypename, sizeof into->f_fstypename);
}

/* Of Linux's: who called connect(2), where Darwin has who used the other end last. 0, or errno. */
static int peer_of(int fd, struct ucred *peer) {
    socklen_t size = sizeof *peer;
    struct pollfd end = {.fd = fd};
    if (syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_PEERCRED, peer, &size)) return errno;
    if (poll(&end, 1, 0) < 0) return errno;
    return peer->pid <= 0 || end.revents & POLLHUP ? ENOTCONN : 0;
}

static int token_of(const struct ucred *peer, uint32_t token[8]) {
    struct proc_uniqidentifierinfo unique;
    if (proc_pidinfo(peer->pid, PROC_PIDUNIQIDENTIFIERINFO, 0, &unique, sizeof unique) != sizeof unique) return EINVAL;
    token[1] = token[3] = peer->uid;
    token[2] = token[4] = peer->gid;
    token[5] = (uint32_t)peer->pid;
    token[7] = (uint32_t)unique.p_idversion;
    return 0;
}

static int local_option(int fd, int option, void *value, socklen_t *length) {
    struct request q = {.op = OP_FAULT, .text = "getsockopt"};
    struct ucred peer;
    uint32_t token[8] = {0};
    int32_t pid;
    if (option != LOCAL_PEERPID && option != LOCAL_PEERTOKEN) return ENOPROTOOPT;
    int error = ask(&q, NULL, NULL, 0, NULL);
    if (!error) error = peer_of(fd, &peer);
    if (!error && option == LOCAL_PEERTOKEN) error = token_of(&peer, token);
    if (error) return error;
    pid = peer.pid;
    const void *from = option == LOCAL_PEERPID ? (const void *)&pid : token;
    socklen_t whole = option == LOCAL_PEERPID ? sizeof pid : sizeof token;
    if (*length > whole) *length = whole;
    memcpy(value, from, *length);
    return 0;
}

/* SOL_LOCAL is Linux's number of IP, which no socket of AF_UNIX knows; all else is Linux's. */
EXPORTED int getsockopt(int fd, int level, int option, void *value, socklen_t *length) {
    if (level != SOL_LOCAL) return (int)syscall(SYS_getsockopt, fd, level, option, value, length);
    int error = local_option(fd, option, value, length);
    if (error) errno = error;
    return error ? -1 : 0;
}

EXPORTED int getpeereid(int fd, uid_t *uid, gid_t *gid);
int getpeereid(int fd, uid_t *uid, gid_t *gid) {
    struct ucred peer;
    int error = peer_of(fd, &peer);
    if (error) errno = error;
    if (error) return -1;
    *uid = peer.uid;
    *gid = peer.gid;
    return 0;
}
