#pragma once

#include "ridgeline/nn/image.h"
#include "ridgeline/nn/layer.h"

namespace ridgeline::nn {

enum class PoolKind { max, average, global_average };

// maxpool2d, maxpool1d, avgpool2d, avgpool1d: a window over each channel of an image, see as_image.
// global_avgpool: the mean of each channel, [c, ...] -> [c].
class PoolLayer final : public Layer {
 public:
  PoolLayer(PoolKind kind, Axes axes, const Window& window, PoolCount count)
      : kind_(kind), axes_(axes), window_(window), count_(count) {}

  template <PoolKind kind, Axes axes>
  static LayerPtr read(ConfigTable& table) {
    return read_layer(table, kind, axes);
  }
  static LayerPtr read_global(ConfigTable&) {
    return std::make_shared<PoolLayer>(PoolKind::global_average, Axes::two, Window{},
                                       PoolCount::window);
  }

  std::string type() const override;
  Shape output(const Shape& input) const override;
  Value forward(Builder& builder, LayerValues& values) const override;
  Value backward(Builder& builder, const LayerValues& values, const Value& dy,
                 bool needs_dx) const override;
  std::string to_toml() const override;

 private:
  static LayerPtr read_layer(ConfigTable& table, PoolKind kind, Axes axes);
  PoolShape shape(const Shape& input) const;  // throws Error(usage) when it does not fit

  PoolKind kind_;
  Axes axes_;
  Window window_;
  PoolCount count_;
};

}  // namespace ridgeline::nn
