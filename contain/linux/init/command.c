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
long read_block(int block, struct command *command) {
    const long needed = F_SEAL_SHRINK | F_SEAL_WRITE;
    long seals = sys(__NR_fcntl, block, F_GET_SEALS);
    if (seals < 0 || (seals & needed) != needed) return seals < 0 ? seals : -EINVAL;
    long size = sys(__NR_lseek, block, 0, SEEK_END);
    if (size < (long)sizeof(struct command_block)) return size < 0 ? size : -EINVAL;
    long address = map((size_t)size, PROT_READ, 0, block);
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

/* Takes away what the command shall not have, for good: out of the bounding set first, which needs CAP_SETPCAP,
 * then out of the sets that an execve computes from. */
static void drop_privileges(struct command *command) {
    const struct launch_request *request = &command->job->request;
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {{0, 0, 0}, {0, 0, 0}};
    const uint64_t drop = request->drop_capabilities;
    long result = 0;
    at_step(STEP_PRIVILEGES);
    if (drop) {
        for (unsigned i = 0; i < 64; i++)
            if (drop >> i & 1 && sys(__NR_prctl, PR_CAPBSET_READ, i, 0, 0, 0) == 1) {
                result = sys(__NR_prctl, PR_CAPBSET_DROP, i, 0, 0, 0);
                if (result < 0) give_up(command, STEP_PRIVILEGES, result);
            }
        sys(__NR_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
        result = sys(__NR_capget, &head, data);
        for (unsigned i = 0; i < 2; i++) {
            const uint32_t kept = ~(uint32_t)(drop >> 32 * i);
            data[i].effective &= kept;
            data[i].permitted &= kept;
            data[i].inheritable &= kept;
        }
        if (result == 0) result = sys(__NR_capset, &head, data);
    }
    if (result == 0 && request->flags & NO_NEW_PRIVS) result = sys(__NR_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (result < 0) give_up(command, STEP_PRIVILEGES, result);
}

/* What the command gets and under which number (`to`), and last the two that close themselves at the execve. */
struct arrangement {
    int from[3 + MOST_KEPT + 2], to[3 + MOST_KEPT];
    int placed, count;
};

/* A source that is still needed may lie on the number that is wanted: it is moved away first, to any free one. */
static long place(struct arrangement *a, int i) {
    for (int j = i + 1; j < a->count; j++) {
        if (a->from[j] != a->to[i]) continue;
        long moved = sys(__NR_fcntl, a->from[j], F_DUPFD_CLOEXEC, 3);
        if (moved < 0) return moved;
        a->from[j] = (int)moved;
    }
    if (a->from[i] == a->to[i]) return sys(__NR_fcntl, a->to[i], F_SETFD, 0);
    return sys(__NR_dup3, a->from[i], a->to[i], 0);
}

/* The least number from `least` that must stay open, or past every number. */
static unsigned next_needed(const struct arrangement *a, unsigned least) {
    unsigned next = ~0u;
    for (int i = 0; i < a->count; i++) {
        unsigned number = (unsigned)(i < a->placed ? a->to[i] : a->from[i]);
        if (number >= least && number < next) next = number;
    }
    return next;
}

static long close_others(const struct arrangement *a) {
    for (unsigned at = 0; ; ) {
        unsigned next = next_needed(a, at);
        long result = next == at ? 0 : sys(__NR_close_range, at, next == ~0u ? next : next - 1, 0);
        if (result < 0 || next == ~0u) return result;
        at = next + 1;
    }
}

static void arrange_descriptors(struct command *command) {
    const struct job *job = command->job;
    struct arrangement a = {.placed = 3 + (int)job->request.kept};
    at_step(STEP_DESCRIPTORS);
    for (int i = 0; i < a.placed; i++) {
        a.from[i] = i < 3 ? job->stdio[i] : job->kept[i - 3];
        a.to[i] = i < 3 ? i : job->request.keep[i - 3];
    }
    a.from[a.placed] = job->gate;
    a.from[a.placed + 1] = command->executed_write;
    a.count = a.placed + 2;
    long result = 0;
    for (int i = 0; i < a.placed && result >= 0; i++) result = place(&a, i);
    if (result >= 0) result = close_others(&a);
    if (result < 0) give_up(command, STEP_DESCRIPTORS, result);
    command->gate = a.from[a.placed];
}

static void wait_at_gate(struct command *command) {
    char byte = 0;
    long result;
    at_step(STEP_GATE);
    do result = sys(__NR_read, command->gate, &byte, 1); while (result == -EINTR);
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
    long result = command->job->request.flags & SHARED_SESSION ? 0 : sys(__NR_setsid);
    if (result < 0) give_up(command, STEP_SESSION, result);
    arrange_descriptors(command);
    apply_limits(command);      /* after the descriptors: openFiles may be too few for them */
    drop_privileges(command);   /* after the limits: raising one may need a capability */
    wait_at_gate(command);
    sys(__NR_rt_sigprocmask, SIG_SETMASK, &empty, NULL, SIGNAL_SET_BYTES);
    give_up(command, STEP_EXEC, execute(command));
}

struct failure start_command(const struct job *job, struct command *command) {
    int executed[2] = {-1, -1};
    *command = (struct command){.job = job, .executed = -1, .executed_write = -1};
    at_step(STEP_COMMAND);
    long result = read_block(job->block, command);
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
