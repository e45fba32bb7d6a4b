#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ridgeline/core/precision.h"
#include "ridgeline/data/scaling.h"
#include "ridgeline/data/split.h"
#include "ridgeline/data/text_set.h"
#include "ridgeline/engine/metric.h"
#include "ridgeline/engine/user_data_config.h"
#include "ridgeline/nn/loss.h"
#include "ridgeline/nn/lower.h"
#include "ridgeline/nn/model.h"
#include "ridgeline/nn/optimizer.h"
#include "ridgeline/nn/schedule.h"

namespace ridgeline::engine {

struct ImageSize {
  int64_t height = 1, width = 1;
  bool operator==(const ImageSize&) const = default;
};

// Labelled texts for a classifier: where texts and labels are in the files, and how they become
// codes and classes. A model file keeps it with the rest of its config, so that inference reads and
// encodes texts as training did.
struct TextConfig {
  std::string train = "train.csv", test = "test.csv";  // in the folder data.name
  data::TextColumns columns;
  data::TextCoding coding;
};

struct DataConfig {
  std::string name;  // a named set, a folder with IDX files or labelled texts, or a file of text
  std::optional<TextConfig> text{};      // for labelled texts; filled in for named sets of them
  std::optional<UserDataConfig> user{};  // the user's files; `name` is then that of user->train
  data::ScaleKind scale = data::ScaleKind::unit;
  int64_t steps = 64;  // characters of a text in a sample; gradients are truncated there
  std::optional<ImageSize> resize{};  // of images, when they are loaded
  // Whether the training set stays in device memory for the whole run; unset: if it
  // fits.
  std::optional<bool> resident{};
  // Augmentation of training images, new in each epoch: shifted by up to `shift` pixels, mirrored
  // at random; texts are shifted by up to `shift` characters.
  int64_t shift = 0;
  bool flip = false;
  // A part of the training samples that is held out for validation; a user's own data have a split
  // of their own.
  std::optional<data::SplitRule> split{};
};

struct TrainConfig {
  int64_t batch = 128;
  bool batch_named = true;  // false: shrinks to the training set (engine::settled)
  int64_t epochs = 1;
  int64_t max_steps = 0;  // 0: no limit
  uint64_t seed = 1;
  bool shuffle = true;
  bool drop_last = false;  // leave out the last, smaller batch of an epoch
  nn::Loss loss;
  bool loss_named = true;  // false: the targets of the user's data decide (engine::settled)
  nn::Optimizer optimizer;
  nn::Schedule schedule;
  double clip_norm = 0;               // 0: no clipping
  int64_t eval_every = 1;             // epochs between evaluations; the last epoch always has one
  int64_t log_steps = 128;            // between lines of metrics.jsonl; epochs end with one too
  int64_t checkpoint_steps = 0;       // 0: not by steps
  double checkpoint_seconds = 60;     // 0: not by time
  std::vector<std::string> freeze{};  // numbers or types of layers whose weights are not trained
  // The following need a validation set.
  bool keep_best = false;         // model.safetensors is the best by `monitor`, not the last
  Metric monitor = Metric::loss;  // of the validation set
  int64_t patience = 0;           // evaluations without improvement before an early stop; 0: none
};

struct RunConfig {
  std::string device = "auto";  // auto | cpu | cuda | cuda:N
  Precision precision = Precision::fp32;
  // For bf16 and fp16; any other precision has these defaults.
  nn::WeightKind weights = nn::WeightKind::master;
  Precision accumulate = Precision::fp32;  // or fp16: the type in which products are summed
  nn::LossScale loss_scale;                // dynamic for fp16 unless the config says otherwise
  int threads = 0;                         // 0: all this process may use
  bool deterministic = false;
  bool tune = true;
  bool recompute = false;      // activation checkpointing (nn::LowerOptions)
  DType reduce = DType::fp32;  // the type in which ranks exchange fp32 gradients: fp32 or bf16
  // Patterns of the kernels that plans may use (see PlanOptions), and with "!" of those they may
  // not. Only the command line sets them, because names of kernels change between versions.
  std::vector<std::string> kernels;
  bool quiet = false;  // set by the command line: no messages about a slow start
};

// A network and how to train it: the TOML file of docs/config.md, checked. Layers hold settings
// only; a Model, with shapes and weights, needs the input's shape from the data.
struct Config {
  DataConfig data;
  nn::Graph layers;
  TrainConfig train;
  RunConfig run;

  // The weights are not yet initialised. They are fp64 for Precision::fp64, else fp32: a run in a
  // half type converts them itself.
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
std::string to_toml(const TextConfig& text);  // "text = {...}"

}  // namespace ridgeline::engine
