#include "ridgeline/engine/one_step_model.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <string_view>

namespace ridgeline::engine {
namespace {

constexpr std::string_view kRecurrent[] = {"rnn", "gru", "lstm"};
// Layers that compute each timestep by itself. `linear` does if the shape of its weights stays the
// same.
constexpr std::string_view kByTimestep[] = {
    "linear", "embedding", "dropout",    "flatten", "relu",     "tanh",      "sigmoid",
    "gelu",   "silu",      "leaky_relu", "elu",     "softplus", "hardswish", "exp",
    "log",    "sqrt",      "reciprocal", "sin",     "floor",    "round",     "step"};

bool is_one_of(std::string_view type, std::span<const std::string_view> types) {
  return std::ranges::find(types, type) != types.end();
}

void check_layer(size_t number, const nn::Layer& layer) {
  const std::string type = layer.type(), toml = layer.to_toml();
  const bool last_only = type == "select" && toml.find("at = -1 ") != std::string::npos;
  const bool recurrent = is_one_of(type, kRecurrent);
  if (recurrent && toml.find("bidirectional = true") != std::string::npos) {
    throw_error(ErrorKind::usage,
                "layer {} ({}) reads in both directions, so that the model cannot be asked for one "
                "timestep at a time; give it whole sequences",
                number, type);
  }
  const bool last_dimension =
      (type == "layernorm" || type == "rmsnorm") && toml.find("dims = 1,") != std::string::npos;
  if (recurrent || last_only || last_dimension || is_one_of(type, kByTimestep)) return;
  throw_error(ErrorKind::usage,
              "layer {} ({}) looks at several timesteps, so that the model cannot be asked for one "
              "timestep at a time; give it whole sequences",
              number, type);
}

}  // namespace

nn::Model one_step_model(const LoadedModel& loaded) {
  const auto& layers = loaded.model.layers();
  const auto is_recurrent = [](const nn::LayerPtr& each) {
    return is_one_of(each->type(), kRecurrent);
  };
  if (std::ranges::none_of(layers, is_recurrent)) {
    throw_error(ErrorKind::usage,
                "the model has no recurrent layer (rnn, gru, lstm), so that it has no timesteps; "
                "give it whole samples");
  }
  for (size_t i = 0; i < layers.size(); ++i) check_layer(i, *layers[i]);
  const Shape& input = loaded.model.input();
  const bool codes = layers.front()->codes_below() > 0;
  nn::Model model = loaded.config.build_model(codes ? Shape{1} : input.with(0, 1));
  const auto& from = loaded.model.params();
  for (size_t i = 0; i < from.size(); ++i) {
    const Tensor &source = from[i].value.view(), &target = model.params()[i].value.view();
    if (!(source.shape == target.shape)) {
      throw_error(ErrorKind::usage,
                  "{} is {} for one timestep at a time and {} in the model: its layer looks at "
                  "several timesteps; give the model whole sequences",
                  from[i].name, to_string(target.shape), to_string(source.shape));
    }
    std::memcpy(target.data, source.data, source.bytes());
  }
  return model;
}

}  // namespace ridgeline::engine
