/* waiter.c: a wrapper that waits for its permit, as a few pages instead of a whole Python.
 *
 * The wrapper executes this program in its place and is executed again by it, with its own command line, when one of
 * the descriptors can be read, when a signal that it had blocked is pending, or when its time is over. In between
 * nothing is read and nothing is decided: what rang stays in the descriptor, a signal stays pending, and both are still
 * there for whoever comes back. The process is the same all the time: its number, its start, its pidfs id.
 *
 *   contain-init wait UNTIL_MS BLOCK FD...
 *
 * UNTIL_MS is of CLOCK_MONOTONIC, 0 waits for ever. BLOCK is a sealed command_block: one path, the command line, no
 * variables. They are our own environment: it goes back as it came. BLOCK and every FD close then. */
#include "contain-init.h"

#include <linux/signalfd.h>

enum { UNTIL = 2, BLOCK, FIRST_WATCHED };
enum { EXIT_FAILED = 125 };
enum { MOST_DIGITS = 18 };

/* A decimal number, -1 for any other text. */
static long number(const char *text) {
    long value = 0;
    int digits = 0;
    for (; text[digits] >= '0' && text[digits] <= '9' && digits < MOST_DIGITS; digits++)
        value = value * 10 + (text[digits] - '0');
    return digits && !text[digits] ? value : -1;
}

static void say(const char *text) {
    size_t length = 0;
    while (text[length]) length++;
    sys(__NR_write, 2, text, length);
}

/* Nobody else can: the Python that would have is not there. The ticket goes with this process. */
static NORETURN void fail(const char *path, long error) {
    char digits[] = "    ", *at = digits + sizeof digits - 1;
    for (long rest = -error; rest > 0 && at > digits; rest /= 10) *--at = (char)('0' + rest % 10);
    say("contain: The wait is over, but ");
    say(path);
    say(" cannot be executed again (errno ");
    say(at);
    say("). The command did not run, and its ticket is given up. Look at the installation of Python; ask again.\n");
    leave(EXIT_FAILED);
}

/* Every error of a poll counts as a wake-up: Python looks at everything, and says what is wrong. */
static void wait_for(struct pollfd *fds, unsigned long count, long until_ms) {
    for (;;) {
        long left_ms = until_ms ? until_ms - now_ms() : -1;
        if (until_ms && left_ms <= 0) return;
        if (poll_fds(fds, count, left_ms) != -EINTR) return;
    }
}

void waiter_main(int count, char **args, char **vars) {
    struct pollfd fds[1 + MOST_WATCHED];
    struct command command = {.pid = 0};
    uint64_t blocked = 0;
    int watched = count - FIRST_WATCHED;
    if (watched < 0 || watched > MOST_WATCHED) leave(EXIT_USAGE);
    long until_ms = number(args[UNTIL]), block = number(args[BLOCK]);
    if (until_ms < 0 || block < 0) leave(EXIT_USAGE);
    sys(__NR_prctl, PR_SET_NAME, "contain-waiting");
    sys(__NR_rt_sigprocmask, SIG_BLOCK, NULL, &blocked, SIGNAL_SET_BYTES);
    long signals = sys(__NR_signalfd4, -1, &blocked, SIGNAL_SET_BYTES, SFD_CLOEXEC | SFD_NONBLOCK);
    fds[0] = (struct pollfd){(int)signals, POLLIN, 0};
    for (int i = 0; i < watched; i++) {
        long fd = number(args[FIRST_WATCHED + i]);
        if (fd < 0 || sys(__NR_fcntl, fd, F_SETFD, FD_CLOEXEC) < 0) leave(EXIT_USAGE);
        fds[1 + i] = (struct pollfd){(int)fd, POLLIN, 0};
    }
    sys(__NR_fcntl, block, F_SETFD, FD_CLOEXEC);
    /* Without an ear for signals we would be deaf to everything but SIGKILL: rather be Python at once. */
    if (signals >= 0) wait_for(fds, 1 + (unsigned long)watched, until_ms);
    long result = read_block((int)block, &command);
    if (result < 0) fail("its own command line", result);
    fail(command.paths[0], sys(__NR_execve, command.paths[0], command.args, vars));
}
