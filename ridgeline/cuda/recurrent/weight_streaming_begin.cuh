#pragma once

#include "ridgeline/cuda/recurrent/pass.cuh"
#include "ridgeline/cuda/recurrent/values.cuh"
#include "ridgeline/cuda/recurrent/weight_streaming_units.cuh"

namespace ridgeline::cuda::recurrent {

// Writes the weights in the layout that the blocks read: for each tile of units and 64 places, a
// tile of rows of 128 bytes, with vec8s swizzled as wgmma reads them. Also writes the initial state
// to the slots, and clears the flags.
template <typename T, Cell kCell, int kQuads>
__global__ void rnn_stream_begin_kernel(WeightStreamingForwardParams<T> p) {
  using Units = StreamUnits<kCell, kQuads>;
  const PersistentForward<T>& args = p.args;
  const int H = args.sequence.hidden, count = p.shape.blocks_of_k;
  const int64_t stride = int64_t(gridDim.x) * blockDim.x;
  const int64_t begin = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  const auto put = [](uint4* to, const float(&v)[8]) {
    Values<T, 8> run;
#pragma unroll
    for (int e = 0; e < 8; ++e) run.v[e] = T(v[e]);
    *to = *reinterpret_cast<const uint4*>(&run);
  };
  const int64_t words = int64_t(p.shape.tiles) * count * Units::kRows * 8;
  for (int64_t i = begin; i < words; i += stride) {
    const int vec8 = int(i % 8), row = int(i / 8 % Units::kRows);
    const int64_t block = i / (8 * Units::kRows);
    const int unit = int(block / count) * Units::kUnits + Units::unit_of(row);
    float v[8] = {};
    if (unit < H) {
      load_vec8(args.w_hh + (int64_t(Units::gate_of(row)) * H + unit) * H,
                int(block % count) * 8 + vec8, H, v);
    }
    put(args.l2_workspace + block * (Units::kRows * 8) + row * 8 + ((vec8 ^ row) & 7), v);
  }
  // [group, slot, block of places, sample]
  const int rows = p.shape.samples;
  const int64_t slot_words = int64_t(count) * rows * 8;
  uint4* slots = args.exchange + kStreamFlagBytes / 16;
  for (int64_t i = begin; i < 2 * p.shape.groups * slot_words; i += stride) {
    const int vec8 = int(i % 8), row = int(i / 8 % rows), block = int(i / (8 * rows) % count);
    const int slot = int(i / slot_words), sample = slot / 2 * rows + row;
    float v[8] = {};
    if (slot % 2 == 0 && sample < args.samples && args.h0 != nullptr) {
      load_vec8(args.h0 + int64_t(args.first_sample + sample) * H, block * 8 + vec8, H, v);
    }
    put(slots + i / 8 * 8 + ((vec8 ^ row) & 7), v);
  }
  auto* flags = reinterpret_cast<uint32_t*>(args.exchange);
  if (begin < kStreamFlagBytes / 4) flags[begin] = begin % kStreamFlags < p.shape.tiles ? 0 : ~0u;
}

}  // namespace ridgeline::cuda::recurrent
