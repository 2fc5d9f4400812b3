/* main.c: contain-init, the native program of contain.
 *
 * What it promises, whatever happens to the processes above it:
 *   - a job's processes live in a PID namespace whose init is a copy of the keeper: when that init dies, for any
 *     reason, the kernel kills every one of them, before anyone is told that the init is gone;
 *   - the init dies when the keeper dies (parent-death signal), when the wrapper dies (pidfd), when either hangs up;
 *   - the keeper dies when the wrapper dies, even a stopped keeper (keeper.c says how);
 *   - the command is executed only after the one byte came through the gate; EOF refuses;
 *   - the init reports how the command ended the moment that it knows, and never blocks on a report.
 *
 * Faces:  contain-init keeper     the only thing that ever clones an init (see wire.h for its descriptors)
 *         contain-init wait ...   a wrapper that waits for its permit (see waiter.c)
 *
 * Nothing is read from the environment. Nothing is written to standard error, as what went wrong goes to the wrapper
 * as a step and an errno; but for a waiter, which has no other wrapper than itself. */
#include "contain-init.h"

static int same(const char *a, const char *b) {
    while (*a && *a == *b) a++, b++;
    return *a == *b;
}

static NORETURN void program(int count, char **args) {
    if (count == 2 && same(args[1], "keeper")) keeper_main();
    if (count > 2 && same(args[1], "wait")) waiter_main(count, args, args + count + 1);
    leave(EXIT_USAGE);
}

#ifdef HOSTED

int main(int count, char **args) {
    program(count, args);
}

#else

NORETURN EXPORT void start_here(long *stack);
void start_here(long *stack) {
    program((int)stack[0], (char **)(stack + 1));
}

/* The kernel enters with the argument vector at the stack pointer and no return address. */
#if defined(__x86_64__)
__asm__(".globl _start\n_start:\n\txor %ebp, %ebp\n\tmov %rsp, %rdi\n\tand $-16, %rsp\n\tcall start_here\n\tud2\n");
#else
__asm__(".globl _start\n_start:\n\tmov x29, xzr\n\tmov x0, sp\n\tbl start_here\n\tbrk #1\n");
#endif

/* gcc calls these by name even in a freestanding program. */
void *memset(void *to, int value, size_t count);
void *memset(void *to, int value, size_t count) {
    for (size_t i = 0; i < count; i++) ((char *)to)[i] = (char)value;
    return to;
}
void *memcpy(void *restrict to, const void *restrict from, size_t count);
void *memcpy(void *restrict to, const void *restrict from, size_t count) {
    for (size_t i = 0; i < count; i++) ((char *)to)[i] = ((const char *)from)[i];
    return to;
}

#endif

#ifdef STEP_HOOK
/* Built by tests only: -DSTEP_HOOK=n waits -DSTEP_HOOK_MS at step n, as a slow machine would. */
void at_step(enum step step) {
    if (step == STEP_HOOK) poll_fds(NULL, 0, STEP_HOOK_MS);
}
#endif
