/* client.h: inside the library: one question to the server of this world. */
#ifndef FAKE_CLIENT_H
#define FAKE_CLIENT_H

#include <stdbool.h>
#include <stddef.h>

#include "wire.h"
#include "xnu.h"

#define EXPORTED __attribute__((visibility("default")))

/* Asks and takes the answer: at most `size` bytes of data go to `to`. Sets errno to the error (0 leaves it alone) and
 * returns it; ENOTCONN when the world has ended. `value` and `bytes` (all that the server had) may be NULL. */
int ask(const struct request *q, int64_t *value, void *to, size_t size, size_t *bytes);

/* A connection of its own, or -1 with errno. */
int connect_to_world(void);

#endif
