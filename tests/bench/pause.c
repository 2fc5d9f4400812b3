/* pause.c: a command without a libc that waits for its end. */
#include "sys.h"

void _start(void) {
    for (;;) poll_fds(NULL, 0, -1);
}
