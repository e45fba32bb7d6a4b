#include "ridgeline/nn/fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ridgeline/nn/builder.h"

namespace ridgeline::nn {
namespace {

constexpr int64_t kMostWidth = int64_t{1} << 31;

}  // namespace

LayerPtr FieldsLayer::read(ConfigTable& table) {
  std::vector<std::string> names = table.texts("names", {});
  if (names.empty() || names.size() > kMostJoined) {
    table.fail("names",
               fmt::format("has {}; name 1 to {} fields of the data", names.size(), kMostJoined));
  }
  std::vector<Part> parts;
  for (ConfigTable& each : table.tables("parts")) {
    parts.push_back({each.integer("at", std::nullopt, {0, kMostWidth}),
                     each.integer("width", std::nullopt, {1, kMostWidth})});
    each.finish();
  }
  if (!parts.empty() && parts.size() != names.size()) table.fail("parts", "are not one a name");
  std::vector<int64_t> shape;
  for (const double extent : table.numbers("shape", {}, {1.0, double(kMostWidth)})) {
    shape.push_back(int64_t(extent));
  }
  if (shape.size() > size_t(Shape::kMaxRank) - 1) table.fail("shape", "has too many extents");
  return std::make_shared<FieldsLayer>(std::move(names), std::move(parts), std::move(shape));
}

LayerPtr FieldsLayer::with_parts(std::vector<Part> parts, std::vector<int64_t> shape) const {
  return std::make_shared<FieldsLayer>(names_, std::move(parts),
                                       shape_.empty() ? std::move(shape) : shape_);
}

int64_t FieldsLayer::width() const {
  int64_t sum = 0;
  for (const Part& part : parts_) sum = checked_add(sum, part.width, "fields");
  return sum;
}

Shape FieldsLayer::output(const Shape& input) const {
  if (parts_.empty()) {
    throw_error(ErrorKind::usage,
                "where the fields lie is not known: they come from data of one's own (data.train), "
                "or from parts = [{{ at = 0, width = 3 }}]");
  }
  if (input.rank() < 1 || input.rank() > 2) {
    throw_error(ErrorKind::usage, "takes rows [width] or [timesteps, width] of all fields, not {}",
                to_string(input));
  }
  const int64_t whole = input[input.rank() - 1];
  for (size_t i = 0; i < parts_.size(); ++i) {
    if (parts_[i].at + parts_[i].width <= whole) continue;
    throw_error(ErrorKind::usage, "the field '{}' ends at {}, but there are {}", names_[i],
                parts_[i].at + parts_[i].width, whole);
  }
  if (shape_.empty()) return input.with(input.rank() - 1, width());
  int64_t numbers = 1;
  for (const int64_t extent : shape_) numbers = checked_mul(numbers, extent, "fields");
  const int64_t have = input.numel() / whole * width();
  if (numbers != have) {
    throw_error(ErrorKind::usage, "shape [{}] has {} numbers, but the fields have {}",
                fmt::join(shape_, ", "), numbers, have);
  }
  return Shape(shape_);
}

Value FieldsLayer::forward(Builder& builder, LayerValues& values) const {
  const int64_t whole = values.input[values.input.rank() - 1];
  const int64_t rows = values.input.numel() / whole, n = values.x.shape[0];
  const std::string name = fmt::format("x{}", values.layer + 1);
  Values taken;
  for (const Part& part : parts_) {
    taken.push_back(builder.temp(parts_.size() == 1 ? name : fmt::format("{}.{}", name, part.at),
                                 {n, rows * part.width}));
    builder.add(
        Pad{values.x, taken.back(), {1, rows, whole}, {1, rows, part.width}, {0, 0, -part.at}});
  }
  if (taken.size() == 1) return taken[0];
  const Value y = builder.temp(name, {n, rows * width()});
  builder.add(Concat{taken, y, n * rows});
  return y;
}

Value FieldsLayer::backward(Builder& builder, const LayerValues& values, const Value& dy,
                            bool needs_dx) const {
  if (!needs_dx) return {};
  const int64_t whole = values.input[values.input.rank() - 1];
  const int64_t rows = values.input.numel() / whole;
  Values grown;
  int64_t at = 0;
  for (const Part& part : parts_) {
    const std::string name = fmt::format("dx{}.{}", values.layer, part.at);
    const Value cut = builder.temp(name + ".part", {values.x.shape[0], rows * part.width});
    builder.add(Pad{dy, cut, {1, rows, width()}, {1, rows, part.width}, {0, 0, -at}});
    grown.push_back(builder.like(name, values.x));
    builder.add(Pad{cut, grown.back(), {1, rows, part.width}, {1, rows, whole}, {0, 0, part.at}});
    at += part.width;
  }
  if (grown.size() == 1) return grown[0];
  const Value dx = builder.like(fmt::format("dx{}", values.layer), values.x);
  builder.add(Add{grown, dx});
  return dx;
}

std::string FieldsLayer::to_toml() const {
  std::string text = "{ type = \"fields\", names = [";
  for (size_t i = 0; i < names_.size(); ++i) text += (i > 0 ? ", " : "") + toml_text(names_[i]);
  text += "]";
  for (size_t i = 0; i < parts_.size(); ++i) {
    text += fmt::format("{}{{ at = {}, width = {} }}", i == 0 ? ", parts = [" : ", ", parts_[i].at,
                        parts_[i].width);
  }
  if (!parts_.empty()) text += "]";
  if (!shape_.empty()) text += fmt::format(", shape = [{}]", fmt::join(shape_, ", "));
  return text + " }";
}

}  // namespace ridgeline::nn
