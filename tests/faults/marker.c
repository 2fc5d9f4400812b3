/* marker.c: a job that proves by itself that it may run.  cmarker FOLDER LIMIT ID LIFE_MS KIND
 *
 * It takes one of LIMIT locks, or says in FOLDER/violations that there was none left. Whatever it starts inherits the
 * lock, which is free again when the last of them is gone, by the kernel's word and nobody else's. So one job too many,
 * or one too early, is always told, however short it is. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { HOPS = 20, MEETING_MS = 10000, LOOK_MS = 5 };

static const char *folder, *id;
static int life_ms;

static void sleep_ms(int ms) {
    struct timespec left = {ms / 1000, ms % 1000 * 1000000L};
    while (nanosleep(&left, &left) != 0) {}
}

static int file_at(const char *name, int flags) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, flags | O_CREAT, 0600);
    if (fd < 0) _exit(3);
    return fd;
}

static void tell(const char *file, const char *what) {
    char text[256];
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_RAW, &now);
    int size = snprintf(text, sizeof text, "%lld.%09ld %s %s\n", (long long)now.tv_sec, now.tv_nsec, id, what);
    int fd = file_at(file, O_WRONLY | O_APPEND);
    if (write(fd, text, (size_t)size) != size) _exit(4);
    close(fd);
}

/* One look at all locks at a time: no two jobs can miss each other's. */
static void take_slot(int limit) {
    int turn = file_at("turn", O_RDWR);
    while (flock(turn, LOCK_EX) != 0) {}
    for (int i = 0; i < limit; i++) {
        char name[32];
        snprintf(name, sizeof name, "slot-%d", i);
        int fd = file_at(name, O_RDWR);
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
            close(turn);
            return;
        }
        close(fd);
    }
    tell("violations", "no-slot-is-free");
    _exit(9);
}

static int others_met(void) {
    int found = 0;
    DIR *all = opendir(folder);
    if (all == NULL) return 0;
    for (struct dirent *one; (one = readdir(all)) != NULL;) found += strncmp(one->d_name, "met-", 4) == 0;
    closedir(all);
    return found;
}

/* Every unit there is must be usable at one time. */
static void meet(int limit) {
    char name[128];
    snprintf(name, sizeof name, "met-%s", id);
    close(file_at(name, O_WRONLY));
    for (int waited_ms = 0; others_met() < limit; waited_ms += LOOK_MS) {
        if (waited_ms >= MEETING_MS) {
            tell("violations", "a-unit-is-missing");
            _exit(8);
        }
        sleep_ms(LOOK_MS);
    }
}

static void detach(void) {
    if (fork() != 0) return;
    setsid();
    if (fork() == 0) sleep_ms(life_ms);
    _exit(0);
}

static void become_deaf(void) {
    for (int number = 1; number < 32; number++) signal(number, SIG_IGN);
}

static void relay(int hops) {
    if (hops == 0 || fork() != 0) return;
    setsid();
    sleep_ms(life_ms / HOPS + 1);
    relay(hops - 1);
    _exit(0);
}

int main(int count, char **args) {
    if (count != 6) return 64;
    folder = args[1];
    int limit = atoi(args[2]);
    id = args[3];
    life_ms = atoi(args[4]);
    const char *kind = args[5];
    take_slot(limit);
    tell("log", kind);
    if (!strcmp(kind, "meet")) meet(limit);
    if (!strcmp(kind, "deaf")) become_deaf();
    if (!strcmp(kind, "daemon") || !strcmp(kind, "deaf")) detach();
    if (!strcmp(kind, "relay")) relay(HOPS);
    if (!strcmp(kind, "stopped") && fork() == 0) raise(SIGSTOP);
    sleep_ms(life_ms);
    return 0;
}
