/* events.c: forks, execs and exits, told by Linux's process connector before the child runs and before the exit is
 * waitable. Needs the first network and PID namespaces and, before Linux 6.6, root; without it only lineage is unknown. */
#include <errno.h>
#include <linux/cn_proc.h>
#include <linux/connector.h>
#include <linux/netlink.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server.h"

bool lineage;
long events_lost;

static int connector = -1;

static int listen_to_all(int fd) {
    struct {
        struct nlmsghdr header;
        struct cn_msg message;
        enum proc_cn_mcast_op op;
    } __attribute__((packed)) ask = {0};
    ask.header.nlmsg_len = sizeof ask;
    ask.header.nlmsg_type = NLMSG_DONE;
    ask.header.nlmsg_pid = (uint32_t)getpid();
    ask.message.id.idx = CN_IDX_PROC;
    ask.message.id.val = CN_VAL_PROC;
    ask.message.len = sizeof ask.op;
    ask.op = PROC_CN_MCAST_LISTEN;
    return send(fd, &ask, sizeof ask, 0) == (ssize_t)sizeof ask ? 0 : -1;
}

/* The kernel answers with an event of no kind; no answer means that nobody is there. */
static bool answered(int fd) {
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    return poll(&ready, 1, 500) == 1;
}

/* In another PID namespace the events have the first one's numbers, which mean others here. */
static bool numbers_are_ours(void) {
    enum { FIRST = 0xEFFFFFFC }; /* PROC_PID_INIT_INO, include/linux/proc_ns.h */
    struct stat own;
    return stat("/proc/self/ns/pid", &own) == 0 && own.st_ino == (ino_t)(unsigned)FIRST;
}

int events_open(void) {
    if (!numbers_are_ours()) return -1;
    int fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_CONNECTOR);
    if (fd < 0) return -1;
    int bytes = 64 << 20;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes);
    struct sockaddr_nl address = {.nl_family = AF_NETLINK, .nl_groups = CN_IDX_PROC};
    if (bind(fd, (struct sockaddr *)&address, sizeof address) || listen_to_all(fd) || !answered(fd)) {
        close(fd);
        return -1;
    }
    lineage = true;
    return connector = fd;
}

static void heard(const struct proc_event *event) {
    struct birth *birth;
    switch ((unsigned)event->what) {
    case PROC_EVENT_FORK:
        if (event->event_data.fork.child_pid != event->event_data.fork.child_tgid) return; /* a thread */
        birth = birth_of(event->event_data.fork.parent_tgid);
        born(event->event_data.fork.child_pid, event->event_data.fork.parent_tgid, event->timestamp_ns);
        if (birth) notify(birth, NOTE_FORK);
        return;
    case PROC_EVENT_EXEC:
        executed(event->event_data.exec.process_tgid);
        birth = birth_of(event->event_data.exec.process_tgid);
        if (birth) notify(birth, NOTE_EXEC);
        return;
    case PROC_EVENT_EXIT:
        if (event->event_data.exit.process_pid != event->event_data.exit.process_tgid) return;
        birth = birth_of(event->event_data.exit.process_tgid);
        if (birth) birth->exit_status = (int)event->event_data.exit.exit_code;
        return;
    default:
        return;
    }
}

long events_drain(void) {
    char packet[8192] __attribute__((aligned(NLMSG_ALIGNTO)));
    if (connector < 0) return 0;
    for (long count = 0;;) {
        ssize_t got = recv(connector, packet, sizeof packet, MSG_DONTWAIT);
        if (got < 0 && errno == ENOBUFS) events_lost++;
        else if (got < 0 && errno != EINTR) return count;
        if (got <= 0) continue;
        /* One message a packet: that is how the connector sends them. */
        const struct nlmsghdr *header = (const void *)packet;
        const struct cn_msg *message = NLMSG_DATA(header);
        if (!NLMSG_OK(header, (size_t)got) || message->id.idx != CN_IDX_PROC) continue;
        heard((const void *)message->data);
        count++;
    }
}
