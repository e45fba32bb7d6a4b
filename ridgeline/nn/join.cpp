#include "ridgeline/nn/join.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "ridgeline/nn/builder.h"

namespace ridgeline::nn {
namespace {

constexpr std::pair<std::string_view, JoinKind> kJoinKinds[] = {{"add", JoinKind::add},
                                                                {"multiply", JoinKind::multiply},
                                                                {"mean", JoinKind::mean},
                                                                {"concat", JoinKind::concat}};

// The broadcast of one shape to another: the axes that grow are adjacent, between `outer` and
// `inner` numbers.
struct Expansion {
  int64_t outer = 1, times = 1, inner = 1;

  // Repetition is nearest-neighbour upsampling of a column of one pixel.
  UpsampleShape shape() const { return {{outer, 1, inner}, times, 1, UpsampleMode::nearest}; }
};

int64_t extent(const Shape& shape, int axis) { return axis < shape.rank() ? shape[axis] : 1; }

std::optional<Expansion> expansion(const Shape& from, const Shape& to) {
  Expansion found;
  for (int axis = 0; axis < to.rank(); ++axis) {
    const int64_t have = extent(from, axis), want = to[axis];
    if (have == want) {
      if (want == 1) continue;
      (found.times == 1 ? found.outer : found.inner) *= want;
    } else if (have == 1 && found.inner == 1) {
      found.times *= want;
    } else {
      return std::nullopt;
    }
  }
  return found;
}

// Returns the broadcast shape of all inputs.
Shape largest(const std::vector<Shape>& inputs) {
  Shape all = inputs[0];
  for (const Shape& input : inputs) {
    if (input.rank() > all.rank()) all = input;
  }
  for (const Shape& input : inputs) {
    for (int axis = 0; axis < input.rank(); ++axis) {
      all = all.with(axis, std::max(all[axis], input[axis]));
    }
  }
  return all;
}

}  // namespace

LayerPtr JoinLayer::read_join(ConfigTable& table, JoinKind kind) {
  int64_t axis = 0;
  if (kind == JoinKind::concat)
    axis = table.integer("axis", 0, {-Shape::kMaxRank, Shape::kMaxRank});
  return std::make_shared<JoinLayer>(kind, axis);
}

std::string JoinLayer::type() const {
  for (const auto& [name, kind] : kJoinKinds) {
    if (kind == kind_) return std::string(name);
  }
  return "unknown";
}

int JoinLayer::axis(const Shape& input) const {
  const int64_t found = axis_ < 0 ? axis_ + input.rank() : axis_;
  if (found < 0 || found >= input.rank()) {
    throw_error(ErrorKind::usage, "there is no axis {} in {}; the first is 0", axis_,
                to_string(input));
  }
  return int(found);
}

Shape JoinLayer::output_of(const std::vector<Shape>& inputs) const {
  if (kind_ == JoinKind::concat) {
    Shape all = inputs[0];
    const int along = axis(all);
    for (size_t i = 1; i < inputs.size(); ++i) {
      const Shape& next = inputs[i];
      if (next.rank() != all.rank() || next.with(along, all[along]) != all) {
        throw_error(ErrorKind::usage, "concat wants inputs that differ along axis {} alone", along);
      }
      all = all.with(along, checked_add(all[along], next[along], "concat"));
    }
    return all;
  }
  const Shape all = largest(inputs);
  for (const Shape& input : inputs) {
    if (expansion(input, all)) continue;
    throw_error(ErrorKind::usage,
                "{} wants inputs of one shape, or such as can be repeated along extents of 1",
                type());
  }
  return all;
}

Value JoinLayer::concat(Builder& builder, const LayerValues& values) const {
  const Shape out = output_of(values.inputs);
  const int along = axis(out);
  int64_t outer = values.x.shape[0];
  for (int a = 0; a < along; ++a) outer *= out[a];
  const Value y =
      builder.temp(fmt::format("x{}", values.layer + 1), {values.x.shape[0], out.numel()});
  builder.add(Concat{values.xs, y, outer});
  return y;
}

Values JoinLayer::concat_backward(Builder& builder, const LayerValues& values, const Value& dy,
                                  const std::vector<bool>& needs_dx) const {
  const Shape out = output_of(values.inputs);
  const int along = axis(out);
  int64_t outer = 1;
  for (int a = 0; a < along; ++a) outer *= out[a];
  const int64_t whole = out.numel() / outer;
  int64_t begin = 0;
  Values dxs;
  for (size_t i = 0; i < values.xs.size(); ++i) {
    const int64_t width = values.inputs[i].numel() / outer;
    dxs.emplace_back();
    if (needs_dx[i]) {
      dxs.back() = builder.like(fmt::format("dx{}.{}", values.layer, i), values.xs[i]);
      builder.add(Pad{dy, dxs.back(), {1, outer, whole}, {1, outer, width}, {0, 0, -begin}});
    }
    begin += width;
  }
  return dxs;
}

// Multiplies the factors one after the other. Saves the factors, then all products but the last.
Value JoinLayer::multiply(Builder& builder, LayerValues& values, const Values& factors) const {
  values.saved = factors;
  Value product = factors[0];
  for (size_t i = 1; i < factors.size(); ++i) {
    const bool last = i + 1 == factors.size();
    const Value next = builder.like(
        last ? fmt::format("x{}", values.layer + 1) : fmt::format("{}.product{}", values.layer, i),
        product);
    builder.add(Multiply{product, factors[i], next});
    if (!last) values.saved.push_back(next);
    product = next;
  }
  return product;
}

Value JoinLayer::forward(Builder& builder, LayerValues& values) const {
  if (values.xs.size() == 1) return values.x;
  if (kind_ == JoinKind::concat) return concat(builder, values);
  const Shape out = output_of(values.inputs), flat{values.x.shape[0], out.numel()};
  Values terms;
  for (size_t i = 0; i < values.xs.size(); ++i) {
    const Expansion repeat = *expansion(values.inputs[i], out);
    terms.push_back(values.xs[i]);
    if (repeat.times == 1) continue;
    terms.back() = builder.temp(fmt::format("{}.expanded{}", values.layer, i), flat);
    builder.add(Upsample{values.xs[i], terms.back(), repeat.shape()});
  }
  if (kind_ == JoinKind::multiply) return multiply(builder, values, terms);
  const Value y = builder.temp(fmt::format("x{}", values.layer + 1), flat);
  const double scale = kind_ == JoinKind::mean ? 1.0 / double(terms.size()) : 1.0;
  builder.add(Add{terms, y, scale});
  return y;
}

Value JoinLayer::backward(Builder& builder, const LayerValues& values, const Value& dy,
                          bool needs_dx) const {
  return backward_of(builder, values, dy, {needs_dx})[0];
}

Values JoinLayer::backward_of(Builder& builder, const LayerValues& values, const Value& dy,
                              const std::vector<bool>& needs_dx) const {
  const size_t count = values.xs.size();
  if (count == 1) return {dy};
  if (kind_ == JoinKind::concat) return concat_backward(builder, values, dy, needs_dx);
  Values dxs(count, dy);  // gradients by what the op read: inputs, or broadcast inputs
  if (kind_ == JoinKind::mean) {
    const Value dx = builder.like(fmt::format("dx{}", values.layer), dy);
    builder.add(Add{{dy}, dx, 1.0 / double(count)});
    dxs.assign(count, dx);
  } else if (kind_ == JoinKind::multiply) {
    const Values& saved = values.saved;
    Value outer = dy;  // the gradient of the product so far
    for (size_t i = count; i-- > 1;) {
      const Value& before = i == 1 ? saved[0] : saved[count + i - 2];
      if (needs_dx[i]) {
        dxs[i] = builder.like(fmt::format("dx{}.{}", values.layer, i), dy);
        builder.add(Multiply{outer, before, dxs[i]});
      }
      const bool below = std::any_of(needs_dx.begin(), needs_dx.begin() + ptrdiff_t(i),
                                     [](bool needed) { return needed; });
      if (!below) break;
      const Value next = builder.like(i == 1 ? fmt::format("dx{}.0", values.layer)
                                             : fmt::format("{}.dproduct{}", values.layer, i - 1),
                                      dy);
      builder.add(Multiply{outer, saved[i], next});
      outer = next;
    }
    dxs[0] = outer;
  }
  const Shape out = output_of(values.inputs);
  for (size_t i = 0; i < count; ++i) {
    const Expansion repeat = *expansion(values.inputs[i], out);
    if (!needs_dx[i] || repeat.times == 1) continue;
    const Value sum = builder.like(fmt::format("dx{}.{}.sum", values.layer, i), values.xs[i]);
    builder.add(UpsampleGrad{dxs[i], sum, repeat.shape()});
    dxs[i] = sum;
  }
  return dxs;
}

std::string JoinLayer::to_toml() const {
  if (kind_ != JoinKind::concat) return fmt::format("{{ type = \"{}\" }}", type());
  return fmt::format("{{ type = \"concat\", axis = {} }}", axis_);
}

Value add_gradients(Builder& builder, const Values& gradients, const std::string& name) {
  Value sum = gradients[0];
  for (size_t begin = 1; begin < gradients.size();) {
    const size_t end = std::min(gradients.size(), begin + kMostJoined - 1);
    Add op;
    op.xs = {sum};
    op.xs.insert(op.xs.end(), gradients.begin() + ptrdiff_t(begin),
                 gradients.begin() + ptrdiff_t(end));
    const bool last = end == gradients.size();
    op.y = builder.like(last ? name : fmt::format("{}.{}", name, begin), gradients[0]);
    builder.add(op);
    sum = op.y;
    begin = end;
  }
  return sum;
}

}  // namespace ridgeline::nn
