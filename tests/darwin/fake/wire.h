/* wire.h: what the library and the server of one world say to each other; one packet a question, one an answer. */
#ifndef FAKE_WIRE_H
#define FAKE_WIRE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

enum op {
    OP_PIDINFO = 1,     /* pid, flavour, arg, size -> bytes */
    OP_LISTPIDS,        /* type, value, size (-1: no buffer) -> pids */
    OP_LISTPATH,        /* text, size -> pids */
    OP_RUSAGE,          /* pid, flavour -> rusage_info_v4 */
    OP_COALITIONS,      /* flavour, type -> procinfo_coalinfo[] */
    OP_COALITION_USAGE, /* id -> coalition_resource_usage */
    OP_KILL,            /* pid, signal */
    OP_KILLPG,          /* pgid, signal */
    OP_TOKEN,           /* pid, pidversion, signal */
    OP_GETSID,          /* pid -> value */
    OP_KINFO,           /* what, value -> kinfo_proc[] */
    OP_SYSCTL,          /* text -> bytes */
    OP_VM,              /* -> vm_statistics64 */
    OP_TICKS,           /* -> 4 x u32 a processor */
    OP_PAGE_SIZE,       /* -> value */
    OP_SUBSCRIBE,       /* -> value: this connection is the queue of that number from now on */
    OP_ATTACH,          /* queue, pid, fflags */
    OP_DETACH,          /* queue, pid */
    OP_FAULT,           /* text: has this call to fail? */
    OP_CONTROL          /* text -> value */
};

enum { TEXT_MOST = 512, DATA_MOST = 160 * 1024 };

struct request {
    uint32_t op;
    int64_t a[4];
    char text[TEXT_MOST];
};

struct reply {
    int64_t value;
    int32_t error;      /* errno; 0 = it worked */
    uint32_t bytes;     /* of data */
    uint8_t data[DATA_MOST];
};

struct note {           /* pushed to a queue */
    int32_t pid;
    uint32_t fflags;
    int64_t data;
};


/* The address of the world whose library is this file: an abstract name, so that no path is too long for it. */
static inline socklen_t address_of(const struct stat *library, struct sockaddr_un *address) {
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    int written = snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "fakexnu-%llx-%llx",
                           (unsigned long long)library->st_dev, (unsigned long long)library->st_ino);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)written);
}

#endif
