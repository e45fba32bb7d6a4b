#pragma once

#include <vector>

#include "ridgeline/engine/bench/gemm.h"

namespace ridgeline::engine {

// The shapes that DeepBench publishes for training.
std::vector<GemmShape> deepbench_gemms();

struct DeepbenchRnn {
  const char* cell;  // "rnn-relu" for its "vanilla"
  int64_t hidden, batch, steps;
};
std::vector<DeepbenchRnn> deepbench_rnns();

// n images of c channels of h x w; k filters of kh x kw.
struct DeepbenchConv {
  int64_t w, h, c, n, k, kw, kh, pad, stride;
};
std::vector<DeepbenchConv> deepbench_convs();

std::vector<int64_t> deepbench_all_reduces();  // numbers of fp32 values

}  // namespace ridgeline::engine
