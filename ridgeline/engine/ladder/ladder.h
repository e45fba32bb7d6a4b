#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ridgeline/core/communicator.h"
#include "ridgeline/engine/config.h"

namespace ridgeline::engine {

// One step of an optimisation history: the features it may use. Everything else is as in any other
// run, so a rung measures the engine itself and no code of its own.
struct Rung {
  const char* name;  // "fusion"
  const char* what;  // for people, a few words
  std::vector<const char*>
      kernels;        // patterns of the kernels it may use (RunConfig::kernels); empty: all
  int64_t batch = 0;  // 0: the ladder's
  int threads = 0;    // 0: the run's
  bool launches_alone = false;  // each kernel is launched by itself: no graph, one step per launch
  bool from_host = false;       // samples come from host memory, and outputs go back there
  bool ranks = false;           // several processes: one per GPU, or per core (LadderOptions)
  Precision precision = Precision::fp32;
  Precision accumulate = Precision::fp32;  // for fp16: the type in which products are summed
  double founding_us = 0;                  // per input, from the founding record; 0: not in it
  // `what` holds only if no kernel of this name was taken; `what` is replaced otherwise.
  const char* without = nullptr;
  const char* otherwise = nullptr;
};

struct Ladder {
  std::string name;     // "mlp"
  std::string network;  // TOML of [model] and [train], for samples of shape `sample` and `classes`
  Shape sample;
  int codes = 0;  // samples are codes below this; 0: bytes
  int classes;
  int64_t batch;
  std::vector<Rung> cpu, cuda;
  bool forward = false;  // samples to probabilities; else training steps
};

// All ladders. To add one, add its entry to ladders.cpp.
const std::vector<Ladder>& ladders();
const Ladder& find_ladder(const std::string& name);  // throws usage with the known names

// Returns the training of 784-width-width-width-10 at batch 32 in fp16 on GPUs, from a naive
// product to whole steps in one launch.
Ladder mlp_levels(int64_t width);

// Returns its network as a config, with `sets` as in --set.
Config ladder_config(const Ladder& ladder, const std::vector<std::string>& sets = {});

struct RungResult {
  std::string name, what, precision;
  int64_t batch = 0;  // of all ranks together
  int threads = 0, ranks = 1;
  double us_per_step = 0, us_per_input = 0;
  double gain = 0;        // over the rung before
  double total_gain = 0;  // over the first
  std::optional<double> limit_fraction;
  double error = 0,
         bound = 0;  // against the reference: of the weights after a few steps, or of logits
  double founding_us = 0;
  std::vector<std::string> kernels;
  std::string skipped;  // why it did not run
};

struct LadderOptions {
  RunConfig run;
  double seconds = 1;  // for each rung
  std::function<void(const RungResult&)> each;
  int rank_count = 0;             // of rungs with ranks; 0: of GPUs, or of cores up to four
  Communicator* ranks = nullptr;  // if this process is one of several, it runs only `rung`
  std::string rung;               // the only one to run; empty: all
  // Runs a rung with this many processes like this one; returns the JSON of their root's result.
  std::function<std::string(const Rung&, int ranks)> launch;
};

struct LadderResult {
  std::string ladder, device, machine;
  std::vector<RungResult> rungs;
};

// Runs the ladder: each rung is first compared with the reference kernels, then timed. Throws
// Error(numeric) if one is wrong. A rung that this machine or build does not support is skipped,
// with the reason. Collective over options.ranks.
LadderResult climb(const Ladder& ladder, const LadderOptions& options);

std::string ladder_head();
std::string to_line(const RungResult& rung);
std::string to_json_text(const LadderResult& result);
LadderResult ladder_from_json(const std::string& text);
std::string to_svg(const LadderResult& result);  // a staircase of inputs per second, logarithmic

}  // namespace ridgeline::engine
