/* command.c: the command's own process, from its clone to its execve.
 *
 * It is cloned before the gate opens, so that opening the gate costs one wake-up and one execve. Until then it
 * shares the init's memory (CLONE_VM) and runs on a stack of its own: raw system calls only, nothing global is
 * changed but `failure`. It is not CLONE_VFORK: the init must go on and serve the wrapper while this one waits. */
#include "contain-init.h"

static const struct failure none = {STEP_NONE, 0};

static char stack[16384] __attribute__((aligned(64)));

/* Splits `count` NUL-ended strings off `*at` into `to`; 0 when the block ends first. */
static int take_strings(char **to, uint32_t count, char **at, const char *end) {
    for (uint32_t i = 0; i < count; i++) {
        if (*at >= end) return 0;
        to[i] = *at;
        while (*at < end && **at) (*at)++;
        if (*at >= end) return 0;
        (*at)++;
    }
    to[count] = NULL;
    return 1;
}

static long map(size_t bytes, int protection, int flags, int fd) {
    return sys(__NR_mmap, NULL, bytes, protection, MAP_PRIVATE | flags, fd, 0);
}

static int is_address(long result) {
    return result < -4095 || result > 0;
}

/* The block must be sealed: then nobody can shorten it under this mapping, or change it after a look at it. */
static long read_block(const struct job *job, struct command *command) {
    const long needed = F_SEAL_SHRINK | F_SEAL_WRITE;
    long seals = sys(__NR_fcntl, job->block, F_GET_SEALS);
    if (seals < 0 || (seals & needed) != needed) return seals < 0 ? seals : -EINVAL;
    long size = sys(__NR_lseek, job->block, 0, SEEK_END);
    if (size < (long)sizeof(struct command_block)) return size < 0 ? size : -EINVAL;
    long address = map((size_t)size, PROT_READ, 0, job->block);
    if (!is_address(address)) return address;
    command->block = (void *)address;
    command->block_bytes = (size_t)size;
    struct command_block head;
    __builtin_memcpy(&head, command->block, sizeof head);
    if (head.version != WIRE_VERSION || !head.paths || !head.args) return -EINVAL;
    size_t pointers = (size_t)head.paths + head.args + head.vars + 3;
    if (pointers > (size_t)size + 3) return -EINVAL;    /* each string has at least its NUL */
    command->pointers_bytes = pointers * sizeof(char *);
    address = map(command->pointers_bytes, PROT_READ | PROT_WRITE, MAP_ANONYMOUS, -1);
    if (!is_address(address)) return address;
    command->pointers = (void *)address;
    command->paths = command->pointers;
    command->args = command->paths + head.paths + 1;
    command->vars = command->args + head.args + 1;
    char *at = (char *)command->block + sizeof head;
    const char *end = (char *)command->block + size;
    if (!take_strings(command->paths, head.paths, &at, end) || !take_strings(command->args, head.args, &at, end) ||
        !take_strings(command->vars, head.vars, &at, end) || at != end)
        return -EINVAL;
    return 0;
}

static NORETURN void give_up(struct command *command, enum step step, long result) {
    command->failure.error = (int32_t)-result;
    command->failure.step = (uint32_t)step;
    leave(127);
}

static void apply_limits(struct command *command) {
    const struct launch_request *request = &command->job->request;
    at_step(STEP_LIMITS);
    sys(__NR_umask, request->umask);
    if (request->nice != NICE_KEEP) {
        long result = sys(__NR_setpriority, 0, 0, request->nice);
        if (result < 0) give_up(command, STEP_LIMITS, result);
    }
    for (int number = 0; number < LIMITS; number++) {
        if (!(request->limits_set & (1u << number))) continue;
        long result = sys(__NR_prlimit64, 0, number, &request->limits[number], NULL);
        if (result < 0) give_up(command, STEP_LIMITS, result);
    }
}

/* Leaves 0, 1, 2 for the command, and the gate and `executed`, both of which close themselves at the execve. Every
 * source lies above: 0 to 4 were taken (the keeper's null device, the init's signalfd, the wrapper's pidfd) when it
 * was made. So no dup lands on a source that is still needed, and none goes above a low limit of open files. */
enum { GATE = 3, EXECUTED = 4 };

static void arrange_descriptors(struct command *command) {
    const struct job *job = command->job;
    const int from[] = {job->stdio[0], job->stdio[1], job->stdio[2], job->gate, command->executed_write};
    at_step(STEP_DESCRIPTORS);
    long result = 0;
    for (int to = 0; to <= EXECUTED && result >= 0; to++)
        result = from[to] <= EXECUTED ? -EBADF : sys(__NR_dup3, from[to], to, to < GATE ? 0 : O_CLOEXEC);
    if (result >= 0) result = sys(__NR_close_range, EXECUTED + 1, ~0u, 0);
    if (result < 0) give_up(command, STEP_DESCRIPTORS, result);
}

static void wait_at_gate(struct command *command) {
    char byte = 0;
    long result;
    at_step(STEP_GATE);
    do result = sys(__NR_read, GATE, &byte, 1); while (result == -EINTR);
    if (result != 1 || byte != GATE_OPEN) give_up(command, STEP_GATE, -ECANCELED);
}

/* Reasons to try the next directory. The last three are what network file systems say of a path that is not there. */
static int try_next(long result) {
    return result == -EACCES || result == -ENOENT || result == -ENOTDIR || result == -ESTALE || result == -ENODEV ||
           result == -ETIMEDOUT;
}

/* As execvp(3) searches, but for its fall-back to a shell: a file without a known format is the caller's error. */
static long execute(struct command *command) {
    long denied = 0, result = -ENOENT;
    at_step(STEP_EXEC);
    for (char **path = command->paths; *path; path++) {
        result = sys(__NR_execve, *path, command->args, command->vars);
        if (result == -EACCES) denied = result;
        if (!try_next(result)) return result;
    }
    return denied ? denied : result;
}

static void run(void *argument) {
    struct command *command = argument;
    const unsigned long empty = 0;
    at_step(STEP_SESSION);
    long result = sys(__NR_setsid);
    if (result < 0) give_up(command, STEP_SESSION, result);
    arrange_descriptors(command);
    apply_limits(command);      /* after the descriptors: openFiles may be too few for them */
    wait_at_gate(command);
    sys(__NR_rt_sigprocmask, SIG_SETMASK, &empty, NULL, SIGNAL_SET_BYTES);
    give_up(command, STEP_EXEC, execute(command));
}

struct failure start_command(const struct job *job, struct command *command) {
    int executed[2] = {-1, -1};
    *command = (struct command){.job = job, .executed = -1, .executed_write = -1};
    at_step(STEP_COMMAND);
    long result = read_block(job, command);
    if (result == 0) result = sys(__NR_pipe2, executed, O_CLOEXEC);
    if (result < 0) return (struct failure){STEP_COMMAND, (int32_t)-result};
    command->executed = executed[0];
    command->executed_write = executed[1];
    result = clone_onto(CLONE_VM | SIGCHLD, stack + sizeof stack, run, command);
    if (result < 0) return (struct failure){STEP_COMMAND, (int32_t)-result};
    command->pid = (int)result;
    sys(__NR_close, command->executed_write);
    return none;
}

void forget_command_block(struct command *command) {
    sys(__NR_munmap, command->block, command->block_bytes);
    sys(__NR_munmap, command->pointers, command->pointers_bytes);
    sys(__NR_close, command->executed);
    command->executed = -1;
}
