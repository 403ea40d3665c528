/* Every job with buffers of odd lengths, as `rdiff -I N -O N` runs librsync's: whichever way input and
 * output are cut, a job writes the bytes that it writes when all of both is there at once, and a bad
 * input ends it with the same error. Prints "all jobs passed" at the end. */
#include "bytes.h"

typedef enum { SIGNATURE, LOAD, DELTA, APPLY } kind;

/* The lengths of one buffer, call by call: always the same one, or (EACH) drawn for every call. */
typedef struct {
    size_t fixed;
    uint64_t *dice;
} lengths;

#define EACH ((size_t)-1)

/* The longest buffer that is drawn; 65537 is beyond every frame and below a step of the library. */
#define LONGEST 65537

static uint64_t draw(uint64_t *dice, uint64_t below) {
    *dice ^= *dice << 13;
    *dice ^= *dice >> 7;
    *dice ^= *dice << 17;
    return (*dice >> 16) % below;
}

static size_t next_len(lengths lengths) {
    static const size_t odd[] = {0, 1, 7, 4095, LONGEST};
    if (lengths.fixed != EACH) {
        return lengths.fixed;
    }
    uint64_t which = draw(lengths.dice, 8);
    return which < 5 ? odd[which] : (size_t)draw(lengths.dice, which == 5 ? 100 : LONGEST);
}

/* The result of a job and all of its output. */
typedef struct {
    dsync_delta_result result;
    bytes output;
} outcome;

/* More than any job here writes: one that never ends fails. */
#define MOST_OUTPUT ((size_t)16 << 20)

static void append(bytes *output, size_t *room, const uint8_t *made, size_t len) {
    CHECK(output->len + len <= MOST_OUTPUT);
    while (output->len + len > *room) {
        *room *= 2;
        output->bytes = realloc(output->bytes, *room);
        CHECK(output->bytes != NULL);
    }
    if (len > 0) {
        memcpy(output->bytes + output->len, made, len);
        output->len += len;
    }
}

/* A buffer that is an allocation of exactly `len` bytes, so that a sanitizer sees every byte beside
 * it: null if there are none. */
static void fit(bytes *buffer, size_t len) {
    if (buffer->bytes != NULL && buffer->len == len) {
        return;
    }
    free(buffer->bytes);
    buffer->bytes = len > 0 ? malloc(len) : NULL;
    buffer->len = len;
    CHECK(len == 0 || buffer->bytes != NULL);
}

/* Runs a job to its end. With `late_end`, the end of the input is told by a call without input. */
static outcome run(dsync_delta_job *job, bytes input, lengths in_lens, lengths out_lens, int late_end) {
    bytes in = {NULL, 0}, out = {NULL, 0};
    size_t at = 0, room = 4096;
    dsync_delta_buffers buffers = {NULL, 0, 0, NULL, 0};
    outcome made = {DSYNC_DELTA_RESULT_BLOCKED, {malloc(room), 0}};
    CHECK(job != NULL && made.output.bytes != NULL);

    while (made.result == DSYNC_DELTA_RESULT_BLOCKED) {
        /* rdiff, too, reads on only when all that it had read was taken. */
        if (buffers.avail_in == 0) {
            size_t len = next_len(in_lens), left = input.len - at;
            len = len < left ? len : left;
            buffers.eof_in = late_end ? left == 0 : at + len == input.len;
            fit(&in, len);
            if (len > 0) {
                memcpy(in.bytes, input.bytes + at, len);
            }
            at += len;
            buffers.next_in = in.bytes;
            buffers.avail_in = len;
        }
        size_t given = buffers.avail_in, out_len = next_len(out_lens);
        const uint8_t *from = buffers.next_in;
        fit(&out, out_len);
        buffers.next_out = out.bytes;
        buffers.avail_out = out_len;
        made.result = dsync_delta_iter(job, &buffers);

        size_t taken = given - buffers.avail_in, len = out_len - buffers.avail_out;
        CHECK(taken <= given && len <= out_len);
        CHECK(taken == 0 ? buffers.next_in == from : buffers.next_in == from + taken);
        CHECK(len == 0 ? buffers.next_out == out.bytes : buffers.next_out == out.bytes + len);
        /* A blocked job has used up one of its buffers, and can get on with a longer one. */
        if (made.result == DSYNC_DELTA_RESULT_BLOCKED) {
            CHECK(buffers.avail_in == 0 || buffers.avail_out == 0);
            CHECK(taken > 0 || len > 0 || out_len == 0 || (given == 0 && !buffers.eof_in));
        }
        append(&made.output, &room, out.bytes, len);
    }

    /* An end is final: whatever the caller offers, nothing is taken or made. */
    uint8_t more[2] = {1, 2};
    dsync_delta_buffers after = {more, 1, 0, more + 1, 1};
    CHECK(dsync_delta_iter(job, &after) == made.result);
    CHECK(after.avail_in == 1 && after.avail_out == 1 && more[1] == 2);
    free(in.bytes);
    free(out.bytes);
    return made;
}

/* Runs a job with all of its input and with room for all of its output: one call. */
static outcome run_whole(dsync_delta_job *job, bytes input, size_t room) {
    outcome made = {DSYNC_DELTA_RESULT_BLOCKED, {malloc(room), 0}};
    dsync_delta_buffers buffers = {input.bytes, input.len, 1, made.output.bytes, room};
    CHECK(job != NULL && made.output.bytes != NULL);
    made.result = dsync_delta_iter(job, &buffers);
    CHECK(made.result != DSYNC_DELTA_RESULT_BLOCKED);
    made.output.len = room - buffers.avail_out;
    dsync_delta_job_free(job);
    return made;
}

/* A basis, a new file, and what each job makes of them at once. */
typedef struct {
    bytes basis, new_file, signature, delta;
    dsync_delta_signature *loaded;
} whole;

static const uint8_t KEY[32] = {4, 5, 6};

static dsync_delta_job *begin(kind kind, const whole *whole) {
    switch (kind) {
    case SIGNATURE:
        return dsync_delta_signature_begin(1024, KEY);
    case LOAD:
        return dsync_delta_load_begin(0);
    case DELTA:
        return dsync_delta_delta_begin(whole->loaded);
    default:
        return dsync_delta_apply_begin(read_basis, (void *)&whole->basis, 0);
    }
}

static dsync_delta_signature *loaded(dsync_delta_job *job) {
    dsync_delta_signature *signature = dsync_delta_take_signature(job);
    CHECK(signature != NULL);
    dsync_delta_job_free(job);
    return signature;
}

static whole at_once(bytes basis, bytes new_file) {
    whole whole = {basis, new_file, {NULL, 0}, {NULL, 0}, NULL};
    size_t room = 2 * (basis.len + new_file.len) + 4096;
    outcome made = run_whole(begin(SIGNATURE, &whole), basis, room);
    CHECK(made.result == DSYNC_DELTA_RESULT_DONE);
    whole.signature = made.output;

    dsync_delta_job *job = begin(LOAD, &whole);
    dsync_delta_buffers buffers = {whole.signature.bytes, whole.signature.len, 1, NULL, 0};
    CHECK(dsync_delta_iter(job, &buffers) == DSYNC_DELTA_RESULT_DONE && buffers.avail_in == 0);
    whole.loaded = loaded(job);

    made = run_whole(begin(DELTA, &whole), new_file, room);
    CHECK(made.result == DSYNC_DELTA_RESULT_DONE);
    whole.delta = made.output;
    made = run_whole(begin(APPLY, &whole), whole.delta, room);
    CHECK(made.result == DSYNC_DELTA_RESULT_DONE && made.output.len == new_file.len);
    CHECK(memcmp(made.output.bytes, new_file.bytes, new_file.len) == 0);
    free(made.output.bytes);
    return whole;
}

static void free_whole(whole whole) {
    free(whole.basis.bytes);
    free(whole.new_file.bytes);
    free(whole.signature.bytes);
    free(whole.delta.bytes);
    dsync_delta_signature_free(whole.loaded);
}

/* Runs a job in pieces and compares its output with that of one call. */
static void same(dsync_delta_job *job, bytes input, bytes expected, lengths in, lengths out, int late_end) {
    outcome made = run(job, input, in, out, late_end);
    CHECK(made.result == DSYNC_DELTA_RESULT_DONE && made.output.len == expected.len);
    CHECK(memcmp(made.output.bytes, expected.bytes, expected.len) == 0);
    free(made.output.bytes);
}

/* Runs all four jobs in pieces of these lengths. */
static void in_pieces(const whole *whole, lengths in, lengths out, int late_end) {
    dsync_delta_job *job = begin(SIGNATURE, whole);
    same(job, whole->basis, whole->signature, in, out, late_end);
    dsync_delta_job_free(job);

    job = begin(LOAD, whole);
    same(job, whole->signature, (bytes){(uint8_t *)"", 0}, in, out, late_end);
    dsync_delta_signature *signature = loaded(job);
    job = dsync_delta_delta_begin(signature);
    dsync_delta_signature_free(signature);
    same(job, whole->new_file, whole->delta, in, out, late_end);
    dsync_delta_job_free(job);

    job = begin(APPLY, whole);
    same(job, whole->delta, whole->new_file, in, out, late_end);
    dsync_delta_job_free(job);
}

static bytes copy_of(const uint8_t *from, size_t len) {
    bytes copy = {malloc(len + 1), len};
    CHECK(copy.bytes != NULL);
    memcpy(copy.bytes, from, len);
    return copy;
}

/* A basis of `len` bytes with a new file that has copies of it, literals and zeros. */
static whole edited(size_t len) {
    bytes basis = noise(len + 1, len), other = noise(len + 2, len / 3);
    size_t skip = len > 10 ? 9 : 0;
    bytes new_file = copy_of(basis.bytes + skip, len - skip);
    memcpy(new_file.bytes + new_file.len / 2, other.bytes, other.len);
    memset(new_file.bytes + new_file.len / 4, 0, new_file.len / 8);
    free(other.bytes);
    return at_once(basis, new_file);
}

static whole unlike(size_t basis_len, size_t new_len) {
    return at_once(noise(11, basis_len), noise(12, new_len));
}

static void every_cut_makes_the_same(void) {
    static const size_t odd[] = {1, 7, 4095, LONGEST};
    whole wholes[] = {unlike(0, 0),   unlike(0, 5),      unlike(5, 0),         unlike(1, 1),
                      edited(1023),   edited(1024),      edited(1025),         edited(70001),
                      edited(1 << 20), unlike(3000, 90000), edited(5 * (1 << 20) + 3)};
    size_t count = sizeof wholes / sizeof *wholes;
    uint64_t dice = 20261126;

    for (size_t number = 0; number < count; number++) {
        const whole *whole = &wholes[number];
        size_t len = whole->basis.len + whole->new_file.len;
        /* A byte at a time is slow under a sanitizer: of long files fewer pairs are enough. */
        for (size_t pair = len > 4000000 ? 10 : 0; pair < 16; pair += len > 1000000 ? 5 : 1) {
            lengths in = {odd[pair / 4], &dice}, out = {odd[pair % 4], &dice};
            in_pieces(whole, in, out, pair % 2);
        }
        int cuts = len > 4000000 ? 2 : len > 1000000 ? 6 : 20;
        for (int cut = 0; cut < cuts; cut++) {
            lengths each = {EACH, &dice};
            in_pieces(whole, each, each, (int)draw(&dice, 2));
        }
    }
    for (size_t number = 0; number < count; number++) {
        free_whole(wholes[number]);
    }
}

/* Runs a job on a bad input, at once and in pieces; returns the error, which is the same. */
static dsync_delta_result refused(kind kind, const whole *whole, bytes input, uint64_t *dice) {
    outcome once = run_whole(begin(kind, whole), input, 4 * whole->new_file.len + 4096);
    CHECK(once.result >= DSYNC_DELTA_RESULT_ERROR_FOREIGN && once.result <= DSYNC_DELTA_RESULT_ERROR_BASIS);
    free(once.output.bytes);

    for (int cut = 0; cut < 2; cut++) {
        lengths each = {EACH, dice}, byte = {1, dice};
        dsync_delta_job *job = begin(kind, whole);
        outcome made = run(job, input, cut == 0 ? byte : each, each, (int)draw(dice, 2));
        CHECK(made.result == once.result);
        CHECK(dsync_delta_take_signature(job) == NULL);
        dsync_delta_job_free(job);
        free(made.output.bytes);
    }
    return once.result;
}

static void bad_streams_end_with_the_same_error(void) {
    whole whole = edited(3000);
    uint64_t dice = 1126;
    for (int number = 0; number < 2; number++) {
        kind kind = number == 0 ? LOAD : APPLY;
        bytes stream = number == 0 ? whole.signature : whole.delta;
        for (size_t len = 0; len < stream.len; len++) {
            bytes cut = copy_of(stream.bytes, len);
            CHECK(refused(kind, &whole, cut, &dice) == DSYNC_DELTA_RESULT_ERROR_TRUNCATED);
            free(cut.bytes);
        }
        for (size_t at = 0; at < stream.len; at++) {
            bytes damaged = copy_of(stream.bytes, stream.len);
            damaged.bytes[at] ^= (uint8_t)(1 + draw(&dice, 255));
            refused(kind, &whole, damaged, &dice);
            free(damaged.bytes);
        }
        bytes longer = copy_of(stream.bytes, stream.len);
        longer.bytes[longer.len++] = 0;
        CHECK(refused(kind, &whole, longer, &dice) == DSYNC_DELTA_RESULT_ERROR_DAMAGED);
        free(longer.bytes);
    }
    free_whole(whole);
}

int main(void) {
    every_cut_makes_the_same();
    bad_streams_end_with_the_same_error();
    puts("all jobs passed");
    return 0;
}
