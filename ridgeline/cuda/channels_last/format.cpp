#include "ridgeline/cuda/channels_last/format.h"

#include <fmt/format.h>

#include <charconv>

namespace ridgeline::cuda {
namespace {

constexpr std::string_view kPrefix = "channels_last:";

PixelRows rows(const Image& image) { return {image.c, image.pixels()}; }

// What an op states about the shape of a value it uses; empty if the op knows no image shape.
struct Geometry {
  ValueId id;

  bool is(const Value& value) const { return value.id == id; }
  std::optional<PixelRows> either(const Value& in, const Image& in_image, const Value& out,
                                  const Image& out_image) const {
    if (is(in)) return rows(in_image);
    if (is(out)) return rows(out_image);
    return {};
  }

  std::optional<PixelRows> operator()(const Conv2d& op) const {
    return either(op.x, op.shape.in, op.y, op.shape.out());
  }
  std::optional<PixelRows> operator()(const Conv2dGradX& op) const {
    return either(op.dx, op.shape.in, op.dy, op.shape.out());
  }
  std::optional<PixelRows> operator()(const Conv2dGradW& op) const {
    return either(op.x, op.shape.in, op.dy, op.shape.out());
  }
  std::optional<PixelRows> operator()(const MaxPool& op) const {
    return either(op.x, op.shape.in, op.y, op.shape.out());
  }
  std::optional<PixelRows> operator()(const MaxPoolGrad& op) const {
    if (is(op.dx)) return rows(op.shape.in);
    return is(op.y) ? rows(op.shape.out()) : either(op.x, op.shape.in, op.dy, op.shape.out());
  }
  std::optional<PixelRows> operator()(const BatchNorm& op) const {
    return either(op.x, op.in, op.y, op.in);
  }
  std::optional<PixelRows> operator()(const BatchNormGrad& op) const {
    return is(op.dx) ? rows(op.in) : either(op.x, op.in, op.dy, op.in);
  }
  std::optional<PixelRows> operator()(const BatchNormInfer& op) const {
    return either(op.x, op.in, op.y, op.in);
  }
  template <typename Op>
  std::optional<PixelRows> operator()(const Op&) const {
    return {};
  }
};

}  // namespace

void use_channels_last(std::vector<FormatUse>& uses, const Value& value, const PixelRows& rows) {
  if (rows.channels == 1 || rows.pixels == 1) return;
  uses.push_back({value.id, fmt::format("{}{}x{}", kPrefix, rows.channels, rows.pixels),
                  size_t(value.shape.numel()) * size_of(value.dtype)});
}

std::optional<PixelRows> parse_channels_last(const Format& format) {
  if (!format.starts_with(kPrefix)) return {};
  PixelRows found;
  const char *at = format.data() + kPrefix.size(), *end = format.data() + format.size();
  at = std::from_chars(at, end, found.channels).ptr;
  if (at == end || *at != 'x') return {};
  if (std::from_chars(at + 1, end, found.pixels).ptr != end) return {};
  return found;
}

std::optional<PixelRows> rows_of(const Program& program, const Value& value) {
  for (const size_t op : program.uses(value.id)) {
    if (const auto found = std::visit(Geometry{value.id}, program.ops[op])) return found;
  }
  return {};
}

std::optional<PixelRows> rows_of(const Program& program, const Values& values) {
  for (const Value& value : values) {
    if (const auto found = rows_of(program, value)) return found;
  }
  return {};
}

}  // namespace ridgeline::cuda
