/* forest.c: 1,000 idle processes, every fifth a session leader, then one byte on standard output. */
#include "sys.h"

enum { TREES = 1000 };

void _start(void) {
    for (int i = 0; i < TREES; i++) {
        long pid = sys(__NR_clone, SIGCHLD, 0, 0, 0, 0);
        if (pid == 0) {
            if (i % 5 == 0) sys(__NR_setsid);
            for (;;) poll_fds(NULL, 0, -1);
        }
        if (pid < 0) leave(1);
    }
    sys(__NR_write, 1, "+", 1);
    for (;;) poll_fds(NULL, 0, -1);
}
