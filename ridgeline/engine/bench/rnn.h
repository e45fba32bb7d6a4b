#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ridgeline/engine/machine.h"
#include "ridgeline/ops/recurrent.h"

namespace ridgeline::engine {

// The time of a stack of recurrent layers on random numbers, with one kernel for the forward pass.
struct RnnBenchLine {
  std::string cell;
  int64_t hidden = 0, batch = 0, steps = 0, layers = 0;
  bool training = false;             // forward and backward, with dW and dx; else forward only
  std::string kernel;                // of the forward pass
  double min_us = 0, median_us = 0;  // per timestep, all layers
  double flops_per_second = 0;       // at the median
  double limit_fraction = 0;         // of this machine's limit; 0: ceilings not measured
  std::vector<std::string> kernels;  // of the whole plan
};

struct RnnBenchOptions {
  RunConfig run;
  std::vector<CellKind> cells{CellKind::lstm, CellKind::gru};
  std::vector<int64_t> hidden{128, 512, 1024};  // also the number of input features
  std::vector<int64_t> batch{32};
  int64_t steps = 64, layers = 1;
  double seconds = 0.5;  // per combination
  // Parts of names: only recurrent kernels whose name has one of them are timed; empty: all. "plan"
  // adds a line for the planner's choice among all kernels.
  std::vector<std::string> kernels;
  std::function<void(const RnnBenchLine&)> each;
};

// Times every combination with each kernel that can compute the forward pass, except naive
// reference loops. Throws Error(usage) if no kernel is left.
std::vector<RnnBenchLine> bench_rnn(const RnnBenchOptions& options);
std::vector<RnnBenchLine> bench_rnn(const RnnBenchOptions& options, Machine& machine);

std::string rnn_bench_csv(const std::vector<RnnBenchLine>& lines);
std::string rnn_bench_json(const std::vector<RnnBenchLine>& lines, const RunConfig& run);
// A chart of us per timestep over the hidden units (or the batch, if there are several), one line
// per kernel.
std::string rnn_bench_svg(const std::vector<RnnBenchLine>& lines);

}  // namespace ridgeline::engine
