#include "ridgeline/engine/train/fine_tune.h"

#include <algorithm>
#include <cstring>

#include "ridgeline/core/text.h"
#include "ridgeline/core/text_format.h"
#include "ridgeline/engine/train/trainer.h"
#include "ridgeline/nn/safetensors.h"

namespace ridgeline::engine {
namespace {

size_t layer_of_param(const nn::Model& model, size_t param) {
  size_t layer = 0;
  while (model.first_param(layer + 1) <= param) ++layer;
  return layer;
}

// Copies the tensor to memory that is aligned for its type.
HostTensor read_tensor(const nn::TensorEntry& entry) {
  HostTensor host(entry.dtype, entry.shape);
  std::memcpy(host.view().data, entry.data.data(), host.view().bytes());
  return host;
}

std::string difference(const nn::TensorEntry* entry, const std::string& name, const Shape& shape) {
  if (entry == nullptr) return fmt::format("{} is not in it", name);
  return fmt::format("{} is {}, in it {}", name, to_string(shape), to_string(entry->shape));
}

}  // namespace

std::vector<bool> frozen_layers(const std::vector<std::string>& freeze, const nn::Model& model) {
  if (freeze.empty()) return {};
  std::vector<bool> frozen(model.layers().size());
  for (const std::string& each : freeze) {
    bool any = false;
    std::vector<std::string> types;
    for (size_t i = 0; i < frozen.size(); ++i) {
      const std::string type = model.layers()[i]->type();
      if (std::ranges::find(types, type) == types.end()) types.push_back(type);
      // A number stands for a layer, or for all layers of a block.
      const std::string& path = model.graph().layers()[i].path;
      if (type != each && path != each && !path.starts_with(each + ".")) continue;
      frozen[i] = any = true;
    }
    if (any) continue;
    throw_error(
        ErrorKind::usage,
        "train.freeze {}: is no layer of this model; give numbers from 0 to {}, or types: {}",
        quote(each), std::stoi(model.graph().layers().back().path), list_words(types));
  }
  return frozen;
}

std::vector<std::string> start_from(const std::filesystem::path& file, Trainer& trainer) {
  const nn::TensorFile tensors = nn::TensorFile::read(model_path(file));
  const nn::Model& model = trainer.model();
  const auto& params = model.params();
  if (params.empty()) return {};
  const size_t last = layer_of_param(model, params.size() - 1);
  std::vector<std::string> wrong, anew;
  for (size_t p = 0; p < params.size(); ++p) {
    const Shape& shape = params[p].value.view().shape;
    const nn::TensorEntry* entry = tensors.find(params[p].name);
    if (entry != nullptr && entry->shape == shape) continue;
    auto& list = layer_of_param(model, p) == last ? anew : wrong;
    list.push_back(difference(entry, params[p].name, shape));
  }
  if (!wrong.empty()) {
    throw_error(ErrorKind::usage,
                "--init {}: does not fit this model: {}; only the last layer may have other shapes",
                tensors.origin(), list_words(wrong));
  }
  Snapshot weights = trainer.model_snapshot();
  int64_t taken = 0;
  for (size_t p = 0; p < params.size(); ++p) {
    if (!anew.empty() && layer_of_param(model, p) == last) continue;
    const auto item = std::ranges::find(weights.items, params[p].name, &Snapshot::Item::name);
    const HostTensor host = read_tensor(*tensors.find(params[p].name));
    if (is_float(host.view().dtype) != is_float(item->value.view().dtype)) {
      throw_error(ErrorKind::model, "{}: {} is {}, which is no type of weights", tensors.origin(),
                  params[p].name, name(host.view().dtype));
    }
    if (!all_finite(host.view())) {
      throw_error(ErrorKind::model,
                  "{}: {} has values that are not finite; start from another model",
                  tensors.origin(), params[p].name);
    }
    convert(host.view(), item->value.view());
    ++taken;
  }
  if (taken == 0) {
    throw_error(ErrorKind::usage, "--init {}: none of its weights fits this model: {}",
                tensors.origin(), list_words(anew));
  }
  trainer.restore_model(weights);
  std::vector<std::string> lines{
      fmt::format("starting from {} of {}", counted(taken, "tensor"), tensors.origin())};
  if (!anew.empty()) {
    lines.push_back(
        fmt::format("{} starts anew: {}", model.graph().label(int(last)), list_words(anew)));
  }
  return lines;
}

}  // namespace ridgeline::engine
