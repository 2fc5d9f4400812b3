/* take_strings.c: the parser of command blocks alone, on allocations of exactly the right size, so that a sanitizer sees
 * a single byte too far. The mapping that contain-init parses ends with a page, and would hide it.
 * take_strings SEED ROUNDS: exits 0 when every answer was right. */
#include "command.c"

void *malloc(size_t);
void free(void *);
int atoi(const char *);

static unsigned state;

static unsigned next(void) {
    return state = state * 1103515245u + 12345u, state >> 16 & 0x7fff;
}

static uint32_t strings_in(const char *data, size_t size) {
    uint32_t found = 0;
    for (size_t i = 0; i < size; i++) found += !data[i];
    return found;
}

int main(int count, char **args) {
    state = (unsigned)atoi(count > 1 ? args[1] : "1");
    for (int rounds = atoi(count > 2 ? args[2] : "1000"); rounds > 0; rounds--) {
        size_t size = next() % 40;
        char *data = malloc(size), *at = data;
        for (size_t i = 0; i < size; i++) data[i] = (char)(next() % 3 ? 'a' : 0);
        uint32_t wanted = next() % 12;
        char **to = malloc((wanted + 1) * sizeof *to);
        int taken = take_strings(to, wanted, &at, data + size);
        if (taken != (wanted <= strings_in(data, size)) || (taken && to[wanted])) return 1;
        for (uint32_t i = 0; taken && i < wanted; i++)
            if (to[i] < data || to[i] >= data + size) return 2;
        free(to);
        free(data);
    }
    return 0;
}
