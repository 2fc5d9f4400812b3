/* native.c: what Python's standard library lacks, as plain calls that return -errno. Built into _native by cffi. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/vfs.h>
#include "wire.h"

#define PIDFS_MAGIC 0x50494446
#define HANDLE_BYTES 32

struct handle {
    struct file_handle head;
    unsigned char rest[HANDLE_BYTES];
};

/* The file handle of a pidfd's inode (Linux 6.14): reopens this very process later, whatever its number names then.
 * Writes at most 32 bytes and the handle's type; returns the number of bytes. See name_to_handle_at(2). */
static int pidfs_handle(int pidfd, unsigned char *handle, int *type) {
    struct handle found;
    int mount_id;
    memset(&found, 0, sizeof found);
    found.head.handle_bytes = HANDLE_BYTES;
    if (name_to_handle_at(pidfd, "", &found.head, &mount_id, AT_EMPTY_PATH) < 0) return -errno;
    memcpy(handle, found.head.f_handle, found.head.handle_bytes);
    *type = found.head.handle_type;
    return (int)found.head.handle_bytes;
}

/* A pidfd of the process that the handle names: -ESTALE when it is gone, or lives in no namespace that we see. */
static int pidfs_open(int any_pidfd, const unsigned char *handle, int bytes, int type) {
    struct handle wanted;
    if (bytes < 0 || bytes > HANDLE_BYTES) return -EINVAL;
    memset(&wanted, 0, sizeof wanted);
    wanted.head.handle_bytes = (unsigned)bytes;
    wanted.head.handle_type = type;
    memcpy(wanted.head.f_handle, handle, (size_t)bytes);
    int fd = open_by_handle_at(any_pidfd, &wanted.head, O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

/* A descriptor that gives the signals of `mask` (bit n-1: signal n) as struct signalfd_siginfo. The caller has blocked
 * them. Python can wait for signals only in handlers, which do not tell who sent one. See signalfd(2). */
static int signal_fd(uint64_t mask) {
    sigset_t set;
    sigemptyset(&set);
    for (int number = 1; number <= 64; number++)
        if (mask >> (number - 1) & 1) sigaddset(&set, number);
    int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return fd < 0 ? -errno : fd;
}

/* f_type of statfs(2). */
static int64_t file_system_magic(int fd) {
    struct statfs found;
    if (fstatfs(fd, &found) < 0) return -errno;
    return (int64_t)(uint64_t)(unsigned long)found.f_type & 0xffffffff;
}
