#pragma once

#include <string>
#include <vector>

#include "ridgeline/engine/bench/kernel_times.h"
#include "ridgeline/engine/config.h"

namespace ridgeline::engine {

// Seconds of one op of the network with the fastest kernel that computes it alone.
struct OpTime {
  std::string op;
  WayTime ours, library;  // no name: there is no such kernel
  double floor = 0;       // seconds at this machine's ceilings; 0: not measured
};

// Inference of a network with random weights on random samples in device memory, from their bytes
// to the probabilities of their classes in device memory.
struct InferBenchLine {
  int64_t batch = 0;
  double min_us = 0, median_us = 0;  // per batch
  double inputs_per_second = 0;      // at the median
  double flops_per_second = 0;
  double limit_fraction = 0;  // of this machine's limit, 0: ceilings not measured
  double ready_seconds = 0;   // planning and tuning
  std::vector<std::string> kernels;
  std::vector<OpTime> ops;
};

InferBenchLine bench_infer(const Config& config, const std::filesystem::path& data_dir,
                           int64_t batch, double seconds, bool ops = false);

// `network` is the name to print.
std::string infer_bench_json(const std::vector<InferBenchLine>& lines, const Config& config,
                             const std::string& network);

}  // namespace ridgeline::engine
