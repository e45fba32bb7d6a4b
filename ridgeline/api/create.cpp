#include <nlohmann/json.hpp>

#include "ridgeline/api/config.h"
#include "ridgeline/api/model.h"
#include "ridgeline/engine/machine.h"

namespace ridgeline {
namespace {

using Json = nlohmann::json;

// Numbers that are handed on as they are.
Json plain_numbers(const Shape& shape) {
  const auto elements = size_t(shape.numel());
  return {{"field", "inputs"},
          {"type", "number"},
          {"shape", std::vector<int64_t>(shape.dims().begin(), shape.dims().end())},
          {"log", false},
          {"missing", "refuse"},
          {"shift", std::vector<double>(elements, 0.0)},
          {"scale", std::vector<double>(elements, 1.0)},
          {"fill", Json::array()}};
}

// The preparation that hands samples on as they are. `tokens`: samples are codes below this number,
// for a net that begins with an embedding; 0: they are numbers.
data::Preparation identity(const Shape& input, int64_t tokens, int64_t outputs,
                           data::TargetKind kind) {
  const auto dims = [](const Shape& shape) {
    return Json(std::vector<int64_t>(shape.dims().begin(), shape.dims().end()));
  };
  const bool classes = kind == data::TargetKind::classes;
  std::vector<std::string> names;
  for (int64_t i = 0; classes && i < outputs; ++i) names.push_back(fmt::format("{}", i));
  const size_t values = classes ? 0 : size_t(outputs);
  const Json codes{{"type", "sequence"},
                   {"length", input.numel()},
                   {"cut", false},
                   {"tokens", tokens},
                   {"timestep", plain_numbers({})}};
  const Json json{{"version", 1},
                  {"features", Json::array({tokens > 0 ? codes : plain_numbers(input)})},
                  {"left_out", Json::array()},
                  {"target",
                   {{"kind", std::string(data::name(kind))},
                    {"fields", {"targets"}},
                    {"shape", dims(classes || outputs == 1 ? Shape{} : Shape{outputs})},
                    {"classes", names},
                    {"numbered", classes},
                    {"shift", std::vector<double>(values, 0.0)},
                    {"scale", std::vector<double>(values, 1.0)}}}};
  return data::Preparation::from_json(json.dump(), "an untrained model", ErrorKind::usage);
}

data::TargetKind kind_of(const nn::Loss& loss) {
  if (loss.kind == nn::LossKind::cross_entropy) return data::TargetKind::classes;
  if (loss.kind == nn::LossKind::binary_cross_entropy) return data::TargetKind::labels;
  return data::TargetKind::values;
}

}  // namespace

Model Model::create(const Config& config, const std::vector<int64_t>& input_shape,
                    const DeviceOptions& options) {
  if (input_shape.empty() || input_shape.size() >= size_t(Shape::kMaxRank)) {
    throw_error(ErrorKind::usage, "create: the shape of a sample has 1 to {} dimensions, not {}",
                Shape::kMaxRank - 1, input_shape.size());
  }
  for (const int64_t extent : input_shape) {
    if (extent < 1) throw_error(ErrorKind::usage, "create: a sample with an extent of {}", extent);
  }
  engine::Config parsed = ConfigAccess::parse(config, ConfigAccess::of_arrays());
  if (!parsed.train.loss_named) parsed.train.loss = {nn::LossKind::cross_entropy};
  parsed.train.loss_named = true;
  const data::TargetKind kind = kind_of(parsed.train.loss);
  parsed.data.user->target_kind = kind;
  parsed.data.user->scale = parsed.data.user->target_scale = data::ScaleKind::raw;
  const engine::RunConfig device = api::model_options(options).run;
  parsed.run.device = device.device;
  parsed.run.threads = device.threads;
  parsed.run.tune = device.tune;
  parsed.run.quiet = true;
  const Shape input(input_shape);
  const int64_t tokens = parsed.layers.empty() ? 0 : parsed.layers[0]->codes_below();
  if (tokens > 0 && input.rank() != 1) {
    throw_error(ErrorKind::usage,
                "create: the first layer takes codes, so a sample is [timesteps], not {}",
                to_string(input));
  }
  nn::Model model = parsed.build_model(input);
  model.initialise(parsed.train.seed);
  const int64_t outputs = model.output().numel();
  const auto quantiles = int64_t(std::max<size_t>(1, parsed.train.loss.quantiles.size()));
  if (outputs % quantiles != 0) {
    throw_error(ErrorKind::usage,
                "create: {} outputs are no whole number of targets with {} quantiles", outputs,
                quantiles);
  }
  engine::LoadedModel loaded{.config = std::move(parsed),
                             .model = std::move(model),
                             .scaling = {1, 0},
                             .classes = kind == data::TargetKind::classes ? int(outputs) : 0,
                             .symbols = {},
                             .warnings = {}};
  loaded.preparation = identity(input, tokens, outputs / quantiles, kind);
  return ModelAccess::make(std::move(loaded), options);
}

}  // namespace ridgeline
