#include "ridgeline/engine/model_io.h"

#include <charconv>
#include <cmath>
#include <optional>

#include "ridgeline/core/text.h"
#include "ridgeline/engine/machine.h"
#include "ridgeline/engine/onnx_model.h"
#include "ridgeline/engine/weights.h"

namespace ridgeline::engine {
namespace {

constexpr const char* kScale = "ridgeline.scale";
constexpr const char* kShift = "ridgeline.shift";
constexpr const char* kClasses = "ridgeline.classes";
constexpr const char* kSymbols =
    "ridgeline.symbols";  // in hexadecimal, because they may be any bytes
constexpr const char* kPreparation = "ridgeline.preparation";  // as JSON

template <typename T>
T read_number(const nn::TensorFile& file, const char* key) {
  const auto found = file.metadata().find(key);
  T value{};
  if (found != file.metadata().end()) {
    const std::string& text = found->second;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool whole = error == std::errc() && end == text.data() + text.size();
    if (whole && std::isfinite(double(value))) return value;
  }
  throw_error(ErrorKind::model,
              "{}: metadata has no number {}; it was not written by ridgeline train", file.origin(),
              key);
}

std::string read_symbols(const nn::TensorFile& file, int classes) {
  const auto found = file.metadata().find(kSymbols);
  if (found == file.metadata().end()) return {};
  const std::string& hex = found->second;
  std::string symbols;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    unsigned byte = 0;
    const auto [end, error] = std::from_chars(hex.data() + i, hex.data() + i + 2, byte, 16);
    if (error != std::errc() || end != hex.data() + i + 2) break;
    symbols += char(byte);
  }
  if (symbols.size() * 2 != hex.size() || symbols.size() != size_t(classes)) {
    throw_error(ErrorKind::model, "{}: {} in the metadata is damaged", file.origin(), kSymbols);
  }
  return symbols;
}

template <typename F>
nn::TensorFile read_tensors(F read) {
  try {
    return read();
  } catch (const nn::DamagedFile& damage) {
    throw_error(ErrorKind::model, "{}; restore the file from a copy, or train again",
                damage.what());
  }
}

}  // namespace

nn::Metadata describe_model(const nn::Model& model, const Config& config,
                            const data::Scaling& scaling, int classes, const std::string& symbols,
                            const data::Preparation* preparation) {
  nn::Metadata metadata = nn::model_metadata(model, to_toml(config));
  metadata[kScale] = fmt::format("{}", scaling.scale);
  metadata[kShift] = fmt::format("{}", scaling.shift);
  metadata[kClasses] = fmt::format("{}", classes);
  for (const char symbol : symbols) {
    metadata[kSymbols] += fmt::format("{:02x}", unsigned(uint8_t(symbol)));
  }
  if (preparation != nullptr) metadata[kPreparation] = preparation->to_json();
  return metadata;
}

// Checks that the preparation fits the model's inputs and outputs.
std::optional<data::Preparation> read_preparation(const nn::TensorFile& file,
                                                  const nn::Model& model, int classes,
                                                  const nn::Loss& loss) {
  const auto found = file.metadata().find(kPreparation);
  if (found == file.metadata().end()) return std::nullopt;
  auto preparation = data::Preparation::from_json(
      found->second, fmt::format("{}: {} in the metadata", file.origin(), kPreparation));
  const auto& target = preparation.target();
  const bool of_classes = target && target->kind == data::TargetKind::classes;
  // Each value of a target has an output for each quantile.
  const int64_t each = of_classes ? 1 : int64_t(std::max<size_t>(1, loss.quantiles.size()));
  const data::SequenceFeature* sequence = preparation.sequence();
  const int64_t tokens = sequence != nullptr ? sequence->tokens : 0;
  const int64_t codes = model.layers().front()->codes_below();
  if (preparation.input_shape().numel() != model.input().numel() || !target ||
      target->outputs() * each != model.output().numel() || tokens > codes ||
      (sequence != nullptr && codes > 0 && tokens == 0) ||
      classes != (of_classes ? target->outputs() : 0)) {
    throw_error(ErrorKind::model, "{}: {} in the metadata does not fit the model", file.origin(),
                kPreparation);
  }
  return preparation;
}

std::filesystem::path model_path(const std::filesystem::path& file_or_folder) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(file_or_folder, ignored)) return file_or_folder;
  auto model = file_or_folder / "model.safetensors";
  if (std::filesystem::exists(model, ignored)) return model;
  const auto checkpoint = file_or_folder / "checkpoint.safetensors";
  if (std::filesystem::exists(checkpoint, ignored)) {
    throw_error(ErrorKind::model,
                "{}: its run has not ended: continue it with train --resume, or give {}",
                file_or_folder.string(), checkpoint.string());
  }
  throw_error(ErrorKind::model,
              "{}: holds no model.safetensors: give a model file or the folder of train --out",
              file_or_folder.string());
}

namespace {

LoadedModel load_tensors(const nn::TensorFile& tensors, const ModelOptions& options) {
  const nn::ModelDescription description = nn::read_description(tensors);
  // A checkpoint is a model file with the optimizer's state beside the weights.
  const nn::LoadOptions load{options.strict, /*ignore_prefix=*/"optimizer."};
  Config config;
  std::optional<nn::Model> model;
  try {
    config = parse_config(description.config, tensors.origin());
    nn::check_tensors(tensors, nn::outline(config.layers, description.input), load);
    model.emplace(config.build_model(description.input));
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::model) throw;
    throw_error(ErrorKind::model, "{} (the description in the model's metadata)", error.what());
  }
  const RunConfig trained = config.run;
  const Precision precision = options.precision.value_or(trained.precision);
  if ((precision == Precision::fp64) != (trained.precision == Precision::fp64)) {
    throw_error(
        ErrorKind::usage, "--precision {}: {} was trained in {}, and its weights are {}",
        name(precision), tensors.origin(), name(trained.precision),
        trained.precision == Precision::fp64 ? "fp64: only that computes with them" : "not fp64");
  }
  config.run = options.run;
  config.run.precision = precision;
  config.run.weights = is_half(precision) ? trained.weights : nn::WeightKind::master;
  config.run.accumulate = trained.accumulate;
  config.run.loss_scale = trained.loss_scale;
  // Weights trained in tf32 or fp32x3 are fp32 weights, which every device can use, and weights
  // trained with fp16 sums also work with longer sums.
  const Device device = choose_device(config.run.device);
  if (!options.precision && !has_precision(device, precision)) {
    config.run.precision = Precision::fp32;
  }
  if (precision != Precision::fp16 || device.is_host()) {
    config.run.accumulate = Precision::fp32;
  }
  LoadedModel loaded{std::move(config),
                     std::move(*model),
                     {read_number<float>(tensors, kScale), read_number<float>(tensors, kShift)},
                     read_number<int>(tensors, kClasses),
                     {},
                     {},
                     {}};
  loaded.preparation =
      read_preparation(tensors, loaded.model, loaded.classes, loaded.config.train.loss);
  const Shape& output = loaded.model.output();
  const bool fits = output.numel() == loaded.classes ||
                    (output.rank() == 2 && output[1] == loaded.classes);  // of each timestep
  if (!loaded.preparation && (loaded.classes < 1 || !fits)) {
    throw_error(ErrorKind::model, "{}: metadata names {} but the model gives {}", tensors.origin(),
                counted(loaded.classes, "class", "classes"), counted(output.numel(), "output"));
  }
  loaded.symbols = read_symbols(tensors, loaded.classes);
  loaded.warnings = nn::load_weights(tensors, loaded.model, load);
  if (options.strict && !tensors.has_checksums()) {
    loaded.warnings.push_back(
        fmt::format("{}: has no checksums, so damage to it would go unseen: an older version or "
                    "another program wrote it",
                    tensors.origin()));
  }
  return loaded;
}

}  // namespace

LoadedModel load_model(const std::filesystem::path& file, const ModelOptions& options) {
  std::error_code ignored;
  if (file.extension() == ".toml" && std::filesystem::is_regular_file(file, ignored)) {
    throw_error(ErrorKind::model,
                "{0}: is a config, but a model is wanted; `ridgeline train {0} --out DIR` trains "
                "one: give DIR",
                file.string());
  }
  if (onnx::is_onnx_file(file)) return load_onnx(file, options);
  const std::filesystem::path path = model_path(file);
  return load_tensors(read_tensors([&] { return nn::TensorFile::read(path); }), options);
}

LoadedModel load_model(std::vector<std::byte> bytes, const std::string& origin,
                       const ModelOptions& options) {
  return load_tensors(read_tensors([&] { return nn::TensorFile::parse(std::move(bytes), origin); }),
                      options);
}

nn::Model copy_of(const nn::Model& model, const Config& config) {
  nn::Model copy = config.build_model(model.input());
  for (size_t i = 0; i < copy.params().size(); ++i) {
    convert(model.params()[i].value.view(), copy.params()[i].value.view());
  }
  return copy;
}

}  // namespace ridgeline::engine
