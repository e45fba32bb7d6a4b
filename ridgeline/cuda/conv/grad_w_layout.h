#pragma once

// How the filters' gradient (implicit_grad_w.cuh) lies in memory and is shared out.

#include <algorithm>
#include <cstddef>

#include "ridgeline/cuda/conv/implicit.h"
#include "ridgeline/cuda/conv/tensor.cuh"

namespace ridgeline::cuda {

constexpr int kGradWWarps = 8, kGradWThreads = kGradWWarps * 32;
constexpr int kGradWChannels = 32;  // input channels of a block: up to four tiles

// Extents in elements.
struct GradWLayout {
  int width;            // bytes of an element
  int columns;          // of dy's rows, padded with zeros to whole steps
  int x_pitch;          // of x's rows, padded
  int dy_plane;         // between channels of dy in shared memory: an odd number of 16 bytes
  int x_rows, x_plane;  // the same of x, whose channels lie in different banks
  int x_full;           // rows of a padded plane of x in global memory
  int channels;         // of x, in a block
  int tiles;            // of eight of them; warps share these, then outputs, then rows of pixels
  int channel_blocks, rows_blocks;  // blocks that share the work on an image
  int output_blocks;                // of row_tiles * 16 output channels
  int groups;                       // shares of the images

  __host__ __device__ bool single() const { return channels == 1; }
  __host__ __device__ int copies() const { return width == 2 ? 2 : 1; }
  __host__ __device__ int x_elements() const { return copies() * channels * x_plane; }
};

inline int grad_w_row_tiles(const ImplicitShape& shape) {
  return shape.c == 1 || shape.k <= 32 ? 2 : 4;
}

inline GradWLayout grad_w_layout(const ImplicitShape& shape, int width, int processors) {
  GradWLayout l;
  const int chunk = 16 / width, step = kStepBytes / width;
  l.width = width;
  l.columns = (shape.out_w() + step - 1) / step * step;
  l.channels = shape.c == 1 ? 1 : kGradWChannels;
  l.tiles = shape.c <= 8 ? 1 : shape.c <= 16 ? 2 : 4;
  const int reach = l.columns + (l.single() ? 8 : shape.filter) - 1;
  l.x_pitch = (reach + chunk - 1) / chunk * chunk;
  l.x_full = shape.out_h() + shape.filter - 1;
  l.x_rows = l.single() ? l.x_full : shape.out_h();
  const auto odd_chunks = [&](int elements) { return (elements / chunk | 1) * chunk; };
  l.dy_plane = odd_chunks(shape.out_h() * l.columns);
  l.x_plane = odd_chunks(l.x_rows * l.x_pitch);
  l.channel_blocks = (shape.c + l.channels - 1) / l.channels;
  l.rows_blocks = l.single() ? 1 : shape.filter;
  const int outputs = grad_w_row_tiles(shape) * 16;
  l.output_blocks = (shape.k + outputs - 1) / outputs;
  const int blocks = l.channel_blocks * l.rows_blocks * l.output_blocks;
  l.groups = std::clamp(2 * processors / blocks, 1, shape.n);
  const int each = (shape.n + l.groups - 1) / l.groups;
  l.groups = (shape.n + each - 1) / each;
  return l;
}

// Sums of the warps that share a tile meet where the images were.
inline size_t grad_w_shared(const ImplicitShape& shape, const GradWLayout& l) {
  const int tiles = grad_w_row_tiles(shape);
  const size_t staging = (size_t(tiles) * 16 * l.dy_plane + l.x_elements()) * l.width;
  const size_t exchange = size_t(kGradWThreads) * (tiles / 2) * shape.filter * 16;
  return std::max(staging, exchange);
}

// Where the workspace's parts lie, in bytes.
struct GradWWorkspace {
  size_t dy, x, partial, total;  // dy starts at 0

  GradWWorkspace(const ImplicitShape& shape, const GradWLayout& l) {
    const auto whole = [](size_t bytes) { return (bytes + 255) / 256 * 256; };
    const size_t images = size_t(shape.n), width = size_t(l.width);
    dy = 0;
    x = whole(images * shape.k * shape.out_h() * l.columns * width);
    partial = x + whole(images * shape.c * l.copies() * l.x_full * l.x_pitch * width);
    const size_t weights = size_t(shape.k) * shape.c * shape.filter * shape.filter;
    total = partial + size_t(l.groups) * (weights + shape.k) * 4;
  }
};

}  // namespace ridgeline::cuda
