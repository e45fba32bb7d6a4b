#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ridgeline/engine/machine.h"
#include "ridgeline/ops/recurrent.h"

namespace ridgeline::engine {

// A stack of recurrent layers on random numbers, timed through one kernel for the forward pass.
struct RnnBenchLine {
  std::string cell;
  int64_t hidden = 0, batch = 0, steps = 0, layers = 0;
  bool training = false;             // forward and backward, dW and dx included; else forward alone
  std::string kernel;                // of the forward pass
  double min_us = 0, median_us = 0;  // a time step, all layers
  double flops_per_second = 0;       // at the median
  double limit_fraction = 0;         // of this machine's limit; 0: ceilings not measured
  std::vector<std::string> kernels;  // of the whole plan
};

struct RnnBenchOptions {
  RunConfig run;
  std::vector<CellKind> cells{CellKind::lstm, CellKind::gru};
  std::vector<int64_t> hidden{128, 512, 1024};  // also the input's features
  std::vector<int64_t> batch{32};
  int64_t steps = 64, layers = 1;
  double seconds = 0.5;  // each
  // Parts of names: only kernels of the loops over time that have one are timed; all when empty.
  // "plan" asks for one more line, of what the planner chooses among all.
  std::vector<std::string> kernels;
  std::function<void(const RnnBenchLine&)> each;
};

// Every combination, and each kernel that can compute the forward pass; naive reference loops are
// left out. Throws usage where no kernel is left.
std::vector<RnnBenchLine> bench_rnn(const RnnBenchOptions& options);
std::vector<RnnBenchLine> bench_rnn(const RnnBenchOptions& options, Machine& machine);

std::string rnn_bench_csv(const std::vector<RnnBenchLine>& lines);
std::string rnn_bench_json(const std::vector<RnnBenchLine>& lines, const RunConfig& run);
// us a time step over the hidden units (or the batch, when there are several), a line a kernel.
std::string rnn_bench_svg(const std::vector<RnnBenchLine>& lines);

}  // namespace ridgeline::engine
