#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ridgeline/core/communicator.h"
#include "ridgeline/engine/bench/deepbench_shapes.h"
#include "ridgeline/engine/bench/rnn.h"
#include "ridgeline/engine/config.h"

namespace ridgeline::engine {

// One shape of DeepBench by one way of computing it.
struct DeepbenchLine {
  std::string part;   // "gemm", "conv", "rnn", "all-reduce"
  std::string shape;  // "w=224 h=224 c=3 n=16 k=64 filter=7x7 pad=3 stride=2"
  std::string pass;  // "forward", "grad x", "grad w", "training", "sum"; of products as BLAS has it
  std::string way, kernel;
  bool vendor = false;
  double us = 0, us_min = 0;
  double rate = 0;            // FLOP/s; of sums bytes a second, those of one rank's numbers
  double limit_fraction = 0;  // of the measured ceiling of the precision; 0: not known
};

struct DeepbenchOptions {
  RunConfig run;
  // Empty: the sums of several ranks, or all that one process can measure. While it measures, other
  // ranks would wait with all their processors' power: several ranks take sums alone.
  std::vector<std::string> parts;
  double seconds = 0.02;          // for each kernel
  int64_t take = 1;               // every so manieth shape of a part, from its first on
  Communicator* ranks = nullptr;  // of the sums
  std::function<void(const DeepbenchLine&)> each;
};

// Collective over options.ranks; the lines are the root's.
std::vector<DeepbenchLine> bench_deepbench(const DeepbenchOptions& options);

// Makes a line of what `bench rnn` measured. Its way is that of the kernel, or "plan" for what the
// planner took, whichever kernel that is.
DeepbenchLine deepbench_line(const DeepbenchRnn& layer, const RnnBenchLine& line);

std::string deepbench_csv(const std::vector<DeepbenchLine>& lines);
std::string deepbench_json(const std::vector<DeepbenchLine>& lines, const RunConfig& run,
                           int ranks);
// How often ours is fastest, and by how much, part by part and pass by pass.
std::string deepbench_findings(const std::vector<DeepbenchLine>& lines);

}  // namespace ridgeline::engine
