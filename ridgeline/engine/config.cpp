#include "ridgeline/engine/config.h"

#include <fmt/format.h>

#include "ridgeline/core/device.h"
#include "ridgeline/core/file.h"
#include "ridgeline/data/sets.h"
#include "ridgeline/data/source/detect.h"
#include "ridgeline/engine/setting_names.h"
#include "ridgeline/nn/config_limits.h"
#include "ridgeline/nn/config_table.h"
#include "ridgeline/nn/graph_config.h"

namespace ridgeline::engine {
namespace {

constexpr std::pair<std::string_view, data::ScaleKind> kScales[] = {
    {"raw", data::ScaleKind::raw},
    {"unit", data::ScaleKind::unit},
    {"standard", data::ScaleKind::standard},
};
constexpr std::pair<std::string_view, Precision> kPrecisions[] = {
    {"fp64", Precision::fp64}, {"fp32", Precision::fp32}, {"fp32x3", Precision::fp32x3},
    {"tf32", Precision::tf32}, {"bf16", Precision::bf16}, {"fp16", Precision::fp16},
};

constexpr std::pair<std::string_view, nn::WeightKind> kWeights[] = {
    {"master", nn::WeightKind::master},
    {"half", nn::WeightKind::half},
};
constexpr std::pair<std::string_view, Precision> kAccumulate[] = {
    {"fp32", Precision::fp32},
    {"fp16", Precision::fp16},
};
constexpr std::pair<std::string_view, nn::LossScale::Kind> kLossScales[] = {
    {"dynamic", nn::LossScale::Kind::dynamic},
    {"none", nn::LossScale::Kind::none},
};
constexpr std::pair<std::string_view, DType> kWires[] = {
    {"fp32", DType::fp32},
    {"bf16", DType::bf16},
};

constexpr std::pair<std::string_view, bool> kKeep[] = {{"last", false}, {"best", true}};

constexpr std::pair<std::string_view, data::TextFormat> kFormats[] = {
    {"auto", data::TextFormat::automatic},
    {"csv", data::TextFormat::csv},
    {"jsonl", data::TextFormat::jsonl},
};

// Larger than anybody needs, and small enough that products of two of them fit 64 bits.
constexpr int64_t kMostSamples = (int64_t{1} << 31) - 1;
constexpr int64_t kMostEpochs = int64_t{1} << 20;
constexpr int64_t kMostSteps = int64_t{1} << 40;
constexpr int64_t kMostPixels = 4096;  // along one side of an image
constexpr int64_t kMostThreads = 4096;
constexpr int64_t kMostCharacters = int64_t{1} << 20;  // of one text

template <typename E, size_t N>
std::string_view name_in(const std::pair<std::string_view, E> (&table)[N], E value) {
  for (const auto& [name, entry] : table) {
    if (entry == value) return name;
  }
  return {};
}

// Combines a named set's settings with the config's, which take precedence.
TextConfig read_text(nn::ConfigTable table, const data::SetInfo* set) {
  TextConfig text;
  if (set != nullptr) {
    text.columns.text = set->text_columns;
    text.columns.label = set->label_column;
    text.coding.class_names = set->class_names;
    text.coding.first_label = set->first_label;
  }
  text.train = table.text("train", text.train);
  text.test = table.text("test", text.test);
  text.columns.format = table.choice<data::TextFormat>("format", text.columns.format, kFormats);
  text.columns.text = table.texts("columns", text.columns.text);
  text.columns.label = table.text("label", text.columns.label);
  if (text.columns.text.empty()) table.fail("columns", "missing; name the columns of the text");
  if (text.columns.label.empty()) table.fail("label", "missing; name the column of the label");
  const std::string symbols = table.text("vocabulary", text.coding.vocabulary.symbols());
  try {
    text.coding.vocabulary = data::Vocabulary(symbols);
  } catch (const Error& error) {
    table.fail("vocabulary", error.what());
  }
  text.coding.length = table.integer("length", text.coding.length, {1, kMostCharacters});
  text.coding.backward = table.boolean("backward", text.coding.backward);
  text.coding.class_names = table.texts("classes", text.coding.class_names);
  text.coding.first_label =
      int(table.integer("first_label", text.coding.first_label, {-kMostPixels, kMostPixels}));
  table.finish();
  return text;
}

data::SplitRule read_split(nn::ConfigTable table) {
  data::SplitRule split;
  split.validation = table.number("validation", split.validation, {0.0, nn::kBelowOne});
  split.seed = uint64_t(table.integer("seed", int64_t(split.seed), {0}));
  split.stratify = table.boolean("stratify", split.stratify);
  table.finish();
  return split;
}

DataConfig read_data(nn::ConfigTable table) {
  DataConfig data;
  if (table.has("train")) {
    if (table.has("name")) table.fail("name", "names a known set, but data.train names files");
    data.user = read_user_data(table);
    data.name = data.user->train;
    data.scale = data.user->scale.value_or(data.scale);
  } else {
    data.name = table.text("name", std::nullopt);
    if (data.name.empty()) table.fail("name", "is empty; name a data set or a folder");
    data.scale = table.choice<data::ScaleKind>("scale", data.scale, kScales);
  }
  data.steps = table.integer("steps", data.steps, {1, kMostSamples});
  if (table.has("resize")) {
    const auto size = table.integers("resize", 2, std::nullopt, {1, kMostPixels});
    data.resize = ImageSize{size[0], size[1]};
  }
  if (table.has("resident")) data.resident = table.boolean("resident", true);
  const data::SetInfo* set = data.user ? nullptr : data::find_known_set(data.name);
  const bool records = set != nullptr && set->records;
  if (records || table.has("text")) {
    if (set != nullptr && !records) table.fail("text", "is for labelled texts, not " + data.name);
    if (data.user) table.fail("text", "goes with data.name; data.train takes tables and arrays");
    data.text = read_text(table.table("text"), set);
  }
  nn::ConfigTable augment = table.table("augment");
  data.shift = augment.integer("shift", data.shift, {0, kMostPixels});
  data.flip = augment.boolean("flip", data.flip);
  augment.finish();
  if (!data.user && table.has("split")) data.split = read_split(table.table("split"));
  table.finish();
  return data;
}

TrainConfig read_train(nn::ConfigTable table) {
  TrainConfig train;
  train.batch_named = table.has("batch");
  train.batch = table.integer("batch", train.batch, {1, kMostSamples});
  train.epochs = table.integer("epochs", train.epochs, {0, kMostEpochs});
  train.max_steps = table.integer("max_steps", train.max_steps, {0, kMostSteps});
  train.seed = uint64_t(table.integer("seed", int64_t(train.seed), {0}));
  train.shuffle = table.boolean("shuffle", train.shuffle);
  train.drop_last = table.boolean("drop_last", train.drop_last);
  train.loss_named = table.has("loss");
  train.loss = nn::read_loss(table, "loss");
  train.optimizer = nn::read_optimizer(table, "optimizer");
  train.schedule = nn::read_schedule(table, "schedule");
  train.clip_norm = table.number("clip_norm", train.clip_norm, {0.0});
  train.eval_every = table.integer("eval_every", train.eval_every, {1, kMostEpochs});
  train.log_steps = table.integer("log_steps", train.log_steps, {1, kMostSteps});
  train.checkpoint_steps =
      table.integer("checkpoint_steps", train.checkpoint_steps, {0, kMostSteps});
  train.checkpoint_seconds =
      table.number("checkpoint_seconds", train.checkpoint_seconds, {0.0, 1e9});
  train.freeze = table.words("freeze");
  train.keep_best = table.choice<bool>("keep", train.keep_best, kKeep);
  train.monitor = table.choice<Metric>("monitor", train.monitor, kMetrics);
  train.patience = table.integer("patience", train.patience, {0, kMostEpochs});
  table.finish();
  return train;
}

// Reads the settings that only a run in bf16 or fp16 has.
void read_half(nn::ConfigTable& table, RunConfig& run) {
  using Kind = nn::LossScale::Kind;
  run.weights = table.choice<nn::WeightKind>("weights", run.weights, kWeights);
  run.accumulate = table.choice<Precision>("accumulate", run.accumulate, kAccumulate);
  const bool fp16 = run.precision == Precision::fp16;
  if (table.has("loss_scale") && !table.is_text("loss_scale")) {
    run.loss_scale.kind = Kind::fixed;
    run.loss_scale.start = table.number("loss_scale", std::nullopt, {1.0, 0x1p64});
  } else {
    run.loss_scale.kind =
        table.choice<Kind>("loss_scale", fp16 ? Kind::dynamic : Kind::none, kLossScales);
  }
  const auto only = [&](const char* key, bool changed, const char* which) {
    if (changed) {
      table.fail(key, fmt::format("is for precision {} only, not {}", which, name(run.precision)));
    }
  };
  const bool half = is_half(run.precision);
  only("weights", !half && run.weights == nn::WeightKind::half, "bf16 or fp16");
  only("accumulate", !fp16 && run.accumulate == Precision::fp16, "fp16");
  only("loss_scale", !half && run.loss_scale.kind != Kind::none, "bf16 or fp16");
}

std::string half_toml(const RunConfig& run) {
  if (!is_half(run.precision)) return {};
  const bool fixed = run.loss_scale.kind == nn::LossScale::Kind::fixed;
  return fmt::format("weights = \"{}\"\naccumulate = \"{}\"\nloss_scale = {}\n",
                     name_in(kWeights, run.weights), name(run.accumulate),
                     fixed ? nn::toml_number(run.loss_scale.start)
                           : fmt::format("\"{}\"", name_in(kLossScales, run.loss_scale.kind)));
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
  read_half(table, run);
  run.threads = int(table.integer("threads", run.threads, {0, kMostThreads}));
  run.deterministic = table.boolean("deterministic", run.deterministic);
  run.tune = table.boolean("tune", run.tune);
  run.recompute = table.boolean("recompute", run.recompute);
  run.reduce = table.choice<DType>("reduce", run.reduce, kWires);
  table.finish();
  return run;
}

// The heads name the fields that are learnt, unless data.target does.
void settle_heads(Config& config, nn::ConfigTable& model) {
  const std::vector<nn::Head>& heads = config.layers.heads();
  if (!config.data.user) {
    model.fail("heads", "learn several fields of data of one's own (data.train)");
  }
  std::vector<std::string> fields;
  for (const nn::Head& head : heads) {
    if (!head.target.empty()) fields.push_back(head.target);
  }
  std::vector<std::string>& target = config.data.user->target;
  if (!fields.empty() && target.empty()) target = fields;
  if (!fields.empty() && target != fields) {
    model.fail("heads", "have other targets, or in another order, than data.target names");
  }
  if (target.size() > 1 && target.size() != heads.size()) {
    model.fail("heads",
               fmt::format("has {}, but data.target names {} fields", heads.size(), target.size()));
  }
  // The loss of the whole output; the losses that are trained are those of the heads.
  config.train.loss = {nn::LossKind::mse};
  config.train.loss_named = true;
}

}  // namespace

nn::Model Config::build_model(const Shape& input, Precision precision) const {
  return nn::Model(layers, input, precision == Precision::fp64 ? DType::fp64 : DType::fp32);
}

// Throws Error(usage) if a file that was given as a config holds samples.
static void refuse_data(const std::filesystem::path& file) {
  const data::Content content = data::detect(file).content;
  if (content == data::Content::text || !data::remedy(content).empty()) return;
  const char* remedy = content == data::Content::safetensors
                           ? "eval, infer, profile and serve take models"
                           : "`ridgeline data describe {} --write-config NET.toml` writes one";
  throw_error(ErrorKind::usage, "{}: is {}, but a config is wanted; {}", file.string(),
              data::title(content), fmt::format(fmt::runtime(remedy), file.string()));
}

Config load_config(const std::filesystem::path& file, const std::vector<std::string>& sets) {
  std::error_code ignored;
  if (std::filesystem::exists(file / "config.toml", ignored)) {
    throw_error(ErrorKind::usage, "{}: is the folder of a run; give the config in it, {}",
                file.string(), (file / "config.toml").string());
  }
  const std::vector<std::byte> bytes = read_file(file, ErrorKind::usage, nn::kMostConfigBytes);
  const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  try {
    return parse_config(text, file.string(), sets);
  } catch (const Error&) {
    if (file.extension() != ".toml") refuse_data(file);
    throw;
  }
}

Config parse_config(const std::string& text, const std::string& origin,
                    const std::vector<std::string>& sets) {
  check_set_names(sets);
  nn::ConfigTable root = nn::ConfigTable::parse(text, origin, sets);
  // The sections are looked up first, so that a misspelt section is reported as such and not by the
  // keys that are then missing.
  nn::ConfigTable data = root.table("data"), model = root.table("model");
  nn::ConfigTable train = root.table("train"), run = root.table("run");
  root.finish();

  Config config;
  config.data = read_data(std::move(data));
  config.layers = nn::read_graph(model);
  config.train = read_train(std::move(train));
  if (!config.data.user) config.train.loss_named = true;
  if (!config.layers.heads().empty()) settle_heads(config, model);
  // Targets of 0 and 1 are labels unless the config says otherwise: scaling would change them.
  const bool labels = config.train.loss.kind == nn::LossKind::binary_cross_entropy;
  if (labels && config.data.user && !config.data.user->target_kind) {
    config.data.user->target_kind = data::TargetKind::labels;
  }
  config.run = read_run(std::move(run));
  return config;
}

std::string to_toml(const TextConfig& text) {
  const auto list = [](const std::vector<std::string>& all) {
    std::string joined;
    for (const std::string& each : all) {
      joined += (joined.empty() ? "" : ", ") + nn::toml_text(each);
    }
    return "[" + joined + "]";
  };
  return fmt::format(
      "text = {{ train = {}, test = {}, format = \"{}\", columns = {}, label = {}, vocabulary = "
      "{}, length = {}, backward = {}, classes = {}, first_label = {} }}\n",
      nn::toml_text(text.train), nn::toml_text(text.test), name_in(kFormats, text.columns.format),
      list(text.columns.text), nn::toml_text(text.columns.label),
      nn::toml_text(text.coding.vocabulary.symbols()), text.coding.length, text.coding.backward,
      list(text.coding.class_names), text.coding.first_label);
}

std::string to_toml(const Config& config) {
  const DataConfig& data = config.data;
  std::string text = "[data]\n";
  text += data.user ? to_toml(*data.user)
                    : fmt::format("name = {}\nscale = \"{}\"\n", nn::toml_text(data.name),
                                  name_in(kScales, data.scale));
  text += fmt::format("steps = {}\n", data.steps);
  if (data.resize) {
    text += fmt::format("resize = [{}, {}]\n", data.resize->height, data.resize->width);
  }
  if (data.resident) text += fmt::format("resident = {}\n", *data.resident);
  if (data.text) text += to_toml(*data.text);
  if (data.split) {
    text += fmt::format("split = {{ validation = {}, seed = {}, stratify = {} }}\n",
                        nn::toml_number(data.split->validation), data.split->seed,
                        data.split->stratify);
  }
  text += fmt::format("augment = {{ shift = {}, flip = {} }}\n\n[model]\nlayers = [\n", data.shift,
                      data.flip);
  for (const std::string& layer : config.layers.toml()) text += fmt::format("  {},\n", layer);
  text += "]\n";
  if (!config.layers.heads().empty()) {
    text += "heads = [\n";
    for (const nn::Head& head : config.layers.heads()) {
      text += fmt::format("  {},\n", nn::to_toml(head));
    }
    text += "]\n";
  }
  const TrainConfig& train = config.train;
  text += "\n[train]\n";
  if (train.batch_named) text += fmt::format("batch = {}\n", train.batch);
  text += fmt::format("epochs = {}\nmax_steps = {}\nseed = {}\n", train.epochs, train.max_steps,
                      train.seed);
  text += fmt::format("shuffle = {}\ndrop_last = {}\n", train.shuffle, train.drop_last);
  if (train.loss_named) text += fmt::format("loss = {}\n", nn::to_toml(train.loss));
  text += fmt::format("optimizer = {}\nschedule = {}\n", nn::to_toml(train.optimizer),
                      nn::to_toml(train.schedule));
  text += fmt::format("clip_norm = {}\neval_every = {}\nlog_steps = {}\ncheckpoint_steps = {}\n",
                      nn::toml_number(train.clip_norm), train.eval_every, train.log_steps,
                      train.checkpoint_steps);
  text += fmt::format("checkpoint_seconds = {}\nkeep = \"{}\"\nmonitor = \"{}\"\npatience = {}\n",
                      nn::toml_number(train.checkpoint_seconds), name_in(kKeep, train.keep_best),
                      name(train.monitor), train.patience);
  if (!train.freeze.empty()) {
    std::string layers;
    for (const std::string& each : train.freeze) {
      layers += (layers.empty() ? "" : ", ") + nn::toml_text(each);
    }
    text += fmt::format("freeze = [{}]\n", layers);
  }
  text += "\n";
  const RunConfig& run = config.run;
  text += fmt::format("[run]\ndevice = {}\nprecision = \"{}\"\n", nn::toml_text(run.device),
                      name(run.precision));
  text += half_toml(run) + fmt::format("threads = {}\n", run.threads);
  text += fmt::format("deterministic = {}\ntune = {}\nreduce = \"{}\"\n", run.deterministic,
                      run.tune, name_in(kWires, run.reduce));
  if (run.recompute) text += "recompute = true\n";
  return text;
}

}  // namespace ridgeline::engine
