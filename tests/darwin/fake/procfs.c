/* procfs.c: what Linux says of a process, in Darwin's words. */
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "server.h"

enum { LINUX_PF_EXITING = 4 };

static ssize_t slurp(const char *path, char *to, size_t size) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    ssize_t got = read(fd, to, size - 1);
    close(fd);
    if (got >= 0) to[got] = 0;
    return got;
}

/* Fills all but the ids of users. False when there is no such process. A zombie leader of a process whose other
 * threads still run is alive: Linux's letter speaks of the thread. */
bool read_stat(pid_t pid, struct seen *seen) {
    char path[48], text[2048];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    if (slurp(path, text, sizeof text) <= 0) return false;
    memset(seen, 0, sizeof *seen);
    seen->pid = pid;
    char *name = strchr(text, '('), *end = strrchr(text, ')');
    if (!name || !end || end <= name) return false;
    *end = 0;
    strncpy(seen->comm, name + 1, sizeof seen->comm - 1);
    unsigned long flags;
    unsigned long long user, system, start, vsize;
    long nice, threads, resident;
    int fields = sscanf(end + 2,
                        "%c %d %d %d %d %d %lu %*u %*u %*u %*u %llu %llu %*d %*d %*d %ld %ld %*d %llu %llu %ld",
                        &seen->letter, &seen->ppid, &seen->pgid, &seen->sid, &seen->tty, &seen->tpgid, &flags, &user,
                        &system, &nice, &threads, &start, &vsize, &resident);
    if (fields != 14) return false;
    char *last = strrchr(end + 1, ' ');
    seen->exit_code = last ? atoi(last) : 0;
    seen->nice = (int)nice;
    seen->threads = (int)threads;
    seen->user_ticks = user;
    seen->system_ticks = system;
    seen->start_ticks = start;
    seen->vsize = vsize;
    seen->resident_pages = (uint64_t)resident;
    seen->state = LIVE;
    if (seen->letter == 'X') return false;
    if (threads <= 1 && seen->letter == 'Z') seen->state = ZOMBIE;
    else if (threads <= 1 && (flags & LINUX_PF_EXITING)) seen->state = DEAD;
    return true;
}

void read_ids(pid_t pid, struct seen *seen) {
    char path[48], text[4096];
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    if (slurp(path, text, sizeof text) <= 0) return;
    char *uid = strstr(text, "\nUid:"), *gid = strstr(text, "\nGid:");
    if (uid) sscanf(uid + 5, "%u %u %u", &seen->ruid, &seen->euid, &seen->svuid);
    if (gid) sscanf(gid + 5, "%u %u %u", &seen->rgid, &seen->egid, &seen->svgid);
}

/* Every number in /proc, in its order. */
void every_pid(void (*each)(pid_t)) {
    DIR *proc = opendir("/proc");
    if (!proc) return;
    for (struct dirent *entry; (entry = readdir(proc));) {
        pid_t pid = atoi(entry->d_name);
        if (pid > 0) each(pid);
    }
    closedir(proc);
}
