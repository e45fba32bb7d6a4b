#include "ridgeline/nn/flatten.h"

namespace ridgeline::nn {

Value FlattenLayer::forward(Builder&, LayerValues& values) const { return values.x; }

Value FlattenLayer::backward(Builder&, const LayerValues&, const Value& dy, bool) const {
  return dy;
}

}  // namespace ridgeline::nn
