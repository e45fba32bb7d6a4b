#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ridgeline/core/communicator.h"
#include "ridgeline/engine/bench/deepbench_shapes.h"
#include "ridgeline/engine/bench/rnn.h"
#include "ridgeline/engine/config.h"

namespace ridgeline::engine {

// The time of one shape of DeepBench by one way of computing it.
struct DeepbenchLine {
  std::string part;   // "gemm", "conv", "rnn", "all-reduce"
  std::string shape;  // "w=224 h=224 c=3 n=16 k=64 filter=7x7 pad=3 stride=2"
  std::string pass;   // "forward", "grad x", "grad w", "training", "sum"; BLAS's letters
  std::string way, kernel;
  bool vendor = false;
  double us = 0, us_min = 0;
  double rate = 0;            // FLOP/s; for sums the bytes per second of one rank's numbers
  double limit_fraction = 0;  // of the measured ceiling of the precision; 0: not known
};

struct DeepbenchOptions {
  RunConfig run;
  // Empty: sums for several ranks, or everything that one process can measure. The other ranks
  // busy-wait while one measures, so several ranks measure sums only.
  std::vector<std::string> parts;
  double seconds = 0.02;  // for each kernel
  int64_t take = 1;       // measures every take-th shape of a part, beginning with the first
  Communicator* ranks = nullptr;  // of the sums
  std::function<void(const DeepbenchLine&)> each;
};

// Collective over options.ranks; only the root returns lines.
std::vector<DeepbenchLine> bench_deepbench(const DeepbenchOptions& options);

// Makes a line of what `bench rnn` measured. Its way is that of the kernel, or "plan" for what the
// planner took, whichever kernel that is.
DeepbenchLine deepbench_line(const DeepbenchRnn& layer, const RnnBenchLine& line);

std::string deepbench_csv(const std::vector<DeepbenchLine>& lines);
std::string deepbench_json(const std::vector<DeepbenchLine>& lines, const RunConfig& run,
                           int ranks);
// Describes how often ours is fastest, and by how much, for each part and pass.
std::string deepbench_findings(const std::vector<DeepbenchLine>& lines);

}  // namespace ridgeline::engine
