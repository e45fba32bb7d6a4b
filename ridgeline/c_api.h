#ifndef RIDGELINE_C_API_H
#define RIDGELINE_C_API_H

/* Ridgeline's C interface: load a model, prepare it for a batch size, run it on your own memory.
 * docs/c-api.md explains it with examples. It is stable: functions and values are added, never
 * changed or removed, and RIDGELINE_C_API_VERSION counts the additions.
 *
 * Functions that can fail return a ridgeline_status; RIDGELINE_OK is 0. What failed is then said,
 * in one line, by ridgeline_last_error() on the same thread. No exception leaves this interface,
 * and no argument ends the process: null handles and pointers are answered with RIDGELINE_USAGE.
 *
 * One predictor serves one call at a time. Prepare one for each thread to compute at once. A
 * predictor does not need the model that it was prepared from any more. */

#include <stddef.h>
#include <stdint.h>

#define RIDGELINE_C_API_VERSION 2

#if defined(__GNUC__)
#define RIDGELINE_API __attribute__((visibility("default")))
#else
#define RIDGELINE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ridgeline_status {
  RIDGELINE_OK = 0,
  RIDGELINE_USAGE = 1,   /* an argument does not fit */
  RIDGELINE_DATA = 2,    /* a sample is not what the model takes */
  RIDGELINE_MODEL = 3,   /* the file is no model, or is damaged */
  RIDGELINE_NUMERIC = 4, /* a number that is not finite */
  RIDGELINE_IO = 5,      /* a file could not be read */
  RIDGELINE_DEVICE = 6,  /* the device is not there or has no memory left */
  RIDGELINE_COMM = 7,    /* other ranks */
  RIDGELINE_MEMORY = 8,  /* the host has no memory left */
  RIDGELINE_INTERNAL = 9 /* a fault of the library */
} ridgeline_status;

typedef enum ridgeline_type {
  RIDGELINE_OWN = 0,     /* what the model takes: see ridgeline_input_type() */
  RIDGELINE_FLOAT32 = 1, /* of a model of bytes: 0 to 255, scaled as its bytes are */
  RIDGELINE_UINT8 = 2    /* bytes of pixels, or codes of characters */
} ridgeline_type;

typedef struct ridgeline_model ridgeline_model;
typedef struct ridgeline_predictor ridgeline_predictor;

/* ------------------------------------------------------------------------------------- library */

RIDGELINE_API const char* ridgeline_version(void); /* "0.2.0", of the library that is loaded */
RIDGELINE_API int ridgeline_c_api_version(void);   /* RIDGELINE_C_API_VERSION of that library */
/* One line about the last call of this thread that failed; "" before any did. It is overwritten by
 * the next one. */
RIDGELINE_API const char* ridgeline_last_error(void);

/* --------------------------------------------------------------------------------------- model */

/* Reads a model file (.safetensors) or the folder of a run. */
RIDGELINE_API ridgeline_status ridgeline_load(const char* path, ridgeline_model** model);
RIDGELINE_API void ridgeline_free_model(ridgeline_model* model); /* null: nothing */

/* Names by output of a classifier; 0 of them for a regressor. The text lives as long as the model;
 * null for an index that is none. */
RIDGELINE_API int64_t ridgeline_class_count(const ridgeline_model* model);
RIDGELINE_API const char* ridgeline_class_name(const ridgeline_model* model, int64_t index);

/* ------------------------------------------------------------------------------------- prepare */

/* Makes a plan for calls of up to `batch` samples. `device` is "cpu", "cuda", "cuda:1" or null,
 * which is the first GPU that there is, else the CPU. `threads` are those of the CPU that may
 * compute, the caller's included; 0: all that this process may use. With one thread on the CPU,
 * ridgeline_run() and ridgeline_step() allocate nothing, take no lock, wake no thread and make no
 * system call. The first preparation on a machine measures kernels (a second or so) and keeps the
 * result in
 * ~/.cache/ridgeline. */
RIDGELINE_API ridgeline_status ridgeline_prepare(const ridgeline_model* model, int64_t batch,
                                                 const char* device, int threads,
                                                 ridgeline_type type,
                                                 ridgeline_predictor** predictor);
/* Likewise for ridgeline_step(): `streams` sequences go on side by side, one timestep a call. For
 * models of unidirectional rnn, gru and lstm layers and layers that compute each timestep alone. */
RIDGELINE_API ridgeline_status ridgeline_prepare_steps(const ridgeline_model* model,
                                                       int64_t streams, const char* device,
                                                       int threads, ridgeline_type type,
                                                       ridgeline_predictor** predictor);
/* A net that stays on a GPU: its weights lie in shared memory, and multiprocessors poll the host's
 * memory for the next call, so that a call costs no launch. For calls of one sample or, with
 * `timesteps` not 0, of one timestep of one stream; for nets of linear and unidirectional recurrent
 * layers in fp32 that fit on 16 multiprocessors, on GPUs from compute capability 9.0; others are
 * refused. `device` is "cuda", "cuda:1" or null. The multiprocessors are taken from other work
 * until no call has come for `idle_seconds`, and again at the next call, which takes some
 * microseconds more; 0: until the predictor is freed. While they are taken, calls of CUDA that wait
 * for the whole GPU (cudaMalloc, cudaFree, cudaDeviceSynchronize) wait in this process. Since
 * version 2. */
RIDGELINE_API ridgeline_status ridgeline_prepare_resident(const ridgeline_model* model,
                                                          const char* device, int timesteps,
                                                          double idle_seconds, ridgeline_type type,
                                                          ridgeline_predictor** predictor);
RIDGELINE_API void ridgeline_free_predictor(ridgeline_predictor* predictor); /* null: nothing */

/* What a predictor takes and gives. Sizes count numbers, and a null predictor has none. */
RIDGELINE_API int64_t ridgeline_batch(const ridgeline_predictor* predictor);
RIDGELINE_API ridgeline_type ridgeline_input_type(const ridgeline_predictor* predictor);
RIDGELINE_API int64_t ridgeline_input_size(const ridgeline_predictor* predictor);
RIDGELINE_API int64_t ridgeline_output_size(const ridgeline_predictor* predictor);
/* The shape of one sample (of one timestep): writes up to `most` extents, returns how many it has.
 */
RIDGELINE_API int ridgeline_input_shape(const ridgeline_predictor* predictor, int64_t* extents,
                                        int most);

/* ----------------------------------------------------------------------------------------- run */

/* outputs[count][output size] = the model's answers for samples[count][input size]: probabilities
 * of a classifier, values of a regressor in the units of its targets. 0 <= count <= batch. */
RIDGELINE_API ridgeline_status ridgeline_run(ridgeline_predictor* predictor, const void* samples,
                                             int64_t count, float* outputs);
/* outputs[streams][output size] after one more timestep[streams][input size] of each stream. */
RIDGELINE_API ridgeline_status ridgeline_step(ridgeline_predictor* predictor, const void* timestep,
                                              float* outputs);

/* The recurrent state of all streams: `size` bytes of the caller's, which must be
 * ridgeline_state_size(). A state may be restored in another predictor of the same model, streams
 * and precision. */
RIDGELINE_API size_t ridgeline_state_size(const ridgeline_predictor* predictor);
RIDGELINE_API ridgeline_status ridgeline_save_state(const ridgeline_predictor* predictor,
                                                    void* state, size_t size);
RIDGELINE_API ridgeline_status ridgeline_restore_state(ridgeline_predictor* predictor,
                                                       const void* state, size_t size);
/* As it was before the first timestep: zeros. */
RIDGELINE_API ridgeline_status ridgeline_reset_state(ridgeline_predictor* predictor);

#ifdef __cplusplus
}
#endif

#endif /* RIDGELINE_C_API_H */
