#include "ridgeline/nn/rearrange.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "ridgeline/nn/builder.h"
#include "ridgeline/ops/rearrange.h"

namespace ridgeline::nn {
namespace {

constexpr int64_t kMostExtent = int64_t{1} << 31;

// Reads an array of integers, or a single one.
std::vector<int64_t> read_integers(ConfigTable& table, const char* key, Bounds<int64_t> bounds) {
  if (!table.has(key)) table.fail(key, "missing; give whole numbers");
  const std::vector<double> numbers =
      table.numbers(key, {}, {double(bounds.low), double(bounds.high)});
  std::vector<int64_t> all;
  for (const double number : numbers) {
    if (number != std::floor(number)) {
      table.fail(key, fmt::format("must hold whole numbers, holds {}", number));
    }
    all.push_back(int64_t(number));
  }
  if (all.empty()) table.fail(key, "is empty; give whole numbers");
  return all;
}

int axis_of(int64_t axis, const Shape& input) {
  const int64_t found = axis < 0 ? axis + input.rank() : axis;
  if (found < 0 || found >= input.rank()) {
    throw_error(ErrorKind::usage, "there is no axis {} in {}; the first is 0", axis,
                to_string(input));
  }
  return int(found);
}

std::string output_name(const LayerValues& values) { return fmt::format("x{}", values.layer + 1); }

int64_t product(const std::array<int64_t, 3>& extents) {
  return extents[0] * extents[1] * extents[2];
}

Value add_pad(Builder& builder, Pad op, const LayerValues& values) {
  op.x = values.x;
  op.y = builder.temp(output_name(values), {op.x.shape[0], product(op.out)});
  builder.add(op);
  return op.y;
}

Value add_pad_backward(Builder& builder, const Pad& op, const LayerValues& values,
                       const Value& dy) {
  const Value dx = builder.like(fmt::format("dx{}", values.layer), values.x);
  const auto& b = op.before;
  builder.add(Pad{dy, dx, op.out, op.in, {-b[0], -b[1], -b[2]}});
  return dx;
}

// reshape: the same numbers as a sample of another shape. It has no op, since values are stored
// flat.
class ReshapeLayer final : public Layer {
 public:
  explicit ReshapeLayer(std::vector<int64_t> shape) : shape_(std::move(shape)) {}
  static LayerPtr read(ConfigTable& table) {
    std::vector<int64_t> shape = read_integers(table, "shape", {-1, kMostExtent});
    if (int(shape.size()) >= Shape::kMaxRank || std::ranges::count(shape, -1) > 1 ||
        std::ranges::count(shape, 0) > 0) {
      table.fail("shape",
                 fmt::format("must have at most {} extents of at least 1, of which one may "
                             "be -1 for what is left",
                             Shape::kMaxRank - 1));
    }
    return std::make_shared<ReshapeLayer>(std::move(shape));
  }

  std::string type() const override { return "reshape"; }
  Shape output(const Shape& input) const override {
    int64_t known = 1;
    for (const int64_t extent : shape_) {
      if (extent > 0) known = checked_mul(known, extent, "reshape");
    }
    std::vector<int64_t> dims = shape_;
    const bool open = std::ranges::count(dims, -1) > 0;
    if (open ? input.numel() % known != 0 : input.numel() != known) {
      throw_error(ErrorKind::usage, "cannot make [{}] of {} numbers", fmt::join(shape_, ", "),
                  input.numel());
    }
    std::ranges::replace(dims, int64_t{-1}, input.numel() / known);
    return Shape(dims);
  }
  Value forward(Builder&, LayerValues& values) const override { return values.x; }
  Value backward(Builder&, const LayerValues&, const Value& dy, bool) const override { return dy; }
  std::string to_toml() const override {
    return fmt::format("{{ type = \"reshape\", shape = [{}] }}", fmt::join(shape_, ", "));
  }

 private:
  std::vector<int64_t> shape_;  // one may be -1, which is inferred
};

// transpose: permutes the axes of a sample.
class TransposeLayer final : public Layer {
 public:
  explicit TransposeLayer(std::vector<int64_t> axes) : axes_(std::move(axes)) {}
  static LayerPtr read(ConfigTable& table) {
    std::vector<int64_t> axes = read_integers(table, "axes", {0, Transpose::kAxes - 1});
    std::vector<int64_t> sorted = axes, numbers(axes.size());
    std::ranges::sort(sorted);
    std::iota(numbers.begin(), numbers.end(), 0);
    if (sorted != numbers) {
      table.fail("axes", fmt::format("must name each axis of a sample once, from 0 to {}",
                                     axes.size() - 1));
    }
    return std::make_shared<TransposeLayer>(std::move(axes));
  }

  std::string type() const override { return "transpose"; }
  Shape output(const Shape& input) const override {
    if (size_t(input.rank()) != axes_.size()) {
      throw_error(ErrorKind::usage, "orders {} axes, but the sample has {}", axes_.size(),
                  input.rank());
    }
    std::vector<int64_t> dims;
    for (const int64_t axis : axes_) dims.push_back(input[int(axis)]);
    return Shape(dims);
  }
  Value forward(Builder& builder, LayerValues& values) const override {
    Transpose op{values.x, builder.like(output_name(values), values.x), values.input, {}};
    for (size_t i = 0; i < axes_.size(); ++i) op.axes[i] = int(axes_[i]);
    builder.add(op);
    return op.y;
  }
  Value backward(Builder& builder, const LayerValues& values, const Value& dy,
                 bool needs_dx) const override {
    if (!needs_dx) return {};
    Transpose op{
        dy, builder.like(fmt::format("dx{}", values.layer), values.x), output(values.input), {}};
    for (size_t i = 0; i < axes_.size(); ++i) op.axes[size_t(axes_[i])] = int(i);
    builder.add(op);
    return op.y;
  }
  std::string to_toml() const override {
    return fmt::format("{{ type = \"transpose\", axes = [{}] }}", fmt::join(axes_, ", "));
  }

 private:
  std::vector<int64_t> axes_;
};

// slice: the positions [start, end) along an axis; negative ones count from the end.
class SliceLayer final : public Layer {
 public:
  SliceLayer(int64_t axis, int64_t start, std::optional<int64_t> end)
      : axis_(axis), start_(start), end_(end) {}
  static LayerPtr read(ConfigTable& table) {
    const int64_t axis = table.integer("axis", 0, {-Shape::kMaxRank, Shape::kMaxRank});
    const int64_t start = table.integer("start", 0, {-kMostExtent, kMostExtent});
    std::optional<int64_t> end;
    if (table.has("end")) end = table.integer("end", std::nullopt, {-kMostExtent, kMostExtent});
    return std::make_shared<SliceLayer>(axis, start, end);
  }

  std::string type() const override { return "slice"; }
  Shape output(const Shape& input) const override {
    return input.with(axis_of(axis_, input), slice(input).out[1]);
  }
  Value forward(Builder& builder, LayerValues& values) const override {
    return add_pad(builder, slice(values.input), values);
  }
  Value backward(Builder& builder, const LayerValues& values, const Value& dy,
                 bool needs_dx) const override {
    return needs_dx ? add_pad_backward(builder, slice(values.input), values, dy) : Value{};
  }
  std::string to_toml() const override {
    const std::string end = end_ ? fmt::format(", end = {}", *end_) : "";
    return fmt::format("{{ type = \"slice\", axis = {}, start = {}{} }}", axis_, start_, end);
  }

 private:
  // Returns the op without its values.
  Pad slice(const Shape& input) const {
    const int axis = axis_of(axis_, input);
    const int64_t extent = input[axis];
    const int64_t start = start_ < 0 ? start_ + extent : start_;
    const int64_t end = !end_ ? extent : *end_ < 0 ? *end_ + extent : *end_;
    if (start < 0 || end > extent || start >= end) {
      throw_error(ErrorKind::usage, "the places [{}, {}) of axis {} are not in {}", start, end,
                  axis, to_string(input));
    }
    int64_t outer = 1, inner = 1;
    for (int a = 0; a < input.rank(); ++a) (a < axis ? outer : inner) *= a == axis ? 1 : input[a];
    Pad op{};
    op.in = {outer, extent, inner};
    op.out = {outer, end - start, inner};
    op.before = {0, -start, 0};
    return op;
  }

  int64_t axis_, start_;
  std::optional<int64_t> end_;
};

// pad: adds numbers before and after each axis, in PyTorch's order: the last axis first.
class PadLayer final : public Layer {
 public:
  PadLayer(std::vector<int64_t> padding, double value)
      : padding_(std::move(padding)), value_(value) {}
  static LayerPtr read(ConfigTable& table) {
    constexpr int64_t kMost = 4096;
    std::vector<int64_t> padding = read_integers(table, "padding", {0, kMost});
    if (padding.size() > 1 && (padding.size() % 2 != 0 || padding.size() > 6)) {
      table.fail("padding",
                 "must be one number, or a pair for each axis, the last axis first: "
                 "[left, right, top, bottom]");
    }
    return std::make_shared<PadLayer>(std::move(padding), table.number("value", 0.0));
  }

  std::string type() const override { return "pad"; }
  Shape output(const Shape& input) const override {
    const int rank = input.rank();
    if (rank > 3 || rank < 1 || padding_.size() > 2 * size_t(rank)) {
      throw_error(ErrorKind::usage, "pads samples of 1 to 3 dimensions, each by at most one pair");
    }
    Shape out = input;
    for (int a = 0; a < rank; ++a) out = out.with(a, input[a] + before(a, rank) + after(a, rank));
    return out;
  }
  Value forward(Builder& builder, LayerValues& values) const override {
    return add_pad(builder, pad(values.input), values);
  }
  Value backward(Builder& builder, const LayerValues& values, const Value& dy,
                 bool needs_dx) const override {
    return needs_dx ? add_pad_backward(builder, pad(values.input), values, dy) : Value{};
  }
  std::string to_toml() const override {
    return fmt::format("{{ type = \"pad\", padding = [{}], value = {} }}",
                       fmt::join(padding_, ", "), toml_number(value_));
  }

 private:
  // Returns the op without its values.
  Pad pad(const Shape& input) const {
    const Shape out = output(input);
    const int rank = input.rank();
    Pad op{};
    op.in = op.out = {1, 1, 1};
    op.value = value_;
    for (int a = 0; a < rank; ++a) {
      const size_t at = size_t(3 - rank + a);
      op.in[at] = input[a];
      op.out[at] = out[a];
      op.before[at] = before(a, rank);
    }
    return op;
  }
  int64_t before(int axis, int rank) const {
    if (padding_.size() == 1) return axis == 0 && rank > 1 ? 0 : padding_[0];
    const size_t at = 2 * size_t(rank - 1 - axis);
    return at < padding_.size() ? padding_[at] : 0;
  }
  int64_t after(int axis, int rank) const {
    if (padding_.size() == 1) return before(axis, rank);
    const size_t at = 2 * size_t(rank - 1 - axis) + 1;
    return at < padding_.size() ? padding_[at] : 0;
  }

  std::vector<int64_t> padding_;  // a single number: on all sides of every axis but the channels
  double value_;
};

// upsample: enlarges images [c, h, w] or signals [c, w] by whole factors.
class UpsampleLayer final : public Layer {
 public:
  UpsampleLayer(int64_t factor_h, int64_t factor_w, UpsampleMode mode)
      : factor_h_(factor_h), factor_w_(factor_w), mode_(mode) {}
  static LayerPtr read(ConfigTable& table) {
    constexpr int64_t kMost = 1024;
    const std::vector<int64_t> factor = table.integers("factor", 2, std::nullopt, {1, kMost});
    constexpr std::pair<std::string_view, UpsampleMode> kModes[] = {
        {"nearest", UpsampleMode::nearest}, {"bilinear", UpsampleMode::bilinear}};
    const UpsampleMode mode = table.choice<UpsampleMode>("mode", UpsampleMode::nearest, kModes);
    return std::make_shared<UpsampleLayer>(factor[0], factor[1], mode);
  }

  std::string type() const override { return "upsample"; }
  Shape output(const Shape& input) const override {
    const Image out = shape(input).out();
    return input.rank() == 3 ? Shape{out.c, out.h, out.w} : Shape{out.c, out.w};
  }
  Value forward(Builder& builder, LayerValues& values) const override {
    const UpsampleShape upsample = shape(values.input);
    const Value y = builder.temp(output_name(values), {values.x.shape[0], upsample.out().numel()});
    builder.add(Upsample{values.x, y, upsample});
    return y;
  }
  Value backward(Builder& builder, const LayerValues& values, const Value& dy,
                 bool needs_dx) const override {
    if (!needs_dx) return {};
    const Value dx = builder.like(fmt::format("dx{}", values.layer), values.x);
    builder.add(UpsampleGrad{dy, dx, shape(values.input)});
    return dx;
  }
  std::string to_toml() const override {
    return fmt::format("{{ type = \"upsample\", factor = [{}, {}], mode = \"{}\" }}", factor_h_,
                       factor_w_, mode_ == UpsampleMode::nearest ? "nearest" : "bilinear");
  }

 private:
  UpsampleShape shape(const Shape& input) const {
    if (input.rank() == 3) {
      return {{input[0], input[1], input[2]}, factor_h_, factor_w_, mode_};
    }
    if (input.rank() == 2) return {{input[0], 1, input[1]}, 1, factor_w_, mode_};
    throw_error(ErrorKind::usage,
                "takes images [channels, height, width] or signals "
                "[channels, length]; put a reshape layer before");
  }

  int64_t factor_h_, factor_w_;
  UpsampleMode mode_;
};

}  // namespace

LayerPtr read_reshape(ConfigTable& table) { return ReshapeLayer::read(table); }
LayerPtr read_transpose(ConfigTable& table) { return TransposeLayer::read(table); }
LayerPtr read_slice(ConfigTable& table) { return SliceLayer::read(table); }
LayerPtr read_pad(ConfigTable& table) { return PadLayer::read(table); }
LayerPtr read_upsample(ConfigTable& table) { return UpsampleLayer::read(table); }

}  // namespace ridgeline::nn
