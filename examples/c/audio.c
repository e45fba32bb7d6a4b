/* A recurrent net inside an audio callback: audio MODEL < SAMPLES > PREDICTIONS
 *
 * The callback of a sound system must return before its block of frames is due, so that it may not
 * allocate, lock or wait. ridgeline_step() does none of that. The model takes one number a timestep
 * and gives one. Numbers are text, one a line; the worst time of a block goes to stderr. */
#define _POSIX_C_SOURCE 199309L
#include <ridgeline/c_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { kFrames = 64, kRate = 48000 }; /* of a block; a second */

/* What a sound system calls: one block of frames in, one out. Returns 0 for good. */
static int process(ridgeline_predictor* net, const float* in, float* out, int frames) {
  for (int i = 0; i < frames; ++i) {
    if (ridgeline_step(net, in + i, out + i) != RIDGELINE_OK) return 1;
  }
  return 0;
}

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: audio MODEL < SAMPLES > PREDICTIONS\n");
    return 2;
  }
  ridgeline_model* model = NULL;
  ridgeline_predictor* net = NULL;
  if (ridgeline_load(argv[1], &model) != RIDGELINE_OK ||
      ridgeline_prepare_steps(model, 1, "cpu", 1, RIDGELINE_FLOAT32, &net) != RIDGELINE_OK) {
    fprintf(stderr, "audio: %s\n", ridgeline_last_error());
    ridgeline_free_model(model);
    return 1;
  }
  ridgeline_free_model(model);
  if (ridgeline_input_size(net) != 1 || ridgeline_output_size(net) != 1) {
    fprintf(stderr, "audio: the model must take and give one number a timestep\n");
    ridgeline_free_predictor(net);
    return 2;
  }
  float in[kFrames], out[kFrames];
  double worst = 0;
  int frames, code = 0;
  do {
    for (frames = 0; frames < kFrames && scanf("%f", &in[frames]) == 1;) ++frames;
    const double begin = seconds();
    code = process(net, in, out, frames);
    const double taken = seconds() - begin;
    if (taken > worst) worst = taken;
    for (int i = 0; i < frames && code == 0; ++i) printf("%.9g\n", out[i]);
  } while (frames == kFrames && code == 0);
  if (code != 0) fprintf(stderr, "audio: %s\n", ridgeline_last_error());
  fprintf(stderr, "worst block: %.0f us of %.0f\n", 1e6 * worst, 1e6 * kFrames / kRate);
  ridgeline_free_predictor(net);
  return code;
}
