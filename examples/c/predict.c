/* Asks a model file about one sample: predict MODEL NUMBER... */
#include <ridgeline/c_api.h>
#include <stdio.h>
#include <stdlib.h>

static int failed(const char* what) {
  fprintf(stderr, "predict: %s: %s\n", what, ridgeline_last_error());
  return 1;
}

int main(int argc, char** argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: predict MODEL NUMBER...\n");
    return 2;
  }
  ridgeline_model* model = NULL;
  if (ridgeline_load(argv[1], &model) != RIDGELINE_OK) return failed("load");

  /* One sample at a time, on this thread alone. */
  ridgeline_predictor* predictor = NULL;
  if (ridgeline_prepare(model, 1, "cpu", 1, RIDGELINE_FLOAT32, &predictor) != RIDGELINE_OK) {
    ridgeline_free_model(model);
    return failed("prepare");
  }
  const int64_t inputs = ridgeline_input_size(predictor);
  const int64_t outputs = ridgeline_output_size(predictor);
  if (argc - 2 != inputs) {
    fprintf(stderr, "predict: the model takes %lld numbers\n", (long long)inputs);
    return 2;
  }
  float* sample = malloc((size_t)inputs * sizeof(float));
  float* answer = malloc((size_t)outputs * sizeof(float));
  for (int64_t i = 0; i < inputs; ++i) sample[i] = strtof(argv[i + 2], NULL);

  int code = 0;
  if (ridgeline_run(predictor, sample, 1, answer) != RIDGELINE_OK) {
    code = failed("run");
  } else {
    for (int64_t i = 0; i < outputs; ++i) {
      const char* name = ridgeline_class_name(model, i);
      printf("%s%s%.6g\n", name != NULL ? name : "", name != NULL ? " " : "", answer[i]);
    }
  }
  free(answer);
  free(sample);
  ridgeline_free_predictor(predictor);
  ridgeline_free_model(model);
  return code;
}
