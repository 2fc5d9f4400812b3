/* layout.c: no code, only what the compiler must agree to on every machine. The messages of wire.h are read as bytes
 * by another program, so none of them may hold padding: a hole would carry bytes of our stack across. */
#include "contain-init.h"

#define IS_DENSE(type, last, bytes) \
    (sizeof(struct type) == (bytes) && \
     offsetof(struct type, last) + sizeof(((struct type *)0)->last) == sizeof(struct type))

_Static_assert(IS_DENSE(launch_limit, hard, 16), "launch_limit");
_Static_assert(IS_DENSE(launch_request, keep, 432), "launch_request");
_Static_assert(IS_DENSE(launch_reply, user_namespace, 16), "launch_reply");
_Static_assert(IS_DENSE(command_block, vars, 16), "command_block");
_Static_assert(IS_DENSE(report, written_bytes, 72), "report");
_Static_assert(IS_DENSE(order, unused, 16), "order");

_Static_assert(LIMITS == RLIM_NLIMITS && LIMITS <= 32, "one bit of limits_set for each limit");
_Static_assert(LAUNCH_FDS == LAUNCH_STDERR + 1, "the descriptors of a launch");
_Static_assert(MOST_FDS == LAUNCH_FDS + MOST_CGROUPS + MOST_KEPT, "all descriptors of a launch");
_Static_assert(sizeof(((struct launch_request *)0)->keep) == MOST_KEPT * sizeof(int32_t), "a number for each kept");
_Static_assert(WNOHANG == 1 && __WALL == 0x40000000, "wait4(2)");
