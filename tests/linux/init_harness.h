/* init_harness.h: what the two files of the harness share. */
#ifndef INIT_HARNESS_H
#define INIT_HARNESS_H

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#include <linux/capability.h>
#include "wire.h"

struct keeper {
    pid_t pid;
    int pidfd, requests, life;
};

struct job {
    struct launch_reply reply;
    int pidfd, control, gate, output;
};

int job_main(int count, char **args);

#endif
