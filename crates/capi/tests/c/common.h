// What the C programs share: checks, BF16, a stream of numbers.
#ifndef WV_TEST_COMMON_H
#define WV_TEST_COMMON_H

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <warpverbs.h>

static inline void check(wv_status status, const char *what) {
    if (status == WV_OK) return;
    fprintf(stderr, "%s: %s: %s\n", what, wv_status_name(status), wv_last_error());
    exit(1);
}

static inline void must(int holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "not so: %s\n", what);
    exit(1);
}

// A call that must be refused with `status` and words that hold `words`.
static inline void refused(wv_status got, wv_status status, const char *words) {
    if (got == status && strstr(wv_last_error(), words) != NULL) return;
    fprintf(stderr, "wanted %s, \"%s\"; got %s, \"%s\"\n", wv_status_name(status), words, wv_status_name(got),
            wv_last_error());
    exit(1);
}

// ---- BF16 ----

static inline float wide(uint16_t bits) {
    const uint32_t word = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &word, sizeof value);
    return value;
}

static inline uint16_t narrow(float value) {
    uint32_t word;
    memcpy(&word, &value, sizeof word);
    return (uint16_t)((word + 0x7fff + (word >> 16 & 1)) >> 16);
}

static inline uint32_t draw(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

// Device memory of `team`.
static inline void *device(wv_team *team, size_t bytes) {
    void *address = NULL;
    check(wv_device_alloc(team, bytes, &address), "wv_device_alloc");
    must(address != NULL && (uintptr_t)address % 256 == 0, "device memory is aligned");
    return address;
}

#endif
