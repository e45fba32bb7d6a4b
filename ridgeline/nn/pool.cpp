#include "ridgeline/nn/pool.h"

#include "ridgeline/nn/builder.h"

namespace ridgeline::nn {

LayerPtr PoolLayer::read_layer(ConfigTable& table, PoolKind kind, Axes axes) {
  const Window window = read_window(table, axes, /*stride=*/0, /*dilated=*/false);
  for (const Slide& slide : {window.h, window.w}) {
    if (slide.pad > slide.kernel / 2) {
      table.fail("padding", fmt::format("must be at most half of kernel = {}, is {}", slide.kernel,
                                        slide.pad));
    }
  }
  const bool padding = kind != PoolKind::average || table.boolean("count_include_pad", true);
  return std::make_shared<PoolLayer>(kind, axes, window,
                                     padding ? PoolCount::window : PoolCount::image);
}

std::string PoolLayer::type() const {
  if (kind_ == PoolKind::global_average) return "global_avgpool";
  return fmt::format("{}{}d", kind_ == PoolKind::max ? "maxpool" : "avgpool", int(axes_));
}

PoolShape PoolLayer::shape(const Shape& input) const {
  if (kind_ == PoolKind::global_average) {
    const Axes axes = input.rank() == 2 ? Axes::one : Axes::two;  // [c, w] of a conv1d
    const Image in = as_image(input, axes);
    return {in, {{in.h}, {in.w}}};
  }
  const Image in = as_image(input, axes_);
  slide_over(window_, in, in.c, axes_);
  return {in, window_};
}

Shape PoolLayer::output(const Shape& input) const {
  const Image out = shape(input).out();
  if (kind_ == PoolKind::global_average) return {out.c};
  return as_shape(out, axes_);
}

Value PoolLayer::forward(Builder& builder, LayerValues& values) const {
  const PoolShape pool = shape(values.input);
  const Value y =
      builder.temp(fmt::format("x{}", values.layer + 1), {values.x.shape[0], pool.out().numel()});
  if (kind_ == PoolKind::max) {
    builder.add(MaxPool{values.x, y, pool});
  } else {
    builder.add(AvgPool{values.x, y, pool, count_});
  }
  return y;
}

Value PoolLayer::backward(Builder& builder, const LayerValues& values, const Value& dy,
                          bool needs_dx) const {
  if (!needs_dx) return {};
  const PoolShape pool = shape(values.input);
  const Value dx = builder.like(fmt::format("dx{}", values.layer), values.x);
  if (kind_ == PoolKind::max) {
    builder.add(MaxPoolGrad{values.x, values.y, dy, dx, pool});
  } else {
    builder.add(AvgPoolGrad{dy, dx, pool, count_});
  }
  return dx;
}

std::string PoolLayer::to_toml() const {
  if (kind_ == PoolKind::global_average) return "{ type = \"global_avgpool\" }";
  std::string text =
      fmt::format("{{ type = \"{}\", {}", type(), nn::to_toml(window_, axes_, false));
  if (kind_ == PoolKind::average) {
    text += fmt::format(", count_include_pad = {}", count_ == PoolCount::window);
  }
  return text + " }";
}

}  // namespace ridgeline::nn
