/* kqueue.c: the subset of kqueue that the backend uses, on epoll. The queue's descriptor is the epoll's own, so it can
 * be polled like the real one; it is close-on-exec, and of no use after a fork. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "client.h"

EXPORTED int kqueue(void);
EXPORTED int kevent(int kq, const struct kevent *changes, int nchanges, struct kevent *events, int nevents,
                    const struct timespec *timeout);

struct knote {
    struct knote *next;
    struct kevent event;        /* as registered */
    int fd;                     /* what epoll watches for it; -1 = nothing */
    uint32_t pending;           /* fflags to tell; for USER: triggered */
    int64_t data;
    bool disabled, gone;
};

struct queue {
    struct queue *next;
    int fd, notes, wake;        /* epoll; pushed by the server; an eventfd that is set while something is pending */
    int64_t number;
    pid_t owner;
    struct knote *knotes;
};

static struct queue *queues;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int watch(const struct queue *queue, int fd) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    return epoll_ctl(queue->fd, EPOLL_CTL_ADD, fd, &event);
}

/* Makes the queue's descriptor readable: for what is pending in a knote, which epoll cannot see. */
static void wake(const struct queue *queue) {
    uint64_t one = 1;
    if (write(queue->wake, &one, sizeof one) < 0) return; /* full: it is readable already */
}

static void drop_knote(struct queue *queue, struct knote *knote) {
    struct knote **at = &queue->knotes;
    while (*at != knote) at = &(*at)->next;
    *at = knote->next;
    if (knote->event.filter == EVFILT_READ) epoll_ctl(queue->fd, EPOLL_CTL_DEL, knote->fd, NULL);
    else if (knote->fd >= 0) close(knote->fd);
    free(knote);
}

/* close() is libc's, so a closed queue is noticed only when the next one is made. */
static void drop_closed(void) {
    for (struct queue **at = &queues; *at;) {
        struct queue *queue = *at;
        struct epoll_event event = {.events = EPOLLIN, .data.fd = queue->wake};
        if (queue->owner == getpid() && !epoll_ctl(queue->fd, EPOLL_CTL_MOD, queue->wake, &event)) {
            at = &queue->next;
            continue;
        }
        while (queue->knotes) drop_knote(queue, queue->knotes);
        close(queue->notes);
        close(queue->wake);
        *at = queue->next;
        free(queue);
    }
}

static int failure_of(const char *call) {
    struct request q = {.op = OP_FAULT};
    snprintf(q.text, sizeof q.text, "%s", call);
    return ask(&q, NULL, NULL, 0, NULL);
}

int kqueue(void) {
    struct request q = {.op = OP_SUBSCRIBE};
    struct reply answer;
    if (failure_of("kqueue")) return -1;
    pthread_mutex_lock(&lock);
    drop_closed();
    struct queue *queue = calloc(1, sizeof *queue);
    if (!queue) abort();
    queue->notes = connect_to_world();
    if (queue->notes < 0 || send(queue->notes, &q, sizeof q, MSG_NOSIGNAL) < 0 ||
        recv(queue->notes, &answer, sizeof answer, 0) <= 0) {
        free(queue);
        pthread_mutex_unlock(&lock);
        errno = ENOMEM;
        return -1;
    }
    queue->number = answer.value;
    queue->owner = getpid();
    queue->fd = epoll_create1(EPOLL_CLOEXEC);
    queue->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    watch(queue, queue->notes);
    watch(queue, queue->wake);
    queue->next = queues;
    queues = queue;
    pthread_mutex_unlock(&lock);
    return queue->fd;
}

static struct queue *queue_of(int fd) {
    struct queue *queue = queues;
    while (queue && (queue->fd != fd || queue->owner != getpid())) queue = queue->next;
    return queue;
}

static struct knote *find(struct queue *queue, const struct kevent *change) {
    struct knote *knote = queue->knotes;
    while (knote && (knote->event.ident != change->ident || knote->event.filter != change->filter)) knote = knote->next;
    return knote;
}

static int start_timer(struct knote *knote) {
    uint64_t unit = 1000000, flags = knote->event.fflags;
    if (flags & NOTE_SECONDS) unit = 1000000000;
    else if (flags & NOTE_USECONDS) unit = 1000;
    else if (flags & NOTE_NSECONDS) unit = 1;
    uint64_t ns = (uint64_t)knote->event.data * unit;
    if (!ns) ns = 1;
    struct timespec period = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
    struct itimerspec timer = {.it_value = period};
    if (!(knote->event.flags & EV_ONESHOT)) timer.it_interval = period;
    knote->fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    return timerfd_settime(knote->fd, 0, &timer, NULL) ? errno : 0;
}

/* Sets up what epoll or the server must do for a knote. Returns errno. */
static int arm(struct queue *queue, struct knote *knote) {
    struct request q = {.op = OP_ATTACH, .a = {queue->number, (int64_t)knote->event.ident, knote->event.fflags}};
    int error;
    switch (knote->event.filter) {
    case EVFILT_PROC:
        knote->event.flags |= EV_CLEAR;
        return ask(&q, NULL, NULL, 0, NULL);
    case EVFILT_READ:
        knote->fd = (int)knote->event.ident;
        return watch(queue, knote->fd) ? errno : 0;
    case EVFILT_TIMER:
        error = start_timer(knote);
        return error ? error : watch(queue, knote->fd) ? errno : 0;
    case EVFILT_USER:
    case EVFILT_MEMORYSTATUS: return 0;
    default: return EINVAL;
    }
}

static int add(struct queue *queue, const struct kevent *change) {
    struct knote *knote = calloc(1, sizeof *knote);
    if (!knote) abort();
    knote->event = *change;
    knote->fd = -1;
    knote->next = queue->knotes;
    queue->knotes = knote;
    int error = arm(queue, knote);
    if (error) drop_knote(queue, knote);
    return error;
}

static int change_one(struct queue *queue, const struct kevent *change) {
    struct knote *knote = find(queue, change);
    if (!knote && !(change->flags & EV_ADD)) return ENOENT;
    if (change->flags & EV_DELETE) {
        struct request q = {.op = OP_DETACH, .a = {queue->number, (int64_t)change->ident}};
        if (change->filter == EVFILT_PROC) ask(&q, NULL, NULL, 0, NULL);
        drop_knote(queue, knote);
        return 0;
    }
    if (!knote) {
        int error = add(queue, change);
        if (error) return error;
        knote = find(queue, change);
    } else if (change->flags & EV_ADD) {
        knote->event.udata = change->udata;
        if (change->filter == EVFILT_PROC) {
            knote->event.fflags = change->fflags;
            int error = arm(queue, knote);
            if (error) return error;
        }
    }
    if (change->filter == EVFILT_USER && (change->fflags & NOTE_TRIGGER)) {
        knote->pending = 1;
        wake(queue);
    }
    if (change->flags & EV_DISABLE) knote->disabled = true;
    if (change->flags & EV_ENABLE) knote->disabled = false;
    return 0;
}

/* What the server has pushed is merged into the knotes: several forks are one event. */
static void take_notes(struct queue *queue) {
    struct note note;
    while (recv(queue->notes, &note, sizeof note, MSG_DONTWAIT) == (ssize_t)sizeof note) {
        struct kevent key = {.ident = (uint64_t)note.pid, .filter = EVFILT_PROC};
        struct knote *knote = find(queue, &key);
        if (!knote) continue;
        knote->pending |= note.fflags;
        if (note.fflags & NOTE_EXIT) {
            knote->gone = true;
            knote->data = note.data;
        }
    }
}

static bool readable(int fd, int64_t *bytes, bool *end) {
    struct pollfd look = {.fd = fd, .events = POLLIN};
    int waiting = 0;
    if (poll(&look, 1, 0) != 1) return false;
    ioctl(fd, FIONREAD, &waiting);
    *bytes = waiting;
    *end = waiting == 0 && (look.revents & (POLLHUP | POLLIN));
    return true;
}

/* Whether a knote has something to tell now; if so, the event. */
static bool fired(struct knote *knote, struct kevent *to) {
    uint64_t times;
    int64_t bytes = 0;
    bool end = false;
    *to = knote->event;
    to->flags = (uint16_t)(knote->event.flags & (EV_ADD | EV_CLEAR | EV_ONESHOT));
    if (knote->disabled) return false;
    switch (knote->event.filter) {
    case EVFILT_PROC:
        to->fflags = knote->pending;
        to->data = knote->data;
        if (knote->gone) to->flags |= EV_EOF | EV_ONESHOT;
        return knote->pending != 0;
    case EVFILT_USER:
        to->fflags = 0;
        return knote->pending != 0;
    case EVFILT_READ:
        if (!readable(knote->fd, &bytes, &end)) return false;
        to->data = bytes;
        to->fflags = 0;
        if (end) to->flags |= EV_EOF;
        return true;
    case EVFILT_TIMER:
        to->fflags = 0;
        if (read(knote->fd, &times, sizeof times) != (ssize_t)sizeof times) return false;
        to->data = (int64_t)times;
        return true;
    default: return false;
    }
}

static int collect(struct queue *queue, struct kevent *events, int most) {
    int count = 0;
    uint64_t ignored;
    struct request drain = {.op = OP_FAULT};
    ask(&drain, NULL, NULL, 0, NULL); /* an answer comes after all events before it */
    take_notes(queue);
    while (read(queue->wake, &ignored, sizeof ignored) > 0) {}
    for (struct knote *knote = queue->knotes, *next; knote; knote = next) {
        next = knote->next;
        if (count == most) {
            if (knote->pending && !knote->disabled) wake(queue);
            continue;
        }
        if (!fired(knote, &events[count])) continue;
        count++;
        if ((events[count - 1].flags & EV_ONESHOT) || knote->gone) drop_knote(queue, knote);
        else if (knote->event.flags & EV_CLEAR) knote->pending = 0;
    }
    return count;
}

static int apply(struct queue *queue, const struct kevent *changes, int count, struct kevent *events, int most) {
    int told = 0;
    for (int i = 0; i < count; i++) {
        int error = change_one(queue, &changes[i]);
        if (!error && !(changes[i].flags & EV_RECEIPT)) continue;
        if (told == most && error) {
            errno = error;
            return -1;
        }
        if (told == most) continue;
        events[told] = changes[i];
        events[told].flags = (uint16_t)(changes[i].flags | EV_ERROR);
        events[told++].data = error;
    }
    return told;
}

static int64_t left_ms(const struct timespec *timeout, uint64_t since_ms, uint64_t now_ms) {
    if (!timeout) return -1;
    int64_t whole = timeout->tv_sec * 1000 + (timeout->tv_nsec + 999999) / 1000000;
    int64_t left = whole - (int64_t)(now_ms - since_ms);
    return left > 0 ? left : 0;
}

static uint64_t clock_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

int kevent(int kq, const struct kevent *changes, int nchanges, struct kevent *events, int nevents,
           const struct timespec *timeout) {
    uint64_t since_ms = clock_ms();
    if (failure_of("kevent")) return -1;
    pthread_mutex_lock(&lock);
    struct queue *queue = queue_of(kq);
    int count = queue ? apply(queue, changes, nchanges, events, nevents) : -1;
    if (!queue) errno = EBADF;
    if (count || nevents == 0) {
        pthread_mutex_unlock(&lock);
        return count;
    }
    for (;;) {
        count = collect(queue, events, nevents);
        int64_t wait_ms = left_ms(timeout, since_ms, clock_ms());
        pthread_mutex_unlock(&lock);
        if (count || wait_ms == 0) return count;
        struct pollfd ready = {.fd = kq, .events = POLLIN};
        if (poll(&ready, 1, wait_ms > 60000 ? 60000 : (int)wait_ms) < 0) return -1; /* EINTR, as it would be */
        pthread_mutex_lock(&lock);
    }
}
