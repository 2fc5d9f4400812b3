/* contain-init.h: what the files of this program share. Read wire.h, then main.c, keeper.c, init.c, setup.c,
 * command.c in that order: together they are the documentation of a launch. waiter.c is before any launch. */
#ifndef CONTAIN_INIT_H
#define CONTAIN_INIT_H

#include "sys.h"
#include "wire.h"

enum { EXIT_USAGE = 64 };

/* Where a step failed. step 0: nothing has. */
struct failure {
    uint32_t step;
    int32_t error;
};

/* One job as its init knows it. It lives on the init's stack: nothing of it is in the keeper, nothing is allocated. */
struct job {
    struct launch_request request;
    int control, gate, block, directory, stdio[3];
    const int *cgroups;         /* request.cgroups descriptors */
    const int *kept;            /* request.kept descriptors, for the numbers request.keep */
    int lifeline;               /* read end: hangs up when the keeper is gone */
    int wrapper;                /* pidfd: readable when the wrapper is gone */
    int user_namespace;
    unsigned uid, gid;          /* as the keeper has them, before a map exists */
    uint32_t proc_fresh;
};

/* The command's process, as it shares the init's memory until its execve. */
struct command {
    const struct job *job;
    char **paths, **args, **vars;
    void *block, *pointers;     /* mappings, given back once the command has been executed */
    size_t block_bytes, pointers_bytes;
    int pid;
    int executed;               /* read end: hangs up at the execve, or at the end, of the process */
    int executed_write;
    int gate;                   /* the gate's number in the command's process */
    struct failure volatile failure;  /* written by the command's process, read after it was reaped */
};

NORETURN void keeper_main(void);
NORETURN void init_main(struct job *job);

struct failure set_up(struct job *job);
struct failure arm_death_signal(void);
struct failure parents_alive(const struct job *job);
struct failure become_undumpable(void);

NORETURN void waiter_main(int count, char **args, char **vars);

long read_block(int block, struct command *command);
struct failure start_command(const struct job *job, struct command *command);
void forget_command_block(struct command *command);

/* A test build may stop here for a while, to be killed at this very step; the shipped program has no such code. */
#ifdef STEP_HOOK
void at_step(enum step step);
#else
#define at_step(step) ((void)0)
#endif

#endif
