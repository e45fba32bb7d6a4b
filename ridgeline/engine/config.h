#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "ridgeline/core/precision.h"
#include "ridgeline/nn/loss.h"
#include "ridgeline/nn/model.h"
#include "ridgeline/nn/optimizer.h"
#include "ridgeline/nn/schedule.h"

namespace ridgeline::engine {

enum class Scale { raw, unit, standard };

struct DataConfig {
  std::string name;  // a named set, or a folder with IDX files
  Scale scale = Scale::unit;
};

struct TrainConfig {
  int64_t batch = 128;
  int64_t epochs = 1;
  int64_t max_steps = 0;  // 0: no limit
  uint64_t seed = 1;
  bool shuffle = true;
  bool drop_last = false;  // leave out the last, smaller batch of an epoch
  nn::Loss loss = nn::Loss::cross_entropy;
  nn::Optimizer optimizer;
  nn::Schedule schedule;
  double clip_norm = 0;            // 0: no clipping
  int64_t eval_every = 1;          // epochs between evaluations; the last epoch always has one
  int64_t checkpoint_steps = 0;    // 0: not by steps
  double checkpoint_seconds = 60;  // 0: not by time
};

struct RunConfig {
  std::string device = "auto";  // auto | cpu | cuda | cuda:N
  Precision precision = Precision::fp32;
  int threads = 0;  // 0: all this process may use
  bool deterministic = false;
  bool tune = true;
  // Patterns of the rows that plans may use (see PlanOptions), "!..." of those they may not; of the
  // command line alone, because names of rows change from version to version.
  std::vector<std::string> rows;
};

// A network and how to train it: the TOML file of docs/config.md, checked. Layers hold settings
// only; a Model, with shapes and weights, needs the input's shape from the data.
struct Config {
  DataConfig data;
  std::vector<nn::LayerPtr> layers;
  TrainConfig train;
  RunConfig run;

  // Weights not yet initialised; fp64 ones for Precision::fp64, fp32 for any other.
  nn::Model build_model(const Shape& input) const { return build_model(input, run.precision); }
  nn::Model build_model(const Shape& input, Precision precision) const;
};

// Reads, applies `sets` ("train.optimizer.lr=0.01", "model.layers.0.out=2048", in order) and
// checks. Unknown keys, wrong types and bad ranges are Error(usage) with file, line, column (or the
// --set) and the nearest known name.
Config load_config(const std::filesystem::path& file, const std::vector<std::string>& sets = {});
Config parse_config(const std::string& text, const std::string& origin,
                    const std::vector<std::string>& sets = {});

// The resolved config as TOML that load_config reads back to the same config: --print-config, and
// the description kept in model files.
std::string to_toml(const Config& config);

}  // namespace ridgeline::engine
