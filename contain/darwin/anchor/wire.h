/* wire.h: what the supervisor and the anchor say to each other over one stream socket.
 *
 * First the supervisor sends a command_block. Then orders go to the anchor, and reports come back. Both are built from
 * one tree and run on one machine, so all is in native byte order; WIRE_VERSION guards a half-upgraded installation. */
#include <stdint.h>

#define WIRE_VERSION 2
#define MOST_BLOCK_BYTES (16u << 20)
#define MOST_LIMITS 16
#define NICE_KEEP 100           /* no valid nice value: leave it as it is */

struct block_limit {
    uint32_t resource, padding; /* setrlimit(2) */
    uint64_t soft, hard;
};

/* Then, each ended by NUL: `paths` file names to try in turn, `args` arguments, `vars` NAME=VALUE. */
struct command_block {
    uint32_t version, bytes;    /* bytes: of the strings */
    uint32_t paths, args, vars;
    uint32_t umask;
    int32_t nice;
    uint32_t limits;            /* how many of these are filled */
    struct block_limit limit[MOST_LIMITS];
};

#define ORDER_OPEN 'G'          /* the gate: may come once, first; any other first order, and EOF, is a refusal */
#define ORDER_SIGNAL 'S'        /* to the command's process alone */
#define ORDER_GROUP 'P'         /* to the whole group, and to the command where it has left it */

struct order {
    uint8_t kind, number;       /* of the signal; with ORDER_OPEN: 1, the command takes the terminal */
};

enum step { STEP_NONE, STEP_DIRECTORY, STEP_LIMITS, STEP_FORK, STEP_EXEC };

enum report_kind { REPORT_READY = 1, REPORT_BROKE, REPORT_STARTED, REPORT_ENDED, REPORT_STOPPED };

struct report {
    uint32_t kind;
    int32_t status;             /* wait(2)'s, of the command */
    uint32_t step;
    int32_t error;              /* errno of the step that failed */
    int32_t pid, group;         /* of the command; the group only when it has stopped */
    uint64_t user_us, system_us, max_rss_bytes;
};
