/* Every job from C: with buffers of every kind of size, and with every mistake that a caller can make
 * and the library can notice. Prints "all jobs passed" at the end. */
#include "bytes.h"

/* Runs a job with input and output buffers of the given lengths. Each buffer is an allocation of
 * exactly that length, so that a sanitizer sees every byte beside it. */
static dsync_delta_result run(dsync_delta_job *job, bytes input, size_t in_len, size_t out_len,
                              bytes *output) {
    uint8_t *in = malloc(in_len), *out = malloc(out_len);
    size_t at = 0, room = 1024;
    dsync_delta_buffers buffers = {NULL, 0, 0, NULL, 0};
    dsync_delta_result result = DSYNC_DELTA_RESULT_BLOCKED;
    CHECK(job != NULL && in != NULL && out != NULL);
    output->bytes = malloc(room);
    output->len = 0;
    while (result == DSYNC_DELTA_RESULT_BLOCKED) {
        if (buffers.avail_in == 0) {
            size_t len = input.len - at < in_len ? input.len - at : in_len;
            memcpy(in, input.bytes + at, len);
            at += len;
            buffers.next_in = in;
            buffers.avail_in = len;
            buffers.eof_in = at == input.len;
        }
        buffers.next_out = out;
        buffers.avail_out = out_len;
        size_t before = buffers.avail_in;
        result = dsync_delta_iter(job, &buffers);
        size_t made = out_len - buffers.avail_out;
        CHECK(buffers.next_out == out + made);
        /* A blocked job has used up one of its buffers. */
        if (result == DSYNC_DELTA_RESULT_BLOCKED) {
            CHECK(buffers.avail_in == 0 || buffers.avail_out == 0);
            CHECK(made > 0 || before > 0 || !buffers.eof_in);
        }
        while (output->len + made > room) {
            room *= 2;
            output->bytes = realloc(output->bytes, room);
            CHECK(output->bytes != NULL);
        }
        memcpy(output->bytes + output->len, out, made);
        output->len += made;
    }
    if (result == DSYNC_DELTA_RESULT_DONE) {
        CHECK(dsync_delta_iter(job, &buffers) == DSYNC_DELTA_RESULT_DONE);
    } else {
        CHECK(dsync_delta_iter(job, &buffers) == result);
    }
    free(in);
    free(out);
    return result;
}

static int failing_read(void *opaque, uint64_t offset, uint8_t *buffer, size_t *len) {
    (void)opaque, (void)offset, (void)buffer, (void)len;
    return 5;
}

static int lying_read(void *opaque, uint64_t offset, uint8_t *buffer, size_t *len) {
    (void)opaque, (void)offset, (void)buffer;
    *len += 1;
    return 0;
}

static dsync_delta_result finish(dsync_delta_job *job, bytes input, size_t in_len, size_t out_len,
                                 bytes *output) {
    dsync_delta_result result = run(job, input, in_len, out_len, output);
    dsync_delta_job_free(job);
    return result;
}

static dsync_delta_signature *load(bytes signature, size_t in_len) {
    bytes nothing;
    dsync_delta_job *job = dsync_delta_load_begin(0);
    CHECK(run(job, signature, in_len, 1, &nothing) == DSYNC_DELTA_RESULT_DONE);
    CHECK(nothing.len == 0);
    free(nothing.bytes);
    dsync_delta_signature *loaded = dsync_delta_take_signature(job);
    CHECK(loaded != NULL && dsync_delta_take_signature(job) == NULL);
    dsync_delta_job_free(job);
    return loaded;
}

/* Makes signature and delta and applies it, with buffers of the given lengths. */
static void round_trip(bytes basis, bytes new_file, uint32_t block_len, size_t in_len, size_t out_len) {
    uint8_t key[32] = {1, 2, 3};
    bytes signature, delta, rebuilt;
    dsync_delta_job *job = dsync_delta_signature_begin(block_len, block_len ? key : NULL);
    CHECK(finish(job, basis, in_len, out_len, &signature) == DSYNC_DELTA_RESULT_DONE);

    dsync_delta_signature *loaded = load(signature, in_len);
    job = dsync_delta_delta_begin(loaded);
    dsync_delta_signature_free(loaded);
    CHECK(finish(job, new_file, in_len, out_len, &delta) == DSYNC_DELTA_RESULT_DONE);

    job = dsync_delta_apply_begin(read_basis, &basis, new_file.len);
    CHECK(finish(job, delta, in_len, out_len, &rebuilt) == DSYNC_DELTA_RESULT_DONE);
    CHECK(rebuilt.len == new_file.len);
    CHECK(memcmp(rebuilt.bytes, new_file.bytes, rebuilt.len) == 0);
    free(signature.bytes);
    free(delta.bytes);
    free(rebuilt.bytes);
}

static void jobs_rebuild(void) {
    size_t lens[] = {0, 1, 1023, 1024, 1025, 70000, 3000000};
    for (size_t number = 0; number < sizeof lens / sizeof *lens; number++) {
        size_t len = lens[number];
        bytes basis = noise(1, len), edited = noise(1, len), other = noise(2, len / 2);
        if (len > 0) {
            edited.bytes[len / 2] ^= 1;
        }
        bytes shifted = {edited.bytes + (len > 9 ? 9 : 0), len > 9 ? len - 9 : len};
        size_t step = len > 100000 ? 60000 : 7;
        round_trip(basis, basis, 0, 4096, 4096);
        round_trip(basis, edited, 1024, step, 1000000);
        round_trip(basis, shifted, 2048, 1000000, step);
        round_trip(basis, other, 4194304, step, step);
        if (len <= 1025) {
            round_trip(basis, shifted, 1024, 1, 1);
        }
        free(basis.bytes);
        free(edited.bytes);
        free(other.bytes);
    }
}

/* Each error that input can cause. */
static void bad_input_is_named(void) {
    bytes basis = noise(3, 50000), signature, delta, out, rest;
    CHECK(finish(dsync_delta_signature_begin(1024, NULL), basis, 999, 999, &signature) ==
          DSYNC_DELTA_RESULT_DONE);
    dsync_delta_signature *loaded = load(signature, 100000);
    CHECK(finish(dsync_delta_delta_begin(loaded), basis, 999, 999, &delta) == DSYNC_DELTA_RESULT_DONE);
    dsync_delta_signature_free(loaded);

#define FAILS(job, input, result)                                              \
    do {                                                                       \
        CHECK(finish(job, input, 1000, 1000, &out) == (result));               \
        free(out.bytes);                                                       \
    } while (0)
    FAILS(dsync_delta_load_begin(0), basis, DSYNC_DELTA_RESULT_ERROR_FOREIGN);
    FAILS(dsync_delta_load_begin(0), delta, DSYNC_DELTA_RESULT_ERROR_FOREIGN);
    FAILS(dsync_delta_load_begin(48), signature, DSYNC_DELTA_RESULT_ERROR_LIMIT);
    FAILS(dsync_delta_apply_begin(read_basis, &basis, 49999), delta, DSYNC_DELTA_RESULT_ERROR_LIMIT);
    FAILS(dsync_delta_apply_begin(failing_read, NULL, 0), delta, DSYNC_DELTA_RESULT_ERROR_READ);
    FAILS(dsync_delta_apply_begin(lying_read, NULL, 0), delta, DSYNC_DELTA_RESULT_ERROR_READ);
    rest = delta;
    rest.len -= 1;
    FAILS(dsync_delta_apply_begin(read_basis, &basis, 0), rest, DSYNC_DELTA_RESULT_ERROR_TRUNCATED);
    rest.len = 0;
    FAILS(dsync_delta_apply_begin(read_basis, &basis, 0), rest, DSYNC_DELTA_RESULT_ERROR_TRUNCATED);
    basis.bytes[7] ^= 1;
    FAILS(dsync_delta_apply_begin(read_basis, &basis, 0), delta, DSYNC_DELTA_RESULT_ERROR_BASIS);
    basis.len -= 10000;
    FAILS(dsync_delta_apply_begin(read_basis, &basis, 0), delta, DSYNC_DELTA_RESULT_ERROR_BASIS);
    signature.bytes[8] = 9;
    FAILS(dsync_delta_load_begin(0), signature, DSYNC_DELTA_RESULT_ERROR_VERSION);
    signature.bytes[8] = 1;
    for (size_t at = 0; at < delta.len; at++) {
        delta.bytes[at] ^= 4;
        dsync_delta_result result =
            finish(dsync_delta_apply_begin(read_basis, &basis, 0), delta, 1000, 1000, &out);
        CHECK(result >= DSYNC_DELTA_RESULT_ERROR_FOREIGN && result <= DSYNC_DELTA_RESULT_ERROR_BASIS);
        free(out.bytes);
        delta.bytes[at] ^= 4;
    }
    free(basis.bytes);
    free(signature.bytes);
    free(delta.bytes);
}

/* Each mistake with pointers that can be noticed. */
static void bad_pointers_are_refused(void) {
    uint8_t byte[64] = {0};
    dsync_delta_buffers buffers = {byte, 8, 0, byte + 8, 8};
    dsync_delta_job *job = dsync_delta_signature_begin(0, NULL);
    CHECK(dsync_delta_signature_begin(1000, NULL) == NULL);
    CHECK(dsync_delta_signature_begin(8388608, NULL) == NULL);
    CHECK(dsync_delta_apply_begin(NULL, NULL, 0) == NULL);
    CHECK(dsync_delta_delta_begin(NULL) == NULL);
    CHECK(dsync_delta_take_signature(NULL) == NULL);
    CHECK(dsync_delta_take_signature(job) == NULL);
    CHECK(dsync_delta_iter(NULL, &buffers) == DSYNC_DELTA_RESULT_ERROR_ARGUMENT);
    CHECK(dsync_delta_iter(job, NULL) == DSYNC_DELTA_RESULT_ERROR_ARGUMENT);
    void *crooked = (char *)job + 1;
    CHECK(dsync_delta_iter(crooked, &buffers) == DSYNC_DELTA_RESULT_ERROR_ARGUMENT);
    CHECK(dsync_delta_take_signature(crooked) == NULL);
    dsync_delta_job_free(crooked);
    crooked = byte + 1;
    CHECK(dsync_delta_iter(job, crooked) == DSYNC_DELTA_RESULT_ERROR_ARGUMENT);
    CHECK(dsync_delta_delta_begin(crooked) == NULL);
    dsync_delta_signature_free(crooked);

    buffers.next_in = NULL;
    CHECK(dsync_delta_iter(job, &buffers) == DSYNC_DELTA_RESULT_ERROR_ARGUMENT);
    buffers.next_in = byte;
    buffers.next_out = NULL;
    CHECK(dsync_delta_iter(job, &buffers) == DSYNC_DELTA_RESULT_ERROR_ARGUMENT);
    buffers.next_out = byte + 7;
    CHECK(dsync_delta_iter(job, &buffers) == DSYNC_DELTA_RESULT_ERROR_ARGUMENT);
    buffers.next_out = byte + 8;
    buffers.avail_in = (size_t)-1;
    CHECK(dsync_delta_iter(job, &buffers) == DSYNC_DELTA_RESULT_ERROR_ARGUMENT);
    buffers.avail_in = 8;
    /* None of that has changed the job. */
    CHECK(dsync_delta_iter(job, &buffers) == DSYNC_DELTA_RESULT_BLOCKED);
    CHECK(buffers.avail_out == 0 && memcmp(byte + 8, "DSYNCSIG", 8) == 0);

    dsync_delta_job_free(job);
    dsync_delta_job_free(NULL);
    dsync_delta_signature_free(NULL);
    CHECK(strcmp(dsync_delta_message(DSYNC_DELTA_RESULT_DONE), "done") == 0);
    CHECK(strcmp(dsync_delta_message(99), "unknown result") == 0);
    CHECK(dsync_delta_format_version() == 1);
}

int main(void) {
    jobs_rebuild();
    bad_input_is_named();
    bad_pointers_are_refused();
    puts("all jobs passed");
    return 0;
}
