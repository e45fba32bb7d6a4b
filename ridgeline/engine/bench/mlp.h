#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ridgeline/engine/config.h"

namespace ridgeline::engine {

// The time of one network's training step on random bytes.
struct BenchLine {
  std::string network;  // "784-512-10"
  std::string activation;
  int64_t batch = 0;
  double min_us = 0, median_us = 0;  // per step
  double flops_per_second = 0;       // at the median
  double limit_us = 0;               // 0: the device has no measured ceilings
  double limit_fraction = 0;         // limit over median
  std::vector<std::string> kernels;
};

struct BenchOptions {
  RunConfig run;
  double seconds = 1;             // per network
  std::vector<std::string> only;  // networks such as "784-512-10:128"; empty: those below
  bool widths = false;            // 784-h-h-h-10 at batch 32 instead, for h = 128, 256, ... 8192
  std::function<void(const BenchLine&)> each;
};

// By default times the networks whose speed is tracked, with SGD and cross-entropy:
// 784-128-128-128-10 and 784-1024-1024-1024-10 at batch 32, 784-512-10 at 128 and (sigmoid) at
// 3000.
std::vector<BenchLine> bench_mlp(const BenchOptions& options);

std::string bench_json(const std::vector<BenchLine>& lines, const RunConfig& run);

}  // namespace ridgeline::engine
