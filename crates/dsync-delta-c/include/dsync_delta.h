/* Signatures and deltas as jobs over buffers: make a signature of an old file (the basis), load it,
 * make the delta of a new file against it, apply the delta to the basis.
 *
 * Begin a job, call dsync_delta_iter with an input and an output buffer until it returns something
 * else than BLOCKED, and free the job. No job does input or output, starts a thread or takes a lock.
 *
 *   pointers  May be null only where a comment says so. Null or misaligned ones elsewhere, and
 *             overlapping buffers, are answered with null or ERROR_ARGUMENT. The caller answers for
 *             the rest: a job or signature must come from this library and not be freed yet, and
 *             buffers must be as long as they say.
 *   threads   One thread at a time uses a job. Jobs on several threads may share a signature.
 *   errors    Final: the job answers every later call with the same error. Free it. ERROR_ARGUMENT
 *             alone is about the call: the job is as it was before, and can go on.
 *   panics    Never cross into the caller. They end the job with ERROR_INTERNAL, if the library was
 *             built with panics that unwind (cargo's default), else the program.
 *   memory    Memory that the system refuses aborts the program.
 *   output    Is written, never read. What an apply job wrote is the new file only after DONE.
 */

#ifndef DSYNC_DELTA_H
#define DSYNC_DELTA_H

/* Written from src/lib.rs by `DSYNC_BLESS=1 cargo test -p dsync-delta-c`. */

#include <stddef.h>
#include <stdint.h>

// The result of a call. Values from 100 on are errors, and final but for `ERROR_ARGUMENT`.
typedef enum dsync_delta_result {
  // The job is done, and all of its output was written.
  DSYNC_DELTA_RESULT_DONE = 0,
  // All input was taken, or the output buffer is full: call again with more of either.
  DSYNC_DELTA_RESULT_BLOCKED = 1,
  // A pointer is null, misaligned or overlaps another, or a length is out of range. The job is as it
  // was before the call.
  DSYNC_DELTA_RESULT_ERROR_ARGUMENT = 100,
  // The callback failed to read the basis.
  DSYNC_DELTA_RESULT_ERROR_READ = 101,
  // The input is not what the job reads: neither a signature nor a delta, or the other one.
  DSYNC_DELTA_RESULT_ERROR_FOREIGN = 102,
  // The input has a version or a parameter that this library does not read.
  DSYNC_DELTA_RESULT_ERROR_VERSION = 103,
  // The input ends too early.
  DSYNC_DELTA_RESULT_ERROR_TRUNCATED = 104,
  // The input is damaged or malformed.
  DSYNC_DELTA_RESULT_ERROR_DAMAGED = 105,
  // The input exceeds a limit of the caller's.
  DSYNC_DELTA_RESULT_ERROR_LIMIT = 106,
  // The delta belongs to another basis: its length or the root of the output is wrong.
  DSYNC_DELTA_RESULT_ERROR_BASIS = 107,
  // A fault of this library.
  DSYNC_DELTA_RESULT_ERROR_INTERNAL = 108,
} dsync_delta_result;

// A job between two calls. C knows it only by its address.
typedef struct dsync_delta_job dsync_delta_job;

// A signature in memory, ready for any number of deltas.
typedef struct dsync_delta_signature dsync_delta_signature;

// Reads up to `*len` bytes of the basis from `offset` on into `buffer` and sets `*len` to the number
// of bytes read: 0 only at the end. Returns 0, or another number for an error. Must not throw, and
// must not call a function of this library on the job that called it.
typedef int (*dsync_delta_read_basis)(void *opaque, uint64_t offset, uint8_t *buffer, size_t *len);

// The caller's buffers. Each call advances the pointers and reduces the lengths by what it used.
typedef struct dsync_delta_buffers {
  // Next byte of input. May be null if `avail_in` is 0.
  const uint8_t *next_in;
  // Number of bytes at `next_in`, all initialised.
  size_t avail_in;
  // Not 0 if no input follows the bytes at `next_in`.
  int eof_in;
  // Next byte of output. May be null if `avail_out` is 0. Need not be initialised.
  uint8_t *next_out;
  // Room at `next_out` in bytes.
  size_t avail_out;
} dsync_delta_buffers;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Starts a job that reads a basis and writes its signature.
//
// `block_len` is a power of two from 1024 to 4194304, or 0 for 8192. `key` points to 32 bytes, best
// random ones, or is null for a fixed key; see "Odds of a false match" in the crate's documentation.
// Returns null if `block_len` is another number. Free the job with `dsync_delta_job_free`.
//
// # Safety
// `key` is null or points to 32 initialised bytes.
struct dsync_delta_job *dsync_delta_signature_begin(uint32_t block_len,
                                                    const uint8_t *key);

// Starts a job that reads a signature and writes nothing. Once it is done,
// `dsync_delta_take_signature` returns the signature.
//
// `max_blocks` bounds the memory, at most 60 bytes for each; 0 stands for 2^32.
// Returns null only if there is a fault in this library.
struct dsync_delta_job *dsync_delta_load_begin(uint64_t max_blocks);

// Returns the signature of a loading job that is done, once. Returns null from any other job.
// Free the signature with `dsync_delta_signature_free`.
//
// # Safety
// `job` is null or a job that was not freed.
struct dsync_delta_signature *dsync_delta_take_signature(struct dsync_delta_job *job);

// Starts a job that reads a new file and writes its delta against the basis of a signature.
//
// The signature may be freed at once: the job keeps what it needs. Returns null if it is null.
//
// # Safety
// `signature` is null or a signature that was not freed.
struct dsync_delta_job *dsync_delta_delta_begin(const struct dsync_delta_signature *signature);

// Starts a job that reads a delta, applies it to the basis that `read` returns, and writes the new
// file. Only `DONE` means that the output is the new file: do not use it before.
//
// `opaque` is passed to `read` and may be null. `max_len` bounds the new file in bytes; 0 stands for
// no limit. Returns null if `read` is null.
//
// # Safety
// `read` keeps the contract of its type, and `opaque` is valid for it, as long as the job is used.
struct dsync_delta_job *dsync_delta_apply_begin(dsync_delta_read_basis read,
                                                void *opaque,
                                                uint64_t max_len);

// Works until all input is taken, the output buffer is full, or the job is done.
//
// Returns `BLOCKED` as long as the job needs more input or room, `DONE` when it is done (also when
// called again), or an error.
//
// # Safety
// `job` is null or a job that was not freed. `buffers` is null or points to initialised buffers:
// `avail_in` bytes at `next_in` can be read, and `avail_out` bytes at `next_out` written.
enum dsync_delta_result dsync_delta_iter(struct dsync_delta_job *job,
                                         struct dsync_delta_buffers *buffers);

// Frees a job in any state. Does nothing with null.
//
// # Safety
// `job` is null or a job that was not freed. It must not be used afterwards.
void dsync_delta_job_free(struct dsync_delta_job *job);

// Frees a signature. Jobs that were started with it go on. Does nothing with null.
//
// # Safety
// `signature` is null or a signature that was not freed. It must not be used afterwards.
void dsync_delta_signature_free(struct dsync_delta_signature *signature);

// Returns a sentence about a result, in English. It is a constant and must not be freed.
const char *dsync_delta_message(int result);

// Returns the version of the formats that this library writes and reads.
uint32_t dsync_delta_format_version(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* DSYNC_DELTA_H */
