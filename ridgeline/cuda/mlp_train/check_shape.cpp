#include <fmt/core.h>

#include "ridgeline/cuda/mlp_train/batch_tiles.h"

namespace ridgeline::cuda::mlp {

std::string check_shape(const MlpTrainShape& shape) {
  if (shape.layers < 2 || shape.layers > kMlpMaxLayers) {
    return fmt::format("{} linear layers; takes 2 to {}", shape.layers, kMlpMaxLayers);
  }
  if (shape.batch < 1 || shape.batch > kMlpMaxBatch) {
    return fmt::format("batch {}; takes 1 to {}", shape.batch, kMlpMaxBatch);
  }
  for (int l = 0; l <= shape.layers; ++l) {
    if (shape.sizes[l] < 1 || shape.sizes[l] > 65536) {
      return fmt::format("size {} of layer {}; takes 1 to 65536", shape.sizes[l], l);
    }
  }
  if (shape.sizes[shape.layers] > kMlpMaxClasses) {
    return fmt::format("{} classes; takes up to {}", shape.sizes[shape.layers], kMlpMaxClasses);
  }
  return {};
}

}  // namespace ridgeline::cuda::mlp
