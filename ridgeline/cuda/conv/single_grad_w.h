#pragma once

// The memory layout and the work distribution of the filters' gradient with one input channel
// (single_grad_w.cuh).

#include <algorithm>
#include <cstddef>

#include "ridgeline/cuda/conv/implicit.h"
#include "ridgeline/cuda/conv/tensor.cuh"

namespace ridgeline::cuda {

constexpr int kSingleWarps = 8, kSingleThreads = kSingleWarps * 32;
constexpr int kSingleOutputs = 32;  // per block

// Extents in elements.
struct SingleLayout {
  int width;            // bytes of an element
  int columns;          // of dy's rows, padded with zeros to whole steps of k
  int x_pitch;          // of x's rows, padded
  int dy_plane;         // between channels of dy in shared memory: an odd number of 16-byte chunks
  int x_rows, x_plane;  // the same for x, whose two copies are in different banks
  int output_blocks;    // blocks of 32 output channels
  int groups;           // shares of the images

  __host__ __device__ int copies() const { return width == 2 ? 2 : 1; }
  __host__ __device__ int x_elements() const { return copies() * x_plane; }
};

inline SingleLayout single_layout(const ImplicitShape& shape, int width, int sms) {
  SingleLayout l;
  const int chunk = 16 / width, step = kStepBytes / width;
  l.width = width;
  l.columns = (shape.out_w() + step - 1) / step * step;
  l.x_pitch = (l.columns + 7 + chunk - 1) / chunk * chunk;  // tiles have eight taps
  l.x_rows = shape.out_h() + shape.filter - 1;
  const auto odd_chunks = [&](int elements) { return (elements / chunk | 1) * chunk; };
  l.dy_plane = odd_chunks(shape.out_h() * l.columns);
  l.x_plane = odd_chunks(l.x_rows * l.x_pitch);
  l.output_blocks = (shape.k + kSingleOutputs - 1) / kSingleOutputs;
  l.groups = std::clamp(2 * sms / l.output_blocks, 1, shape.n);
  const int each = (shape.n + l.groups - 1) / l.groups;
  l.groups = (shape.n + each - 1) / each;
  return l;
}

// The sums of warps with the same outputs are exchanged in the memory of the images.
inline size_t single_shared(const ImplicitShape& shape, const SingleLayout& l) {
  const size_t staging = (size_t(kSingleOutputs) * l.dy_plane + l.x_elements()) * l.width;
  const size_t exchange = size_t(kSingleThreads) * shape.filter * 16;
  return std::max(staging, exchange);
}

// Byte offsets of the parts of the workspace.
struct SingleWorkspace {
  size_t dy, x, partial, total;  // dy starts at 0

  SingleWorkspace(const ImplicitShape& shape, const SingleLayout& l) {
    const auto whole = [](size_t bytes) { return (bytes + 255) / 256 * 256; };
    const size_t images = size_t(shape.n), width = size_t(l.width);
    dy = 0;
    x = whole(images * shape.k * shape.out_h() * l.columns * width);
    partial = x + whole(images * l.copies() * l.x_rows * l.x_pitch * width);
    total = partial + size_t(l.groups) * (size_t(shape.filter) * shape.filter + 1) * shape.k * 4;
  }
};

}  // namespace ridgeline::cuda
