#include "ridgeline/engine/onnx_model.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "ridgeline/core/text.h"
#include "ridgeline/engine/user_data.h"
#include "ridgeline/nn/config_table.h"
#include "ridgeline/nn/softmax.h"

namespace ridgeline::engine {
namespace {

std::string config_text(const onnx::ImportedModel& imported, const std::filesystem::path& file,
                        bool classes, bool prepared) {
  // A model of a user's own data names a data file; there is none here, so messages name this file.
  std::string text = fmt::format("[data]\n{} = {}\n", prepared ? "train" : "name",
                                 nn::toml_text(file.filename().string()));
  if (!prepared) text += "scale = \"raw\"\n";
  text += "[model]\nlayers = [\n";
  for (const std::string& layer : imported.layers) text += fmt::format("  {},\n", layer);
  return text + fmt::format("]\n[train]\nloss = \"{}\"\n", classes ? "cross-entropy" : "mse");
}

// Makes a preparation with a field of plain numbers for each input, and the meaning of the outputs.
data::Preparation make_preparation(const onnx::ImportedModel& imported, const Shape& output,
                                   bool classes, const std::string& origin) {
  using Json = nlohmann::ordered_json;
  const auto dims = [](const Shape& shape) {
    return std::vector<int64_t>(shape.dims().begin(), shape.dims().end());
  };
  std::vector<onnx::ImportedModel::Input> inputs = imported.inputs;
  if (inputs.empty()) inputs.push_back({imported.input_name, imported.sample});
  Json features = Json::array();
  for (const auto& [name, shape] : inputs) {
    const auto elements = size_t(shape.numel());
    features.push_back({{"field", name},
                        {"type", "number"},
                        {"shape", dims(shape)},
                        {"log", false},
                        {"missing", "refuse"},
                        {"shift", std::vector<double>(elements, 0.0)},
                        {"scale", std::vector<double>(elements, 1.0)},
                        {"fill", Json::array()}});
  }
  std::vector<std::string> names;
  for (int64_t i = 0; classes && i < output.numel(); ++i) names.push_back(std::to_string(i));
  if (classes && !imported.classes.empty()) names = imported.classes;
  const size_t values = classes ? 0 : size_t(output.numel());
  Json target{{"kind", classes ? "classes" : "values"},
              {"fields", {"target"}},
              {"shape", classes ? std::vector<int64_t>{} : dims(output)},
              {"classes", names},
              {"numbered", classes && !imported.words},
              {"shift", std::vector<double>(values, 0.0)},
              {"scale", std::vector<double>(values, 1.0)}};
  const Json json{
      {"version", 1}, {"features", features}, {"left_out", Json::array()}, {"target", target}};
  return data::Preparation::from_json(json.dump(-1, ' ', false, Json::error_handler_t::replace),
                                      origin);
}

void fill_weights(nn::Model& model, onnx::ImportedModel& imported, const std::string& origin,
                  bool strict, std::vector<std::string>& warnings) {
  for (nn::Param& param : model.params()) {
    if (param.kind == nn::ParamKind::counter) continue;  // starts at zero, like its memory
    const auto found =
        std::ranges::find(imported.weights, param.name, &onnx::ImportedModel::Weight::name);
    const std::span<float> to = param.value.span<float>();
    if (found == imported.weights.end() || found->values.size() != to.size()) {
      throw_error(ErrorKind::model, "{}: its weights do not make {} {}", origin, param.name,
                  to_string(param.value.view().shape));
    }
    std::ranges::copy(found->values, to.begin());
    const auto bad = std::ranges::count_if(to, [](float value) { return !std::isfinite(value); });
    if (bad > 0) {
      warnings.push_back(fmt::format("{}: '{}' has {} not finite", origin, param.name,
                                     counted(bad, "weight that is", "weights that are")));
    }
    found->values = {};  // so that weights are in memory only once
  }
  if (strict && !warnings.empty()) throw_error(ErrorKind::model, "{}", fmt::join(warnings, "; "));
}

}  // namespace

LoadedModel load_onnx(const std::filesystem::path& file, const ModelOptions& options,
                      const OnnxOptions& onnx) {
  onnx::ImportOptions graph = onnx.graph;
  graph.classes = onnx.classes;
  return make_model(onnx::import_model(file, graph), file, options, onnx);
}

LoadedModel make_model(onnx::ImportedModel imported, const std::filesystem::path& file,
                       const ModelOptions& options, const OnnxOptions& onnx) {
  const bool classes = imported.softmax || onnx.classes;
  const bool prepared = !imported.codes && !onnx.images;
  Config config = parse_config(config_text(imported, file, classes, prepared), file.string());
  const Precision precision = options.precision.value_or(Precision::fp32);
  if (precision == Precision::fp64) {
    throw_error(ErrorKind::usage, "--precision fp64: weights of ONNX files are taken as fp32");
  }
  config.run = options.run;
  config.run.precision = precision;
  LoadedModel loaded{config, config.build_model(imported.input), {1.0f, 0.0f}, 0, {}, {}, {}};
  std::vector<std::string> warnings;
  fill_weights(loaded.model, imported, file.string(), options.strict, warnings);
  const Shape& output = loaded.model.output();
  if (onnx.images == data::ScaleKind::unit) loaded.scaling = {1.0f / 255, 0.0f};
  if (prepared) {
    loaded.preparation = make_preparation(imported, output, classes, file.string());
  }
  if (!prepared || classes) loaded.classes = int(output.numel());
  loaded.warnings = std::move(imported.warnings);
  loaded.warnings.insert(loaded.warnings.end(), warnings.begin(), warnings.end());
  return loaded;
}

namespace {

// Returns the features if they are only shifted and scaled, as (x - shift) * scale, in their order;
// nothing if the preparation does more.
std::optional<onnx::ExportOptions::Affine> simple_scaling(const data::Preparation& preparation) {
  onnx::ExportOptions::Affine affine;
  for (const data::Feature& feature : preparation.features()) {
    const auto* number = std::get_if<data::NumberFeature>(&feature);
    if (number == nullptr || number->clip || number->log || !number->fill.empty()) {
      return std::nullopt;
    }
    affine.subtract.insert(affine.subtract.end(), number->shift.begin(), number->shift.end());
    affine.multiply.insert(affine.multiply.end(), number->scale.begin(), number->scale.end());
  }
  if (const auto& windows = preparation.windows()) {
    const std::vector<double> subtract = affine.subtract, multiply = affine.multiply;
    for (int64_t t = 1; t < windows->window; ++t) {
      affine.subtract.insert(affine.subtract.end(), subtract.begin(), subtract.end());
      affine.multiply.insert(affine.multiply.end(), multiply.begin(), multiply.end());
    }
  }
  return affine;
}

void set_input(const LoadedModel& loaded, onnx::ExportOptions& options) {
  using Input = onnx::ExportOptions::Input;
  const auto bytes = [&](const data::Scaling& scaling) {
    options.input = Input::bytes;
    options.before.multiply = {double(scaling.scale)};
    options.before.add = {double(scaling.shift)};
  };
  if (loaded.preparation && loaded.preparation->sequence() != nullptr) {
    options.preparation = &*loaded.preparation;
  } else if (loaded.model.layers().front()->codes_below() > 0) {
    options.input = Input::codes;
  } else if (!loaded.preparation) {
    bytes(loaded.scaling);
  } else if (input_dtype(*loaded.preparation) == DType::uint8) {
    bytes(std::get<data::ImageFeature>(loaded.preparation->features().front()).scaling);
  } else if (const auto affine = simple_scaling(*loaded.preparation)) {
    options.before = *affine;
  } else {
    options.preparation = &*loaded.preparation;
  }
}

}  // namespace

OnnxExport export_onnx(const LoadedModel& loaded, int64_t opset, bool half_weights) {
  using End = onnx::ExportOptions::End;
  nn::require_finite(loaded.model, "export", ErrorKind::model);
  OnnxExport made;
  onnx::ExportOptions options;
  options.opset = opset;
  options.half_weights = half_weights;
  set_input(loaded, options);
  const nn::LossKind loss = loaded.config.train.loss.kind;
  const bool logits = !nn::gives_probabilities(loaded.model.graph());  // else an ensemble
  if (loss == nn::LossKind::cross_entropy && logits) options.end = End::softmax;
  if (loss == nn::LossKind::binary_cross_entropy && logits) options.end = End::sigmoid;
  if (loaded.preparation && loaded.preparation->target()->kind == data::TargetKind::values) {
    const data::Target& target = *loaded.preparation->target();
    const auto outputs = size_t(loaded.model.output().numel());
    const size_t each = target.scale.empty() ? 1 : outputs / target.scale.size();
    for (size_t i = 0; i < target.scale.size(); ++i) {
      options.after.multiply.insert(options.after.multiply.end(), each, 1 / target.scale[i]);
      options.after.add.insert(options.after.add.end(), each, target.shift[i]);
    }
  }
  made.bytes = onnx::export_model(loaded.model, options);
  return made;
}

std::vector<std::byte> to_model_file(const LoadedModel& loaded) {
  return nn::to_safetensors(
      nn::model_tensors(loaded.model),
      describe_model(loaded.model, loaded.config, loaded.scaling, loaded.classes, loaded.symbols,
                     loaded.preparation ? &*loaded.preparation : nullptr));
}

}  // namespace ridgeline::engine
