#include "ridgeline/engine/config.h"

#include <fmt/format.h>

#include "ridgeline/core/device.h"
#include "ridgeline/core/file.h"
#include "ridgeline/nn/config_table.h"
#include "ridgeline/nn/layers.h"

namespace ridgeline::engine {
namespace {

constexpr std::pair<std::string_view, Scale> kScales[] = {
    {"raw", Scale::raw},
    {"unit", Scale::unit},
    {"standard", Scale::standard},
};
constexpr std::pair<std::string_view, nn::Loss> kLosses[] = {
    {"cross-entropy", nn::Loss::cross_entropy},
    {"mse", nn::Loss::mse},
};
constexpr std::pair<std::string_view, Precision> kPrecisions[] = {
    {"fp64", Precision::fp64}, {"fp32", Precision::fp32}, {"fp32x3", Precision::fp32x3},
    {"tf32", Precision::tf32}, {"bf16", Precision::bf16}, {"fp16", Precision::fp16},
};

constexpr std::pair<std::string_view, DType> kWires[] = {
    {"fp32", DType::fp32},
    {"bf16", DType::bf16},
};

// Above any use, and small enough that products of two of them fit 64 bits.
constexpr int64_t kMostRows = (int64_t{1} << 31) - 1;
constexpr int64_t kMostEpochs = int64_t{1} << 20;
constexpr int64_t kMostSteps = int64_t{1} << 40;
constexpr int64_t kMostThreads = 4096;
constexpr size_t kMostBytes = size_t{1} << 20;  // of a config file

DataConfig read_data(nn::ConfigTable table) {
  DataConfig data;
  data.name = table.text("name", std::nullopt);
  if (data.name.empty()) table.fail("name", "is empty; name a data set or a folder");
  data.scale = table.choice<Scale>("scale", data.scale, kScales);
  table.finish();
  return data;
}

std::vector<nn::LayerPtr> read_layers(nn::ConfigTable table) {
  std::vector<nn::LayerPtr> layers;
  for (nn::ConfigTable& layer : table.tables("layers")) layers.push_back(nn::read_layer(layer));
  table.finish();
  if (layers.empty()) table.fail("layers", "missing; give at least one layer");
  return layers;
}

TrainConfig read_train(nn::ConfigTable table) {
  TrainConfig train;
  train.batch = table.integer("batch", train.batch, {1, kMostRows});
  train.epochs = table.integer("epochs", train.epochs, {0, kMostEpochs});
  train.max_steps = table.integer("max_steps", train.max_steps, {0, kMostSteps});
  train.seed = uint64_t(table.integer("seed", int64_t(train.seed), {0}));
  train.shuffle = table.boolean("shuffle", train.shuffle);
  train.drop_last = table.boolean("drop_last", train.drop_last);
  train.loss = table.choice<nn::Loss>("loss", train.loss, kLosses);
  train.optimizer = nn::read_optimizer(table, "optimizer");
  train.schedule = nn::read_schedule(table, "schedule");
  train.clip_norm = table.number("clip_norm", train.clip_norm, {0.0});
  train.eval_every = table.integer("eval_every", train.eval_every, {1, kMostEpochs});
  train.checkpoint_steps =
      table.integer("checkpoint_steps", train.checkpoint_steps, {0, kMostSteps});
  train.checkpoint_seconds =
      table.number("checkpoint_seconds", train.checkpoint_seconds, {0.0, 1e9});
  table.finish();
  return train;
}

RunConfig read_run(nn::ConfigTable table) {
  RunConfig run;
  run.device = table.text("device", run.device);
  if (run.device != "auto") {
    try {
      parse_device(run.device);
    } catch (const Error& error) {
      table.fail("device", error.what());
    }
  }
  run.precision = table.choice<Precision>("precision", run.precision, kPrecisions);
  run.threads = int(table.integer("threads", run.threads, {0, kMostThreads}));
  run.deterministic = table.boolean("deterministic", run.deterministic);
  run.tune = table.boolean("tune", run.tune);
  run.reduce = table.choice<DType>("reduce", run.reduce, kWires);
  table.finish();
  return run;
}

template <typename E, size_t N>
std::string_view name_in(const std::pair<std::string_view, E> (&table)[N], E value) {
  for (const auto& [name, entry] : table) {
    if (entry == value) return name;
  }
  return {};
}

}  // namespace

nn::Model Config::build_model(const Shape& input, Precision precision) const {
  return nn::Model(layers, input, precision == Precision::fp64 ? DType::fp64 : DType::fp32);
}

Config load_config(const std::filesystem::path& file, const std::vector<std::string>& sets) {
  const std::vector<std::byte> bytes = read_file(file, ErrorKind::usage, kMostBytes);
  const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return parse_config(text, file.string(), sets);
}

Config parse_config(const std::string& text, const std::string& origin,
                    const std::vector<std::string>& sets) {
  nn::ConfigTable root = nn::ConfigTable::parse(text, origin, sets);
  // Asked for before any is read, so that a misspelt section is named as such and not by what is
  // then missing.
  nn::ConfigTable data = root.table("data"), model = root.table("model");
  nn::ConfigTable train = root.table("train"), run = root.table("run");
  root.finish();

  Config config;
  config.data = read_data(std::move(data));
  config.layers = read_layers(std::move(model));
  config.train = read_train(std::move(train));
  config.run = read_run(std::move(run));
  return config;
}

std::string to_toml(const Config& config) {
  std::string text =
      fmt::format("[data]\nname = {}\nscale = \"{}\"\n\n[model]\nlayers = [\n",
                  nn::toml_text(config.data.name), name_in(kScales, config.data.scale));
  for (const nn::LayerPtr& layer : config.layers) text += fmt::format("  {},\n", layer->to_toml());
  const TrainConfig& train = config.train;
  text += fmt::format("]\n\n[train]\nbatch = {}\nepochs = {}\nmax_steps = {}\nseed = {}\n",
                      train.batch, train.epochs, train.max_steps, train.seed);
  text += fmt::format("shuffle = {}\ndrop_last = {}\nloss = \"{}\"\n", train.shuffle,
                      train.drop_last, name_in(kLosses, train.loss));
  text += fmt::format("optimizer = {}\nschedule = {}\n", nn::to_toml(train.optimizer),
                      nn::to_toml(train.schedule));
  text += fmt::format("clip_norm = {}\neval_every = {}\ncheckpoint_steps = {}\n",
                      nn::toml_number(train.clip_norm), train.eval_every, train.checkpoint_steps);
  text += fmt::format("checkpoint_seconds = {}\n\n", nn::toml_number(train.checkpoint_seconds));
  const RunConfig& run = config.run;
  text += fmt::format("[run]\ndevice = {}\nprecision = \"{}\"\nthreads = {}\n",
                      nn::toml_text(run.device), name(run.precision), run.threads);
  text += fmt::format("deterministic = {}\ntune = {}\nreduce = \"{}\"\n", run.deterministic,
                      run.tune, name_in(kWires, run.reduce));
  return text;
}

}  // namespace ridgeline::engine
