#include "ridgeline/nn/custom.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>

#include "ridgeline/core/error.h"
#include "ridgeline/nn/builder.h"
#include "ridgeline/nn/layers.h"

namespace ridgeline::nn {
namespace {

struct AddedTypes {
  std::mutex mutex;
  std::map<std::string, CustomLayerMaker> makers;
};

AddedTypes& added() {
  static AddedTypes types;
  return types;
}

std::vector<int64_t> extents(const Shape& shape) {
  return {shape.dims().begin(), shape.dims().end()};
}

Shape shape_of(const std::vector<int64_t>& extents, const std::string& type) {
  const bool fits = extents.size() <= size_t(Shape::kMaxRank) &&
                    std::ranges::all_of(extents, [](int64_t extent) { return extent > 0; });
  if (!fits) throw_error(ErrorKind::usage, "the layer {} gives a shape that is none", type);
  return Shape(extents);
}

}  // namespace

Shape OutsideLayer::output(const Shape& input) const {
  return shape_of(layer_->output_shape(extents(input)), type_);
}

std::vector<ParamSpec> OutsideLayer::params(const Shape& input) const {
  std::vector<ParamSpec> specs;
  for (const CustomLayer::Weight& weight : layer_->weights(extents(input))) {
    Init init{InitKind::normal, weight.deviation};
    init.mean = weight.mean;
    specs.push_back({weight.name, shape_of(weight.shape, type_), init, Fans{}});
  }
  return specs;
}

Value OutsideLayer::forward(Builder& builder, LayerValues& values) const {
  const Value y = builder.temp(fmt::format("x{}", values.layer + 1),
                               {values.x.shape[0], output(values.input).numel()});
  builder.add(Custom{layer_, type_, values.x, values.params, y});
  return y;
}

Value OutsideLayer::backward(Builder& builder, const LayerValues& values, const Value& dy,
                             bool needs_dx) const {
  const Value dx = needs_dx ? builder.like(fmt::format("dx{}", values.layer), values.x) : Value{};
  if (!needs_dx && values.grads.empty()) return {};
  builder.add(CustomGrad{layer_, type_, values.x, values.y, dy, values.params, dx, values.grads});
  return dx;
}

std::string OutsideLayer::to_toml() const {
  std::string text = fmt::format("{{ type = {}", toml_text(type_));
  for (const auto& [key, value] : settings_) {
    text += fmt::format(", {} = {}", key, toml_number(value));
  }
  return text + " }";
}

void add_layer_type(const std::string& type, CustomLayerMaker make) {
  if (std::ranges::count(layer_types(), type) > 0) {
    throw_error(ErrorKind::usage, "there is a layer of the type {} already: take another name",
                type);
  }
  const std::scoped_lock lock(added().mutex);
  added().makers.emplace(type, std::move(make));
}

std::vector<std::string> added_layer_types() {
  const std::scoped_lock lock(added().mutex);
  std::vector<std::string> types;
  for (const auto& [type, make] : added().makers) types.push_back(type);
  return types;
}

LayerPtr read_added_layer(const std::string& type, ConfigTable& table) {
  CustomLayerMaker make;
  {
    const std::scoped_lock lock(added().mutex);
    const auto found = added().makers.find(type);
    if (found == added().makers.end()) return nullptr;
    make = found->second;
  }
  auto settings = table.numbers_left();
  auto layer = make(settings);
  if (layer == nullptr) throw_error(ErrorKind::usage, "the layer {} was not made", type);
  return std::make_shared<OutsideLayer>(type, std::move(settings), std::move(layer));
}

}  // namespace ridgeline::nn
