/* A check that ends the program, and bytes, for the programs of these tests. */
#ifndef DSYNC_DELTA_TESTS_BYTES_H
#define DSYNC_DELTA_TESTS_BYTES_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dsync_delta.h"

#define CHECK(condition)                                                       \
    do {                                                                       \
        if (!(condition)) {                                                    \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);    \
            exit(1);                                                           \
        }                                                                      \
    } while (0)

typedef struct {
    uint8_t *bytes;
    size_t len;
} bytes;

static bytes noise(uint64_t seed, size_t len) {
    bytes made = {malloc(len + 1), len};
    uint64_t state = seed * 0x9e3779b97f4a7c15u | 1u;
    CHECK(made.bytes != NULL);
    for (size_t at = 0; at < len; at++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        made.bytes[at] = (uint8_t)(state >> 56);
    }
    return made;
}

static int read_basis(void *opaque, uint64_t offset, uint8_t *buffer, size_t *len) {
    const bytes *basis = opaque;
    size_t left = offset < basis->len ? basis->len - (size_t)offset : 0;
    /* Short reads are allowed. */
    size_t most = *len < 5000 ? *len : 5000;
    *len = left < most ? left : most;
    if (*len > 0) {
        memcpy(buffer, basis->bytes + offset, *len);
    }
    return 0;
}

#endif
