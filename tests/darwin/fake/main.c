/* main.c: fakexnud, the kernel of one world. `fakexnud LIBRARY...` answers whoever has opened one of these files.
 *
 * It prints "ready" and lives until its standard input ends, which is its maker's lifeline to it. Everything is one
 * thread: before each answer all events are taken in, so no answer is older than what the asker has already done. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "server.h"

static int poller;
static struct reply reply;

int poll_add(int fd, int kind) {
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = (uint64_t)kind << 32 | (uint32_t)fd};
    return epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event);
}

static int listen_for(const char *library) {
    struct stat file;
    struct sockaddr_un address;
    if (stat(library, &file)) return -1;
    socklen_t size = address_of(&file, &address);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (bind(fd, (struct sockaddr *)&address, size) || listen(fd, 128)) return -1;
    return poll_add(fd, ON_LISTENER);
}

static void admit(int listener) {
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    int bytes = 2 * DATA_MOST;
    if (fd < 0) return;
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    poll_add(fd, ON_CLIENT);
}

static struct caller who_is(int fd) {
    struct ucred peer = {0};
    socklen_t size = sizeof peer;
    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size);
    return (struct caller){peer.pid, peer.uid};
}

static void answer(int fd, const struct request *q, struct reply *r) {
    struct caller caller = who_is(fd);
    switch ((enum op)q->op) {
    case OP_PIDINFO: answer_pidinfo(&caller, q, r); return;
    case OP_LISTPIDS: answer_listpids(q, r); return;
    case OP_LISTPATH: answer_listpath(&caller, q, r); return;
    case OP_RUSAGE: answer_rusage(&caller, q, r); return;
    case OP_COALITIONS: answer_coalitions(q, r); return;
    case OP_COALITION_USAGE: answer_coalition_usage(q, r); return;
    case OP_KILL: answer_kill(&caller, q, r); return;
    case OP_KILLPG: answer_killpg(&caller, q, r); return;
    case OP_TOKEN: answer_token(&caller, q, r); return;
    case OP_GETSID: answer_getsid(&caller, q, r); return;
    case OP_KINFO: answer_kinfo(q, r); return;
    case OP_SYSCTL: answer_sysctl(q, r); return;
    case OP_VM: answer_vm(r); return;
    case OP_TICKS: answer_ticks(r); return;
    case OP_PAGE_SIZE: r->value = page_bytes; return;
    case OP_SUBSCRIBE: r->value = fd; return;
    case OP_ATTACH: watch_attach(q, r); return;
    case OP_DETACH: watch_detach(q); return;
    case OP_FAULT: r->error = failure_of(q->text, 0, 0); return;
    case OP_CONTROL: answer_control(q, r); return;
    }
    r->error = ENOSYS;
}

static void serve(int fd) {
    struct request request;
    ssize_t got = recv(fd, &request, sizeof request, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got != (ssize_t)sizeof request) {
        watch_forget(fd);
        close(fd);
        return;
    }
    request.text[TEXT_MOST - 1] = 0;
    events_drain();
    holds_ready();
    holds_tick();
    reply.value = 0;
    reply.error = 0;
    reply.bytes = 0;
    answer(fd, &request, &reply);
    send(fd, &reply, offsetof(struct reply, data) + reply.bytes, MSG_NOSIGNAL);
}

static void woken(int fd, int kind) {
    char ignored[128];
    switch (kind) {
    case ON_EVENTS: events_drain(); return;
    case ON_LISTENER: admit(fd); return;
    case ON_CLIENT: serve(fd); return;
    case ON_PIDFD:
        events_drain();
        watches_ready(fd);
        return;
    case ON_CHILD:
        while (read(fd, ignored, sizeof ignored) > 0) {}
        holds_ready();
        return;
    case ON_MAKER:
        if (read(fd, ignored, sizeof ignored) <= 0) {
            end_all();
            exit(0);
        }
    }
}

int main(int count, char **paths) {
    maker = getppid();
    poller = epoll_create1(EPOLL_CLOEXEC);
    int events = events_open();
    table_open();
    machine_open();
    if (events >= 0) poll_add(events, ON_EVENTS);
    poll_add(holds_open(), ON_CHILD);
    poll_add(STDIN_FILENO, ON_MAKER);
    for (int i = 1; i < count; i++)
        if (listen_for(paths[i])) {
            fprintf(stderr, "fakexnud: %s: %s\n", paths[i], strerror(errno));
            return 1;
        }
    puts("ready");
    fflush(stdout);
    for (;;) {
        struct epoll_event ready[32];
        int woke = epoll_wait(poller, ready, 32, holds_timeout_ms());
        for (int i = 0; i < woke; i++) woken((int)(uint32_t)ready[i].data.u64, (int)(ready[i].data.u64 >> 32));
        holds_tick();
    }
}
