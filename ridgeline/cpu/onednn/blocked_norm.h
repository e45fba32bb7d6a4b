#pragma once

#include <string>
#include <vector>

#include "ridgeline/cpu/onednn/blocked_conv.h"
#include "ridgeline/cpu/simd/blocked_norm.h"
#include "ridgeline/ops/pool.h"

// The kernels of blocked_norm.cpp and those of their gradients share these functions.
namespace ridgeline::cpu {

// Describes images `in` as the normalisation sees them, which ignores their width, or as the pool
// does.
inline simd::BlockedNormShape norm_shape(int64_t n, const Image& in, const PoolShape* pool) {
  const Image& image = pool != nullptr ? pool->in : in;
  return {n, image.c, block_size(), image.h, image.w, pool != nullptr};
}

// Returns why the kernels cannot take these operands, or "". `pool` is null without one.
inline std::string refuse_norm(const Values& values, const Image& in, const PoolShape* pool) {
  const Slide two{2, 2, 0, 1};
  if (pool != nullptr && pool->in.c != in.c) return "the pool sees other channels";
  if (pool != nullptr && pool->window != Window{two, two}) {
    return "takes pools of 2 x 2 with stride 2";
  }
  if (block_size() % simd::blocked_norm_functions().lanes() != 0) {
    return "a block of channels is no whole number of vectors";
  }
  return refuse(values);
}

// A step's values for each channel, with zeros for the padding of the last block: numbers that the
// passes over the images use, and two sums of each thread's samples.
struct NormChannels {
  float* used[5];
  std::vector<double*> sums[2];
  size_t bytes;

  NormChannels(const simd::BlockedNormShape& shape, int threads, std::byte* base) {
    const auto padded = size_t(shape.padded());
    simd::Scratch scratch(base);
    for (float*& each : used) each = scratch.take<float>(padded);
    for (auto& each : sums) {
      for (int i = 0; i < threads; ++i) each.push_back(scratch.take<double>(padded));
    }
    bytes = scratch.bytes();
  }
};

inline float or_else(const float* values, int64_t c, float otherwise) {
  return values != nullptr ? values[c] : otherwise;
}

// Which ops besides batch_norm and ReLU a kernel takes.
struct NormReach {
  bool conv, pool;
};

template <typename Covers, typename Prepare>
Kernel norm_kernel(const char* name, NormReach reach, Covers covers, Prepare prepare) {
  Kernel kernel;
  kernel.name = name;
  kernel.traits.precisions = simd::kFloatOnly;
  kernel.covers = [=](const RemainingOps& rest) { return covers(rest, reach); };
  kernel.prepare = [=](const Span& span, const Binding& binding) {
    return prepare(RemainingOps{span.program, span.begin, binding.runtime()}, reach, binding);
  };
  return kernel;
}

}  // namespace ridgeline::cpu
