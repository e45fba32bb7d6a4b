#include "ridgeline/engine/weights.h"

#include <algorithm>

#include "ridgeline/api/array.h"
#include "ridgeline/api/model.h"
#include "ridgeline/core/text_format.h"

namespace ridgeline {
namespace {

ArrayType type_of(DType dtype) {
  switch (dtype) {
    case DType::fp64:
      return ArrayType::float64;
    case DType::int64:
      return ArrayType::int64;
    default:
      return ArrayType::float32;  // the default type of weights
  }
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return shape.empty() ? "[]" : to_string(Shape(shape));
}

// Returns what is wrong with a weight given for this one; empty: nothing.
std::string fault_of(const nn::Param& param, const Array& given) {
  const Tensor& want = param.value.view();
  // A counter is a single number, which PyTorch stores without a dimension.
  const bool counter = param.kind == nn::ParamKind::counter;
  int64_t count = 1;
  for (const int64_t extent : given.shape) count *= extent;
  const bool fits = counter ? count == 1
                            : given.shape.size() <= size_t(Shape::kMaxRank) &&
                                  std::ranges::equal(given.shape, want.shape.dims());
  if (!fits) {
    return fmt::format("{} is {}, not {}", param.name, shape_text(given.shape),
                       to_string(want.shape));
  }
  const bool floats = given.type == ArrayType::float32 || given.type == ArrayType::float64;
  if (floats == counter || given.type == ArrayType::uint8 || given.type == ArrayType::int32) {
    return fmt::format("{} is {}, not {}", param.name, name(api::dtype_of(given.type)),
                       counter ? "int64" : "float32 or float64");
  }
  return {};
}

}  // namespace

std::vector<LayerInfo> Model::layers() const {
  const nn::Model& model = state_->loaded.model;
  std::vector<LayerInfo> all;
  for (size_t i = 0; i < model.layers().size(); ++i) {
    const Shape& output = model.output_of(int(i));
    LayerInfo layer{model.graph().layers()[i].path,
                    model.layers()[i]->type(),
                    {output.dims().begin(), output.dims().end()}};
    for (size_t p = model.first_param(i); p < model.first_param(i + 1); ++p) {
      const nn::Param& param = model.params()[p];
      if (param.trained()) layer.parameters += param.value.view().numel();
    }
    all.push_back(std::move(layer));
  }
  return all;
}

std::vector<NamedArray> Model::weights() const {
  std::vector<NamedArray> all;
  for (const nn::Param& param : state_->loaded.model.params()) {
    const Tensor& value = param.value.view();
    NamedArray each{param.name, {}};
    each.values.data = value.data;
    each.values.type = type_of(value.dtype);
    // A counter has no dimension in PyTorch.
    if (param.kind != nn::ParamKind::counter) {
      each.values.shape.assign(value.shape.dims().begin(), value.shape.dims().end());
    }
    all.push_back(std::move(each));
  }
  return all;
}

void Model::set_weights(const std::vector<NamedArray>& weights) {
  const std::scoped_lock lock(state_->mutex);
  std::vector<nn::Param>& params = state_->loaded.model.params();
  std::vector<std::string> faults;
  std::vector<const Array*> found(params.size(), nullptr);
  for (const NamedArray& each : weights) {
    const auto param = std::ranges::find(params, each.name, &nn::Param::name);
    if (param == params.end()) {
      faults.push_back(each.name + " is no weight of the model");
      continue;
    }
    found[size_t(param - params.begin())] = &each.values;
    if (std::string fault = fault_of(*param, each.values); !fault.empty()) {
      faults.push_back(std::move(fault));
    }
  }
  for (size_t i = 0; i < params.size(); ++i) {
    if (found[i] == nullptr) faults.push_back(params[i].name + " is missing");
  }
  if (!faults.empty()) {
    throw_error(ErrorKind::usage, "the weights do not fit the model: {}", list_words(faults));
  }
  for (size_t i = 0; i < params.size(); ++i) {
    const Tensor& to = params[i].value.view();
    const Tensor from{const_cast<void*>(found[i]->data), api::dtype_of(found[i]->type), to.shape,
                      Device{}};
    engine::convert(from, to);
  }
  state_->forget_plans();
}

}  // namespace ridgeline
