#include "ridgeline/cuda/mlp_train/resident_plan.h"

#include <fmt/core.h>

#include <algorithm>

#include "ridgeline/cuda/mlp_train/arena.h"
#include "ridgeline/cuda/mlp_train/stages.h"

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

std::string plan_resident(const MlpTrainShape& shape, int blocks, bool in_cluster,
                          size_t shared_limit, ResidentPlan* plan) {
  if (auto why = check_shape(shape); !why.empty()) return why;
  ResidentPlan& p = *plan;
  p = {};
  p.blocks = blocks;
  p.hidden = shape.layers - 1;
  p.classes = shape.sizes[shape.layers];
  p.class_tiles = divide_up(p.classes, 8);
  p.class_stride = divide_up(p.classes, 16) * 16 + 8;
  const int samples = sample_tiles(shape.batch);
  const size_t slot = shape.masters ? 16 : 8;

  Arena shared, exchange, priv;
  Arena& sent = in_cluster ? shared : exchange;
  int widest = p.class_tiles;
  for (int l = 0; l < p.hidden; ++l) {
    auto& y = p.layer[l];
    y.in = shape.sizes[l], y.out = shape.sizes[l + 1];
    y.in_tiles = divide_up(y.in, 16), y.out_tiles = divide_up(y.out, 16);
    y.own_tiles = divide_up(divide_up(y.out, 8), blocks);
    widest = std::max(widest, y.own_tiles);
    const size_t own = size_t(8) * y.own_tiles * sample_stride(samples) * 2;
    y.bias = int(shared.take(8 * y.own_tiles * 4));
    y.own_y = int(shared.take(own * (l == 0 ? 2 : 1)));
    y.own_dy = int(shared.take(own));
    const size_t bytes = size_t(y.out_tiles) * samples * kTileBytes;
    y.y = sent.take(bytes * (l == 0 ? 2 : 1));
    if (l > 0 && l + 1 < p.hidden) y.dy = sent.take(bytes);
    for (int c = 0; c < blocks; ++c) {
      const int quads = std::clamp(4 * y.out_tiles - c * 2 * y.own_tiles, 0, 2 * y.own_tiles);
      y.y_bytes += 16 * std::max(1, quads * samples * 8);
    }
  }
  p.x_bytes = p.layer[0].in_tiles * samples * kTileBytes;
  p.x = sent.take(size_t(p.x_bytes) * (in_cluster ? kInputRingCluster : kInputRing));
  p.filler = sent.take(size_t(16) * blocks);
  p.top_bias = int(shared.take(8 * p.class_tiles * 4));
  // Over the grid a barrier follows every use; in a cluster two buffers alternate.
  const int reduce_bytes =
      (in_cluster ? kClusterComputeWarps : kGridComputeWarps) * samples * widest * kTileBytes;
  p.reduce_stride = in_cluster ? reduce_bytes : 0;
  p.reduce = int(shared.take(size_t(reduce_bytes) * (in_cluster ? 2 : 1)));
  p.stages = int(shared.take(sizeof(Stage) * kTables * 2 * p.hidden));
  p.jobs = int(shared.take(sizeof(Job) * kTables * 2 * p.hidden));
  p.logits = int(shared.take(size_t(16) * samples * 8 * p.class_tiles * 4));
  p.dlogits = int(shared.take(size_t(16) * samples * p.class_stride * 2));
  p.dlogits_t = int(shared.take(size_t(8) * p.class_tiles * sample_stride(samples) * 2));
  p.labels = int(shared.take(size_t(kLabelRing) * 16 * samples * 4));
  p.sample_loss = int(shared.take(size_t(16) * samples * 4));
  p.sample_correct = int(shared.take(size_t(16) * samples * 4));
  p.barriers = int(shared.take(64 * 8));
  if (shared.used > shared_limit) {
    return fmt::format("activations and buffers take {} KB of shared memory a block; there are {}",
                       shared.used >> 10, shared_limit >> 10);
  }

  // Weights: on chip in the order of their use, the rest in the block's own part of the workspace.
  const auto place = [&](size_t bytes) -> Place {
    Arena after = shared;
    after.take(bytes);
    return after.used <= shared_limit ? shared.take(bytes) : ~priv.take(bytes);
  };
  for (int l = 0; l < p.hidden; ++l) {
    p.layer[l].rows = place(slot * 32 * p.layer[l].own_tiles * p.layer[l].in_tiles);
  }
  for (int l = 1; l < p.hidden; ++l) {
    p.layer[l].columns = place(slot * 32 * p.layer[l - 1].own_tiles * p.layer[l].out_tiles);
  }
  p.top = place(slot * 32 * p.class_tiles * p.layer[p.hidden - 1].out_tiles);
  p.stash = place(size_t(p.layer[p.hidden - 1].out_tiles) * samples * kTileBytes);
  p.shared_bytes = shared.used;
  p.exchange_bytes = (exchange.used + 255) / 256 * 256;
  p.private_bytes = (priv.used + 255) / 256 * 256;
  if (in_cluster && p.private_bytes > 0) {
    return fmt::format("weights do not fit in the shared memory of {} blocks", blocks);
  }
  return {};
}

}  // namespace ridgeline::cuda::mlp
