#pragma once

#include <string>
#include <vector>

#include "ridgeline/engine/bench/kernel_times.h"
#include "ridgeline/engine/config.h"

namespace ridgeline::engine {

// The time of one op of the network by the fastest kernel that computes it alone; seconds.
struct OpTime {
  std::string op;
  WayTime ours, library;  // no name: no kernel does
  double floor = 0;       // arithmetic or bytes at this machine's ceilings; 0: not measured
};

// Inference of a network with random weights on random samples that lie on the device, from their
// bytes to the probabilities of their classes there.
struct InferBenchLine {
  int64_t batch = 0;
  double min_us = 0, median_us = 0;  // a batch
  double inputs_per_second = 0;      // at the median
  double flops_per_second = 0;
  double limit_fraction = 0;  // of this machine's limit, 0: ceilings not measured
  double ready_seconds = 0;   // planning and tuning
  std::vector<std::string> kernels;
  std::vector<OpTime> ops;
};

InferBenchLine bench_infer(const Config& config, const std::filesystem::path& data_dir,
                           int64_t batch, double seconds, bool ops = false);

// `network` is what to call it.
std::string infer_bench_json(const std::vector<InferBenchLine>& lines, const Config& config,
                             const std::string& network);

}  // namespace ridgeline::engine
