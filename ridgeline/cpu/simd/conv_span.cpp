#include "ridgeline/cpu/simd/conv_span.h"

namespace ridgeline::cpu::simd {
namespace {

std::string refuse_span(const ConvSpan& span) {
  const std::string reason = refuse_conv(span.conv->shape, span.conv->x);
  if (!reason.empty() || span.pool == nullptr) return reason;
  const Slide two{2, 2, 0, 1};
  if (span.pool->shape.window != Window{two, two}) return "takes pools of 2 x 2 with stride 2";
  if (span.activation != nullptr && !saves_output(span.activation->kind)) {
    return "takes increasing activations that know their slope from their output";
  }
  return {};
}

}  // namespace

DirectShape direct_shape(const Conv2dShape& conv, bool pooled) {
  const Slide &down = conv.window.h, &right = conv.window.w;
  return {conv.in.c,    conv.in.h, conv.in.w, conv.k, down.kernel,
          right.kernel, down.pad,  right.pad, pooled};
}

DirectShape ConvSpan::shape() const { return direct_shape(conv->shape, pool != nullptr); }

ConvSpan find_conv(const RemainingOps& rest, ConvReach reach) {
  ConvSpan found;
  found.conv = rest.get<Conv2d>(0);
  if (found.conv == nullptr) return {};
  if (reach == ConvReach::alone) return found;
  const auto* activation = rest.get<Activation>(1);
  if (activation != nullptr && activation->x.id == found.conv->y.id) found.activation = activation;
  if (reach == ConvReach::activated) return found;
  const auto* pool = rest.get<MaxPool>(found.ops());
  if (pool == nullptr || pool->x.id != found.y().id) return {};
  found.pool = pool;
  return found;
}

std::string refuse_conv(const Conv2dShape& shape, const Value& x) {
  const Slide &down = shape.window.h, &right = shape.window.w;
  if (!takes(x.dtype)) return "takes fp32 and fp64 only";
  if (x.shape.numel() == 0) return "empty";
  if (shape.groups != 1) return "takes one group";
  if (down.stride != 1 || right.stride != 1) return "takes stride 1 only";
  if (down.dilation != 1 || right.dilation != 1) return "takes no dilation";
  return {};
}

Cover cover_conv(const RemainingOps& rest, ConvReach reach) {
  const ConvSpan span = find_conv(rest, reach);
  if (span.conv == nullptr) {
    return Cover::no(reach == ConvReach::pooled ? "the next ops are no conv2d and its pool"
                                                : "the next op is no conv2d");
  }
  const std::string reason = refuse_span(span);
  if (!reason.empty()) return Cover::no(reason);
  Cover cover = Cover::of(span.ops());
  Values inner;
  if (span.ops() > 1) inner.push_back(span.conv->y);
  if (span.pool != nullptr && span.activation != nullptr) inner.push_back(span.activation->y);
  for (const Value& value : inner) {
    if (!rest.dead_after(value, span.ops())) {
      return Cover::no("a value between the ops is needed later");
    }
    cover.skips.push_back(value.id);
  }
  return cover;
}

}  // namespace ridgeline::cpu::simd
