#pragma once

// The first layer of a member: z[samples, units] = X w1^T by wgmma, with X read from L2 as bytes.

#include "ridgeline/cuda/population/block.cuh"

namespace ridgeline::cuda::population {

// The bytes of two samples (rows g and g + 8 of a warp's sixteen), a chunk or a panel at a time.
struct SampleBytes {
  const uint8_t* x[2];

  __device__ SampleBytes(const MemberArgs& p, const RemainingOps& rest, int now, const Lane& l,
                         int inputs) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      x[i] = p.inputs + int64_t(rest.samples[now][l.sample + 8 * i]) * inputs;
    }
  }
  __device__ void chunk(int c, const Lane& l, uint4 (&to)[2]) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      to[i] = __ldg(reinterpret_cast<const uint4*>(x[i] + c * kChunk + 16 * l.t));
    }
  }
  __device__ void first_chunks(int chunks, const Lane& l, uint4 (&to)[2][2]) const {
    if (chunks > 0) chunk(0, l, to[0]);
    if (chunks > 1) chunk(1, l, to[1]);
  }
  __device__ void panel(int first, const Lane& l, uint32_t (&to)[2]) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      to[i] = __ldg(reinterpret_cast<const uint32_t*>(x[i] + first + 4 * l.t));
    }
  }
};

__device__ inline uint32_t word(const uint4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

template <typename T>
__device__ inline void to_operand(uint32_t low, uint32_t high, uint32_t (&a)[4]) {
  a[0] = to_numbers<T, 0>(low);
  a[1] = to_numbers<T, 0>(high);
  a[2] = to_numbers<T, 1>(low);
  a[3] = to_numbers<T, 1>(high);
}

// Rounds chunk c of the master weights, or a panel, for the products, into half `c % 2` of the
// staging memory.
template <typename T, typename M>
__device__ inline void round_masters(char* shared, int c, int chunks, float factor) {
  char* to = shared + M::kStaged + c % 2 * (kStagedBytes / 2);
  if (c < chunks) {
    const char* from = shared + M::kW1 + c * M::kChunkBytes;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int at = i * kThreads + int(threadIdx.x), row = at / 16, position = at % 16 * 4;
      const auto v = *reinterpret_cast<const float4*>(from + M::in_chunk(row, position));
      *reinterpret_cast<uint2*>(to + M::half_chunk(row, position)) = {
          pack<T>(factor * v.x, factor * v.y), pack<T>(factor * v.z, factor * v.w)};
    }
  } else {
    const char* from = shared + M::kW1 + chunks * M::kChunkBytes + (c - chunks) * M::kPanelBytes;
    const int row = int(threadIdx.x) / 4, position = int(threadIdx.x) % 4 * 4;
    const auto v = *reinterpret_cast<const float4*>(from + M::in_panel(row, position));
    *reinterpret_cast<uint2*>(to + M::half_panel(row, position)) = {
        pack<T>(factor * v.x, factor * v.y), pack<T>(factor * v.z, factor * v.w)};
  }
  fence_async_proxy();
}

// Computes z without scale and bias: rows l.sample (+ 8) and columns 8 n + 2 t (+ 1) of accumulator
// 4 n. `bytes` holds the first two chunks on entry, and the first again on return. `factor`: what
// master weights are multiplied by before they are rounded.
template <typename T, int kUnits, bool kMasters>
__device__ inline void first_layer(const SampleBytes& x, uint4 (&bytes)[2][2], char* shared,
                                   const Lane& l, int inputs, float factor,
                                   float (&z)[kUnits / 2]) {
  using M = Map<T, kUnits, kMasters>;
  const int chunks = inputs / kChunk, panels = inputs % kChunk / kPanel;
  const uint32_t base = shared_address(shared);
  uint32_t a[2][4][4];
  const auto operands = [&]<int kBuffer>() {
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      to_operand<T>(word(bytes[kBuffer][0], s), word(bytes[kBuffer][1], s), a[kBuffer][s]);
    }
  };
  if constexpr (kMasters) round_masters<T, M>(shared, 0, chunks, factor);
  operands.template operator()<0>();
  if (chunks > 2) x.chunk(2, l, bytes[0]);
  // Chunk c: its products run while the operands of the next chunk are prepared and the bytes of
  // the two chunks after that are being loaded.
  const auto multiply = [&]<int kBuffer>(int c) {
    if constexpr (kMasters) __syncthreads();  // the rounded weights are ready
    const uint64_t b =
        kMasters ? wgmma_descriptor(base + M::kStaged + kBuffer * (kStagedBytes / 2), 16, 1024, 128)
                 : wgmma_descriptor(base + M::kW1 + c * (kUnits * 128), 16, 1024, 128);
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < 4; ++s) wgmma_register_operand<T>(z, a[kBuffer][s], b + 2 * s, c + s > 0);
    wgmma_commit();
    if constexpr (kMasters) {
      if (c + 1 < chunks + panels) round_masters<T, M>(shared, c + 1, chunks, factor);
    } else {
      wgmma_wait<1>();
      wgmma_keep_operands(a[1 - kBuffer]);
    }
    if (c + 1 < chunks) {
      operands.template operator()<1 - kBuffer>();
      if (c + 3 < chunks) x.chunk(c + 3, l, bytes[1 - kBuffer]);
    }
    if constexpr (kMasters) {
      wgmma_wait<0>();
      wgmma_keep_operands(a[kBuffer]);
    }
  };
#pragma unroll 1
  for (int c = 0; c < chunks; c += 2) {
    multiply.template operator()<0>(c);
    if (c + 1 < chunks) multiply.template operator()<1>(c + 1);
  }
  if (chunks > 0) x.chunk(0, l, bytes[0]);  // for the gradient of w1
#pragma unroll 1
  for (int i = 0; i < panels; ++i) {
    uint32_t left[2], last[1][4];
    x.panel(chunks * kChunk + i * kPanel, l, left);
    to_operand<T>(left[0], left[1], last[0]);
    const int c = chunks + i;
    if constexpr (kMasters) __syncthreads();
    const uint64_t b =
        kMasters ? wgmma_descriptor(base + M::kStaged + c % 2 * (kStagedBytes / 2), 16, 256, 32)
                 : wgmma_descriptor(base + M::kW1 + chunks * (kUnits * 128) + i * (kUnits * 32), 16,
                                    256, 32);
    wgmma_fence();
    wgmma_register_operand<T>(z, last[0], b, c > 0);
    wgmma_commit();
    if constexpr (kMasters) {
      if (i + 1 < panels) round_masters<T, M>(shared, c + 1, chunks, factor);
    }
    wgmma_wait<0>();
    wgmma_keep_operands(last);
  }
  wgmma_wait<0>();
  wgmma_keep(z);
}

}  // namespace ridgeline::cuda::population
