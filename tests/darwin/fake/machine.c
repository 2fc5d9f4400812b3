/* machine.c: sysctl by name, memory and processor ticks. The values are this machine's, counted in Darwin's units. */
#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "server.h"

enum { OVERRIDES = 16, DEFAULT_PAGE = 16384 };

int64_t page_bytes = DEFAULT_PAGE;
bool stale_vm;

static char boot_session[37];
static struct {
    char name[48], value[96];
} overrides[OVERRIDES];

void new_boot_session(void) {
    uint8_t random[16];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random) abort();
    char *to = boot_session;
    for (int i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10) *to++ = '-';
        to += sprintf(to, "%02X", random[i]);
    }
}

void machine_open(void) {
    new_boot_session();
}

static const char *overridden(const char *name) {
    for (int i = 0; i < OVERRIDES; i++)
        if (!strcmp(overrides[i].name, name)) return overrides[i].value;
    return NULL;
}

bool override_sysctl(const char *name, const char *value) {
    for (int i = 0; i < OVERRIDES; i++) {
        if (overrides[i].name[0] && strcmp(overrides[i].name, name)) continue;
        snprintf(overrides[i].name, sizeof overrides[i].name, "%s", name);
        snprintf(overrides[i].value, sizeof overrides[i].value, "%s", value);
        return true;
    }
    return false;
}

void forget_overrides(void) {
    memset(overrides, 0, sizeof overrides);
}

/* A value of /proc/meminfo or /proc/vmstat; 0 when it is not there. */
static uint64_t entry_of(const char *path, const char *name) {
    char line[256];
    uint64_t value = 0;
    size_t length = strlen(name);
    FILE *file = fopen(path, "re");
    if (!file) return 0;
    while (fgets(line, sizeof line, file))
        if (!strncmp(line, name, length) && (line[length] == ':' || line[length] == ' ')) {
            value = strtoull(line + length + 1, NULL, 10);
            break;
        }
    fclose(file);
    return value;
}

static uint64_t memory_bytes(const char *name) {
    return entry_of("/proc/meminfo", name) * 1024;
}

static void give(struct reply *r, const void *value, size_t bytes) {
    memcpy(r->data, value, bytes);
    r->bytes = (uint32_t)bytes;
}

static void give_text(struct reply *r, const char *text) {
    give(r, text, strlen(text) + 1);
}

static void give_boottime(struct reply *r) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t at_us = (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000 - (int64_t)(now_ns() / 1000) + clock_step_us;
    int64_t when[2] = {at_us / 1000000, at_us % 1000000};
    give(r, when, sizeof when);
}

static void give_swap(struct reply *r) {
    struct xsw_usage swap = {.xsu_pagesize = (uint32_t)page_bytes, .xsu_encrypted = 1};
    swap.xsu_total = memory_bytes("SwapTotal");
    swap.xsu_avail = memory_bytes("SwapFree");
    swap.xsu_used = swap.xsu_total - swap.xsu_avail;
    const char *said = overridden("vm.swapusage");
    unsigned long long total, avail, used;
    if (said && sscanf(said, "%llu,%llu,%llu", &total, &avail, &used) == 3) {
        swap.xsu_total = total;
        swap.xsu_avail = avail;
        swap.xsu_used = used;
    }
    give(r, &swap, sizeof swap);
}

static bool give_number(struct reply *r, const char *name) {
    static const char *const wide = "hw.memsize hw.pagesize";
    int64_t value;
    if (!strcmp(name, "hw.memsize")) value = (int64_t)memory_bytes("MemTotal");
    else if (!strcmp(name, "hw.pagesize")) value = page_bytes;
    else if (!strcmp(name, "hw.ncpu") || !strcmp(name, "hw.logicalcpu")) value = sysconf(_SC_NPROCESSORS_ONLN);
    else if (!strcmp(name, "kern.maxproc")) value = 4000;
    else if (!strcmp(name, "kern.maxprocperuid")) value = 2666;
    else if (!strcmp(name, "kern.memorystatus_vm_pressure_level")) value = 1;
    else if (!strcmp(name, "kern.memorystatus_level"))
        value = (int64_t)(memory_bytes("MemAvailable") * 100 / (memory_bytes("MemTotal") | 1));
    else return false;
    const char *said = overridden(name);
    if (said) value = atoll(said);
    int32_t narrow = (int32_t)value;
    if (strstr(wide, name)) give(r, &value, sizeof value);
    else give(r, &narrow, sizeof narrow);
    return true;
}

void answer_sysctl(const struct request *q, struct reply *r) {
    r->error = failure_of("sysctlbyname", 0, 0);
    if (r->error) return;
    const char *said = overridden(q->text);
    if (!strcmp(q->text, "kern.bootsessionuuid")) give_text(r, said ? said : boot_session);
    else if (!strcmp(q->text, "kern.osrelease")) give_text(r, said ? said : "24.4.0");
    else if (!strcmp(q->text, "kern.osproductversion")) give_text(r, said ? said : "15.4");
    else if (!strcmp(q->text, "fakexnu.filesystem")) give_text(r, said ? said : "apfs");
    else if (!strcmp(q->text, "kern.boottime")) give_boottime(r);
    else if (!strcmp(q->text, "vm.swapusage")) give_swap(r);
    else if (!give_number(r, q->text)) r->error = ENOENT;
}

static void measure(struct vm_statistics64 *vm) {
    uint64_t page = (uint64_t)page_bytes;
    memset(vm, 0, sizeof *vm);
    vm->speculative_count = (uint32_t)(memory_bytes("MemFree") / page / 16); /* counted in free and in external too */
    vm->free_count = (uint32_t)(memory_bytes("MemFree") / page);
    vm->active_count = (uint32_t)(memory_bytes("Active") / page);
    vm->inactive_count = (uint32_t)(memory_bytes("Inactive") / page);
    vm->wire_count = (uint32_t)((memory_bytes("Unevictable") + memory_bytes("Slab")) / page);
    vm->external_page_count = (uint32_t)((memory_bytes("Active(file)") + memory_bytes("Inactive(file)")) / page);
    vm->external_page_count += vm->speculative_count;
    vm->internal_page_count = (uint32_t)(memory_bytes("AnonPages") / page);
    vm->pageouts = entry_of("/proc/vmstat", "pgpgout");
    vm->swapouts = entry_of("/proc/vmstat", "pswpout");
    vm->swapins = entry_of("/proc/vmstat", "pswpin");
}

/* One cache for the whole machine: after some calls in one second everybody is given the old copy, with
 * KERN_SUCCESS. */
void answer_vm(struct reply *r) {
    static struct vm_statistics64 copy;
    static uint64_t window_ns;
    static int left;
    r->error = failure_of("host_statistics64", 0, 0);
    if (r->error) return;
    uint64_t now = now_ns();
    bool first = !window_ns;
    if (first || now - window_ns > 1000000000u) {
        window_ns = now;
        left = 2 + (int)(now / 1000 % 9);
    }
    if (first || (!stale_vm && left-- > 0)) measure(&copy);
    give(r, &copy, sizeof copy);
}

/* user (with nice), system, idle, nice = 0; ticks of 10 ms, cut to 32 bits. */
void answer_ticks(struct reply *r) {
    char line[512];
    unsigned long long user, nice, system, idle, wait, irq, soft;
    r->error = failure_of("host_processor_info", 0, 0);
    FILE *file = r->error ? NULL : fopen("/proc/stat", "re");
    if (!file) return;
    while (fgets(line, sizeof line, file)) {
        int fields = sscanf(line, "cpu%*d %llu %llu %llu %llu %llu %llu %llu", &user, &nice, &system, &idle, &wait,
                            &irq, &soft);
        if (fields != 7) continue;
        uint32_t ticks[4] = {(uint32_t)(user + nice), (uint32_t)(system + irq + soft), (uint32_t)(idle + wait), 0};
        memcpy(r->data + r->bytes, ticks, sizeof ticks);
        r->bytes += (uint32_t)sizeof ticks;
    }
    fclose(file);
    r->value = r->bytes / 16;
}
