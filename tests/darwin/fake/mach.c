/* mach.c: host statistics, and the few Mach calls that go with them. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#include "client.h"

EXPORTED uint32_t mach_host_self(void);
EXPORTED int mach_port_deallocate(uint32_t task, uint32_t name);
EXPORTED int vm_deallocate(uint32_t task, uintptr_t address, uintptr_t size);
EXPORTED int mach_timebase_info(struct mach_timebase_info *info);
EXPORTED uint64_t mach_absolute_time(void);
EXPORTED int host_statistics64(uint32_t host, int flavor, int *info, uint32_t *count);
EXPORTED int host_processor_info(uint32_t host, int flavor, uint32_t *cpus, int **info, uint32_t *count);
extern EXPORTED int fakexnu_host_references; /* how many the process holds: a call too many shows here */
extern EXPORTED int fakexnu_mappings;        /* how many arrays were not given back */

enum { HOST = 0x1003, WORDS_OF_A_PROCESSOR = 4, VM_WORDS = 38, VM_WORDS_OLD = 24 };

int fakexnu_host_references, fakexnu_mappings;

uint32_t mach_host_self(void) {
    fakexnu_host_references++;
    return HOST;
}

int mach_port_deallocate(uint32_t task, uint32_t name) {
    (void)task;
    if (name != HOST || !fakexnu_host_references) return KERN_INVALID_ARGUMENT;
    fakexnu_host_references--;
    return KERN_SUCCESS;
}

int vm_deallocate(uint32_t task, uintptr_t address, uintptr_t size) {
    (void)task;
    if (!address || !size) return KERN_INVALID_ADDRESS;
    if (munmap((void *)address, size)) return KERN_INVALID_ADDRESS;
    fakexnu_mappings--;
    return KERN_SUCCESS;
}

/* A unit of time that is not a nanosecond, as on Apple silicon: whoever forgets to scale is 125/3 off. */
int mach_timebase_info(struct mach_timebase_info *info) {
    *info = (struct mach_timebase_info){125, 3};
    return KERN_SUCCESS;
}

uint64_t mach_absolute_time(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return ((uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec) / 125 * 3;
}

int host_statistics64(uint32_t host, int flavor, int *info, uint32_t *count) {
    struct vm_statistics64 vm;
    struct request q = {.op = OP_VM};
    if (host != HOST || flavor != HOST_VM_INFO64) return KERN_INVALID_ARGUMENT;
    if (*count < VM_WORDS_OLD) return KERN_FAILURE;
    if (ask(&q, NULL, &vm, sizeof vm, NULL)) return KERN_FAILURE;
    *count = *count < VM_WORDS ? VM_WORDS_OLD : VM_WORDS;
    memcpy(info, &vm, *count * sizeof(int));
    return KERN_SUCCESS;
}

int host_processor_info(uint32_t host, int flavor, uint32_t *cpus, int **info, uint32_t *count) {
    static char ticks[4096 * WORDS_OF_A_PROCESSOR];
    size_t bytes;
    int64_t processors;
    struct request q = {.op = OP_TICKS};
    if (host != HOST || flavor != PROCESSOR_CPU_LOAD_INFO) return KERN_INVALID_ARGUMENT;
    if (ask(&q, &processors, ticks, sizeof ticks, &bytes)) return KERN_FAILURE;
    int *copy = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED) return KERN_FAILURE;
    memcpy(copy, ticks, bytes);
    fakexnu_mappings++;
    *info = copy;
    *cpus = (uint32_t)processors;
    *count = (uint32_t)(bytes / sizeof(int));
    return KERN_SUCCESS;
}
