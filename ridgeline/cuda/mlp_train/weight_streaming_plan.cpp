#include "ridgeline/cuda/mlp_train/weight_streaming_plan.h"

#include <fmt/core.h>

#include <algorithm>

#include "ridgeline/cuda/mlp_train/arena.h"
#include "ridgeline/cuda/mlp_train/batch_tiles.h"

namespace ridgeline::cuda::mlp {

std::string plan_weight_streaming(const MlpTrainShape& shape, int blocks, size_t shared_limit,
                                  WeightStreamingPlan* plan) {
  if (auto why = check_shape(shape); !why.empty()) return why;
  if (shape.batch > kWeightStreamingMaxBatch) {
    return fmt::format("batch {}; takes up to {}", shape.batch, kWeightStreamingMaxBatch);
  }
  WeightStreamingPlan& p = *plan;
  p = {};
  p.blocks = blocks;
  p.layers = shape.layers;
  p.classes = shape.sizes[shape.layers];
  const int samples = sample_tiles(shape.batch), class_tiles = divide_up(p.classes, 16);
  p.class_stride = class_tiles * 16 + 8;

  Arena shared, work;
  work.take(kCounterBytes);
  int most = 1;
  for (int l = 0; l < p.layers; ++l) {
    auto& y = p.layer[l];
    y.in = shape.sizes[l], y.out = shape.sizes[l + 1];
    y.in_tiles = divide_up(y.in, 16), y.out_tiles = divide_up(y.out, 16);
    const bool top = l + 1 == p.layers;
    y.own = top ? y.out_tiles : divide_up(y.out_tiles, blocks);
    y.bias = int(shared.take(size_t(64) * y.own));
    if (top) continue;
    most = std::max(most, y.own);
    y.own_y = int(shared.take(size_t(y.own) * samples * kTileBytes));
    y.y = work.take(size_t(y.out_tiles) * samples * kTileBytes);
    y.dy = work.take(size_t(y.out_tiles) * samples * kTileBytes);
  }
  p.parts = weight_streaming_parts(most, samples, shape.masters);
  p.x_bytes = p.layer[0].in_tiles * samples * kTileBytes;
  p.x = work.take(size_t(p.x_bytes) * 2);
  p.zeroed_bytes = work.used;
  const size_t logits = size_t(class_tiles) * samples * 256;
  p.partial = work.take(logits * blocks * 4);
  p.logit_sum = work.take(logits * 4);
  for (int l = 0; l < p.layers; ++l) {
    const size_t tiles = size_t(p.layer[l].in_tiles) * p.layer[l].out_tiles;
    p.layer[l].w = work.take(tiles * kTileBytes);
    if (shape.masters) p.layer[l].master = work.take(tiles * kTileBytes * 2);
  }
  p.workspace_bytes = work.used;

  p.ring = int(shared.take(
      std::max(size_t(weight_streaming_stage_bytes(p.parts, samples, shape.masters)) *
                   weight_streaming_depth(p.parts, samples, shape.masters),
               size_t(kWarps) * weight_streaming_round(samples) * samples * 2 * kTileBytes)));
  p.own_dy = int(shared.take(size_t(most) * samples * kTileBytes));
  p.transposed = int(shared.take(size_t(most) * samples * kTileBytes));
  p.logits = int(shared.take(size_t(16) * samples * class_tiles * 16 * 4));
  p.dlogits = int(shared.take(size_t(16) * samples * p.class_stride * 2));
  p.dlogits_t = int(shared.take(size_t(16) * class_tiles * sample_stride(samples) * 2));
  p.labels = int(shared.take(size_t(kLabelRing) * 16 * samples * 4));
  p.sample_loss = int(shared.take(size_t(16) * samples * 4));
  p.sample_correct = int(shared.take(size_t(16) * samples * 4));
  p.shared_bytes = shared.used;
  if (shared.used > shared_limit) {
    return fmt::format("needs {} KB of shared memory a block; there are {}", shared.used >> 10,
                       shared_limit >> 10);
  }
  return {};
}

}  // namespace ridgeline::cuda::mlp
