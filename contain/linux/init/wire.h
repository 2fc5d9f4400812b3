/* wire.h: every message between wrapper, keeper and init, for C and (through cffi) for Python.
 *
 * All three are built from one tree and run on one machine, so the messages are plain structs in native byte
 * order over SOCK_SEQPACKET: a message arrives whole or not at all. WIRE_VERSION guards a half-upgraded install.
 * Only declarations that cffi's parser knows may stand here. Times are milliseconds, usage is microseconds. */

#define WIRE_VERSION 2

/* The keeper's own descriptors, laid out by whoever spawns it. */
#define KEEPER_REQUESTS 3       /* SEQPACKET: launch_request in, launch_reply out */
#define KEEPER_WRAPPER 4        /* pidfd of the wrapper */
#define KEEPER_WRAPPER_LIFE 5   /* read end of a pipe whose only write end is in the wrapper */

/* The order of the descriptors that travel with a launch_request. */
#define LAUNCH_CONTROL 0        /* the init's end of the job's control socket */
#define LAUNCH_GATE 1           /* read end of the gate pipe: ends up in the gated command process alone */
#define LAUNCH_COMMAND 2        /* sealed memfd: a command_block */
#define LAUNCH_DIRECTORY 3      /* O_PATH descriptor of the job's working directory */
#define LAUNCH_STDIN 4
#define LAUNCH_STDOUT 5
#define LAUNCH_STDERR 6
#define LAUNCH_FDS 7            /* then `cgroups` cgroup.procs files to enter, then `kept` descriptors of the command */

#define MOST_WATCHED 8          /* descriptors that a waiter polls */

#define MOST_CGROUPS 16         /* one for each controller of cgroup v1 */
#define MOST_KEPT 32
#define MOST_FDS 55             /* all three together */

#define SHARED_SESSION 1        /* flags: the job stays in the session and process group of its keeper (a terminal) */
#define NO_NEW_PRIVS 2
#define NEW_NETWORK 4           /* a network of its own, with nothing but the loopback */

#define GATE_OPEN 0x47          /* the one byte that lets the command go; anything else, and EOF, is a refusal */

#define LIMITS 16               /* RLIM_NLIMITS: resource numbers of setrlimit(2) */
#define NICE_KEEP 100           /* no valid nice value: leave it as it is */

struct launch_limit {
    uint64_t soft, hard;
};

struct launch_request {
    uint32_t version;
    uint32_t leftovers_ms;      /* what is left when the command has ended may live this long before TERM */
    uint32_t kill_ms;           /* from that TERM to KILL */
    uint32_t umask;
    int32_t nice;               /* or NICE_KEEP */
    uint32_t limits_set;        /* bit n: limits[n] is to be set */
    uint32_t flags;
    uint32_t cgroups, kept;     /* how many of either came along */
    uint32_t unused;
    uint64_t drop_capabilities; /* bit n: the command and what it executes shall not have capability n */
    struct launch_limit limits[16];
    int32_t keep[32];           /* the number of each kept descriptor in the command */
};

struct launch_reply {
    int32_t error;              /* errno of the step that failed, 0 when an init runs */
    uint32_t step;
    int32_t pid;                /* of the init, as the keeper and the wrapper see it */
    uint32_t user_namespace;    /* 1: the init has a user namespace of its own */
};                              /* with one descriptor: the init's pidfd */

/* Head of the memfd: then, each ended by NUL, `paths` file names to try in turn, `args` arguments, `vars` NAME=VALUE. */
struct command_block {
    uint32_t version, paths, args, vars;
};

/* The launch, step by step. The numbers are what an error names (contain.linux.native gives them words). */
enum step {
    STEP_NONE,
    STEP_REQUEST,               /* keeper: read and check the request and who sent it */
    STEP_DIRECTORY,             /* keeper: fchdir, before the clone */
    STEP_CLONE,                 /* keeper: clone the init with its namespaces */
    STEP_ANSWER,                /* keeper: hand the init's pidfd to the wrapper */
    STEP_DETACH,                /* init: close what is the keeper's, leave its session */
    STEP_CGROUPS,               /* init: enter the cgroups that limit the job */
    STEP_SETGROUPS,             /* init: deny setgroups, as the kernel asks before a gid map */
    STEP_UID_MAP,
    STEP_GID_MAP,
    STEP_MOUNTS,                /* init: no mount of the job reaches the host */
    STEP_PROC,                  /* init: a fresh /proc */
    STEP_NETWORK,               /* init: bring up the loopback of the job's own network */
    STEP_CAPABILITIES,          /* init: drop what could be turned against the init itself */
    STEP_FIRST_PID,
    STEP_SIGNALS,
    STEP_COMMAND,               /* init: read the command block, clone the gated process */
    STEP_DEATH_SIGNAL,          /* init: arm the parent-death signal and read it back */
    STEP_PARENTS,               /* init: keeper and wrapper still live after arming */
    STEP_READY,                 /* init -> wrapper: look at me */
    STEP_ARM,                   /* wrapper -> init: seen; init: undumpable, no more to be traced */
    STEP_SESSION,               /* command process: session, descriptors, umask, nice, limits */
    STEP_DESCRIPTORS,
    STEP_LIMITS,
    STEP_PRIVILEGES,            /* command process: capabilities and no_new_privs */
    STEP_GATE,                  /* command process: wait for the one byte */
    STEP_EXEC                   /* command process: execve */
};

enum report_kind {
    REPORT_READY = 1,           /* set up; pid is 1 as the init sees itself */
    REPORT_ARMED,               /* undumpable and armed: the gate may open */
    REPORT_FAILED,              /* step and error say where the set-up ended; the init exits */
    REPORT_EXITED,              /* the command ended: status of wait4, or error of execve */
    REPORT_TERM,                /* leftovers were sent TERM and CONT */
    REPORT_KILL,                /* leftovers were sent KILL */
    REPORT_STOPPED,             /* SHARED_SESSION: the command stopped; a shell would take its terminal back */
    REPORT_EMPTY                /* every child is reaped: the last word */
};

struct report {
    uint32_t kind;
    uint32_t step;
    int32_t error;              /* errno */
    int32_t status;             /* as wait4 gives it */
    int32_t pid;                /* READY: getpid() of the init */
    uint32_t proc_fresh;        /* READY: 1 = /proc is the job's own */
    uint32_t leftovers;         /* EXITED: 1 = processes are left */
    uint32_t reaped;            /* processes reaped so far */
    uint64_t user_us, system_us;/* of all that was reaped (RUSAGE_CHILDREN) */
    uint64_t max_rss_bytes;     /* of the largest single process */
    uint64_t read_bytes, written_bytes; /* of block devices (ru_inblock, ru_oublock) */
};

enum order_kind {
    ORDER_ARM = 1,              /* the proof is taken: become undumpable */
    ORDER_CANCEL,               /* TERM and CONT to the tree, KILL after grace_ms */
    ORDER_SIGNAL                /* `signal` to the command process alone */
};

struct order {
    uint32_t kind;
    int32_t signal;
    uint32_t grace_ms;
    uint32_t unused;
};
