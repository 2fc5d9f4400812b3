/* sys.h: raw system calls, so that the program needs no libc.
 *
 * Why no libc: start-up of a static glibc program costs 43 trapped CPUID instructions on a virtual machine, four
 * times what our whole launch takes; and a clone that shares memory must not run libc code at all. Return values
 * are the kernel's: -errno on failure, errno itself does not exist here. */
#ifndef CONTAIN_SYS_H
#define CONTAIN_SYS_H

#include <stddef.h>
#include <stdint.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <linux/fcntl.h>
#include <linux/mman.h>
#include <linux/mount.h>
#include <linux/prctl.h>
#include <linux/random.h>
#include <linux/resource.h>
#include <linux/sched.h>
#include <linux/sockios.h>
#include <linux/time.h>
#include <linux/time_types.h>
#include <linux/uio.h>
#include <linux/wait.h>
#include <asm/errno.h>
#include <asm/poll.h>
#include <asm/signal.h>
#include <asm/socket.h>
#include <asm/unistd.h>

#define EXPORT __attribute__((used))
#define NORETURN __attribute__((noreturn))

#if defined(__x86_64__)

static inline long sys6(long number, long a, long b, long c, long d, long e, long f) {
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    long result;
    __asm__ volatile("syscall" : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
    return result;
}

/* clone(2) onto another stack. The child must not return through our frame, so it calls `entry` from here. */
static inline long clone_onto(unsigned long flags, void *stack_top, void (*entry)(void *), void *argument) {
    register long r10 __asm__("r10") = 0, r8 __asm__("r8") = 0;
    register void (*r12)(void *) __asm__("r12") = entry;
    register void *r13 __asm__("r13") = argument;
    long result;
    __asm__ volatile("syscall\n\ttest %%rax, %%rax\n\tjnz 1f\n\txor %%ebp, %%ebp\n\tmov %%r13, %%rdi\n\t"
                     "call *%%r12\n\tud2\n1:"
                     : "=a"(result)
                     : "a"(__NR_clone), "D"(flags), "S"(stack_top), "d"(0L), "r"(r10), "r"(r8), "r"(r12), "r"(r13)
                     : "rcx", "r11", "memory");
    return result;
}

#elif defined(__aarch64__)

static inline long sys6(long number, long a, long b, long c, long d, long e, long f) {
    register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c,
                  x3 __asm__("x3") = d, x4 __asm__("x4") = e, x5 __asm__("x5") = f;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
    return x0;
}

static inline long clone_onto(unsigned long flags, void *stack_top, void (*entry)(void *), void *argument) {
    register long x8 __asm__("x8") = __NR_clone, x0 __asm__("x0") = (long)flags, x1 __asm__("x1") = (long)stack_top,
                  x2 __asm__("x2") = 0, x3 __asm__("x3") = 0, x4 __asm__("x4") = 0;
    register void (*x19)(void *) __asm__("x19") = entry;
    register void *x20 __asm__("x20") = argument;
    __asm__ volatile("svc 0\n\tcbnz x0, 1f\n\tmov x29, xzr\n\tmov x0, x20\n\tblr x19\n\tbrk #1\n1:"
                     : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x19), "r"(x20) : "x30", "memory");
    return x0;
}

#else
#error "contain-init knows x86-64 and aarch64"
#endif

#define SYS_PICK(_0, _1, _2, _3, _4, _5, _6, name, ...) name
#define sys(...) SYS_PICK(__VA_ARGS__, sys_6, sys_5, sys_4, sys_3, sys_2, sys_1, sys_0)(__VA_ARGS__)
#define sys_0(n) sys6(n, 0, 0, 0, 0, 0, 0)
#define sys_1(n, a) sys6(n, (long)(a), 0, 0, 0, 0, 0)
#define sys_2(n, a, b) sys6(n, (long)(a), (long)(b), 0, 0, 0, 0)
#define sys_3(n, a, b, c) sys6(n, (long)(a), (long)(b), (long)(c), 0, 0, 0)
#define sys_4(n, a, b, c, d) sys6(n, (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)
#define sys_5(n, a, b, c, d, e) sys6(n, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), 0)
#define sys_6(n, a, b, c, d, e, f) sys6(n, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

/* What the kernel's own headers do not give to user space: the layouts of struct user_msghdr, cmsghdr and ucred in
 * include/linux/socket.h, alike on both machines. Everything else is used as <linux/...> and <asm/...> have it. */
struct message { void *name; int name_length; struct iovec *parts; size_t part_count;
                 void *control; size_t control_length; unsigned flags; };
struct control_head { size_t length; int level, type; };
struct credentials { int pid; unsigned uid, gid; };
struct interface { char name[16]; short flags; char rest[22]; };        /* struct ifreq; <linux/if.h> wants a libc */

_Static_assert(sizeof(struct message) == 56 && offsetof(struct message, parts) == 16 &&
               offsetof(struct message, control) == 32 && offsetof(struct message, flags) == 48, "struct user_msghdr");
_Static_assert(sizeof(struct control_head) == 16 && sizeof(struct credentials) == 12 &&
               sizeof(struct interface) == 40, "cmsghdr, ucred, ifreq");
_Static_assert(sizeof(long) == 8 && sizeof(struct sigaction) == 32 && sizeof(sigset_t) == 8, "a 64-bit machine");

#define AF_INET 2
#define IFF_UP 1
#define SOCK_DGRAM 2
#define SCM_RIGHTS 1
#define SCM_CREDENTIALS 2
#define MSG_CTRUNC 0x8
#define MSG_TRUNC 0x20
#define MSG_DONTWAIT 0x40
#define MSG_NOSIGNAL 0x4000
#define MSG_CMSG_CLOEXEC 0x40000000
#define SEEK_END 2
#define SIGNALS 64
#define SIGNAL_SET_BYTES 8

static inline long now_ms(void) {
    struct __kernel_timespec t = {0, 0};
    sys(__NR_clock_gettime, CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static inline NORETURN void leave(int status) {
    for (;;) sys(__NR_exit_group, status);
}

/* poll(2) by ppoll, which both machines have; -1 waits for ever. The kernel may be interrupted: callers loop. */
static inline long poll_fds(struct pollfd *fds, unsigned long count, long timeout_ms) {
    struct __kernel_timespec t = {timeout_ms / 1000, timeout_ms % 1000 * 1000000};
    return sys(__NR_ppoll, fds, count, timeout_ms < 0 ? NULL : &t, NULL, SIGNAL_SET_BYTES);
}

#endif
