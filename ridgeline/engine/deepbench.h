#pragma once

#include <vector>

#include "ridgeline/engine/bench_gemm.h"

namespace ridgeline::engine {

// The shapes that DeepBench publishes for training, as its results are known by.
std::vector<GemmShape> deepbench_gemms();

struct DeepbenchRnn {
  const char* cell;  // "rnn-relu" for its "vanilla"
  int64_t hidden, batch, steps;
};
std::vector<DeepbenchRnn> deepbench_rnns();

}  // namespace ridgeline::engine
