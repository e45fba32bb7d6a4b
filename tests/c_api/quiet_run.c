/* Proves that ridgeline_run() and ridgeline_step() allocate nothing, take no lock and make no
 * system call after the preparation: quiet_run MODEL run|step BATCH        exits 0 when none was
 * seen quiet_run MODEL run BATCH CONTROL     CONTROL is malloc, lock or syscall: it must be seen
 * Allocators and locks are interposed and counted. The calls are made in a child under strict
 * seccomp, in which the kernel kills the process at any system call but read, write and _exit. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ridgeline/c_api.h"

enum { kCalls = 200 };

static volatile long seen_allocations, seen_locks;

extern void* __libc_malloc(size_t);
extern void* __libc_calloc(size_t, size_t);
extern void* __libc_realloc(void*, size_t);
extern void* __libc_memalign(size_t, size_t);
extern void __libc_free(void*);

void* malloc(size_t bytes) {
  ++seen_allocations;
  return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
  ++seen_allocations;
  return __libc_calloc(count, bytes);
}
void* realloc(void* memory, size_t bytes) {
  ++seen_allocations;
  return __libc_realloc(memory, bytes);
}
void* memalign(size_t alignment, size_t bytes) {
  ++seen_allocations;
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void** memory, size_t alignment, size_t bytes) {
  *memory = memalign(alignment, bytes);
  return *memory == NULL ? 12 : 0;
}
void free(void* memory) {
  if (memory != NULL) ++seen_allocations;
  __libc_free(memory);
}

static int (*real_lock)(pthread_mutex_t*);
int pthread_mutex_lock(pthread_mutex_t* mutex) {
  ++seen_locks;
  if (real_lock == NULL) *(void**)&real_lock = dlsym(RTLD_NEXT, "pthread_mutex_lock");
  return real_lock(mutex);
}

static pthread_mutex_t control_mutex = PTHREAD_MUTEX_INITIALIZER;

/* What the child found out. */
struct result {
  long allocations, locks, failures;
};

static int fails(const char* what) {
  fprintf(stderr, "quiet_run: %s: %s\n", what, ridgeline_last_error());
  return 2;
}

static void calls(ridgeline_predictor* predictor, int steps, const void* samples, float* outputs,
                  int64_t batch, const char* control, struct result* result) {
  seen_allocations = seen_locks = 0;
  for (int i = 0; i < kCalls; ++i) {
    const ridgeline_status status = steps ? ridgeline_step(predictor, samples, outputs)
                                          : ridgeline_run(predictor, samples, batch, outputs);
    result->failures += status != RIDGELINE_OK;
    if (strcmp(control, "malloc") == 0) free(malloc(8));
    if (strcmp(control, "lock") == 0) {
      pthread_mutex_lock(&control_mutex);
      pthread_mutex_unlock(&control_mutex);
    }
    if (strcmp(control, "syscall") == 0) syscall(SYS_getppid);
  }
  result->allocations = seen_allocations;
  result->locks = seen_locks;
}

int main(int argc, char** argv) {
  if (argc < 4) return 64;
  const int steps = strcmp(argv[2], "step") == 0;
  const int64_t batch = atoi(argv[3]);
  const char* control = argc > 4 ? argv[4] : "";
  ridgeline_model* model = NULL;
  ridgeline_predictor* predictor = NULL;
  if (ridgeline_load(argv[1], &model) != RIDGELINE_OK) return fails("load");
  const ridgeline_status prepared =
      steps ? ridgeline_prepare_steps(model, batch, "cpu", 1, RIDGELINE_OWN, &predictor)
            : ridgeline_prepare(model, batch, "cpu", 1, RIDGELINE_OWN, &predictor);
  if (prepared != RIDGELINE_OK) return fails("prepare");
  const size_t size = ridgeline_input_type(predictor) == RIDGELINE_FLOAT32 ? 4 : 1;
  void* samples = calloc((size_t)(batch * ridgeline_input_size(predictor)), size);
  float* outputs = calloc((size_t)(batch * ridgeline_output_size(predictor)), sizeof(float));
  pthread_mutex_lock(&control_mutex); /* finds the real one while that is still allowed */
  pthread_mutex_unlock(&control_mutex);

  int ends[2];
  if (pipe(ends) != 0) return 70;
  const pid_t child = fork();
  if (child == 0) {
    struct result result = {0, 0, 0};
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0) _exit(77);
    calls(predictor, steps, samples, outputs, batch, control, &result);
    const ssize_t written = write(ends[1], &result, sizeof(result));
    syscall(SYS_exit, written == (ssize_t)sizeof(result) ? 0 : 71);
  }
  int state = 0;
  waitpid(child, &state, 0);
  if (WIFSIGNALED(state)) {
    printf("a system call was made\n");
    return strcmp(control, "syscall") == 0 ? 0 : 1;
  }
  if (WEXITSTATUS(state) != 0) return WEXITSTATUS(state);
  struct result result;
  if (read(ends[0], &result, sizeof(result)) != (ssize_t)sizeof(result)) return 71;
  printf("%d calls: %ld allocations, %ld locks, %ld failures\n", kCalls, result.allocations,
         result.locks, result.failures);
  const int allocates = strcmp(control, "malloc") == 0, locks = strcmp(control, "lock") == 0;
  if (strcmp(control, "syscall") == 0 || result.failures > 0) return 1;
  free(outputs);
  free(samples);
  ridgeline_free_predictor(predictor);
  ridgeline_free_model(model);
  return (result.allocations > 0) == allocates && (result.locks > 0) == locks ? 0 : 1;
}
