#pragma once

// The memory layout and the work distribution of the gradients of a convolution with several
// channels. A first launch (grad_maps.cuh) writes the products' operands, channels-last, to the
// workspace.

#include <algorithm>
#include <cstddef>

#include "ridgeline/cuda/conv/implicit.h"
#include "ridgeline/cuda/conv/tensor.cuh"

namespace ridgeline::cuda {

constexpr int kGradWWarps = 8, kGradWThreads = kGradWWarps * 32;
constexpr int kGradWChannels = 32;  // input channels per block: up to four tiles

// The maps dz[n, out_h, out_w, k] and x[n, rows, columns, c]; x includes its padding, and factors
// are rounded.
struct GradMaps {
  int group_k, group_c;  // channels of a group, padded to whole chunks
  int k, c;              // channels of all groups
  int rows, columns;     // the extent that the filters reach
  int parts;  // parts of an image's pixels, one per warp: few enough to be resident all at once

  __host__ __device__ GradMaps(const ImplicitShape& shape, int width)
      : rows((shape.out_h() - 1) * shape.stride + shape.filter),
        columns((shape.out_w() - 1) * shape.stride + shape.filter) {
    const int chunk = 16 / width;
    group_k = (shape.group_k() + chunk - 1) / chunk * chunk;
    group_c = (shape.group_c() + chunk - 1) / chunk * chunk;
    k = shape.groups * group_k;
    c = shape.groups * group_c;
    const int most = (rows * columns + 127) / 128;
    parts = most < 4 ? most : 4;
  }
};

inline int grad_w_row_tiles(const ImplicitShape& shape) { return shape.group_k() <= 32 ? 2 : 4; }

// Bytes between pixels in shared memory, padded so that neighbouring pixels are in different banks
// for the loads of one tile.
__host__ __device__ constexpr int grad_w_pitch(int channels, int width) {
  return channels * width + (width == 2 ? 16 : 32);
}

// A block takes one row u of the filter, 32 input channels and up to 64 output channels of a group,
// and a share of the images, in bands of rows of pixels that fit twice in shared memory.
struct GradWShares {
  int band, bands;  // rows per band, bands per image
  int pixels;       // pixels of a band, rounded up to whole steps of k
  int tiles;        // tiles of eight input channels; warps split these first, then the steps of k
  int channel_blocks, output_blocks;  // blocks per group of channels
  int groups;                         // shares of the images
  // Bytes of shared memory: the offset table into x, one stage, the total.
  int table, stage, shared;
};

inline GradWShares grad_w_shares(const ImplicitShape& shape, int width, int sms,
                                 size_t shared_memory) {
  GradWShares s{};
  const int step = kStepBytes / width, row_tiles = grad_w_row_tiles(shape);
  const GradMaps maps(shape, width);
  const auto whole = [](int bytes) { return (bytes + 127) / 128 * 128; };
  const int exchange = kGradWThreads * row_tiles * shape.filter * 16;
  for (s.band = shape.out_h(); s.band > 0; --s.band) {
    s.pixels = (s.band * shape.out_w() + step - 1) / step * step;
    s.table = whole(s.pixels * 4);
    s.stage = whole(s.pixels * grad_w_pitch(row_tiles * 16, width)) +
              whole(s.band * maps.columns * grad_w_pitch(kGradWChannels, width));
    s.shared = s.table + std::max(2 * s.stage, exchange);
    if (size_t(s.shared) <= shared_memory) break;
  }
  if (s.band == 0) return s;
  s.bands = (shape.out_h() + s.band - 1) / s.band;
  s.tiles = shape.group_c() <= 8 ? 1 : shape.group_c() <= 16 ? 2 : 4;
  s.channel_blocks = (shape.group_c() + kGradWChannels - 1) / kGradWChannels;
  s.output_blocks = (shape.group_k() + row_tiles * 16 - 1) / (row_tiles * 16);
  const int blocks = s.channel_blocks * shape.filter * s.output_blocks * shape.groups;
  const int groups = std::clamp(sms / blocks, 1, shape.n);
  const int each = (shape.n + groups - 1) / groups;
  s.groups = (shape.n + each - 1) / each;
  return s;
}

// Byte offsets of the parts of the workspace: the maps, the packed filters for dx, the images' sums
// for db [n, maps.parts, maps.k], and the groups' sums for dw [groups, taps, k].
struct GradWorkspace {
  size_t dz, x, packed_filters, bias, partial, total;

  GradWorkspace(const ImplicitShape& shape, size_t width, int groups) {
    const auto whole = [](size_t bytes) { return (bytes + 255) / 256 * 256; };
    const GradMaps maps(shape, int(width));
    const auto images = size_t(shape.n);
    dz = 0;
    x = whole(images * shape.out_h() * shape.out_w() * maps.k * width);
    packed_filters = x + whole(images * maps.rows * maps.columns * maps.c * width);
    bias = packed_filters + whole(implicit_workspace(shape.flipped(), width));
    partial = bias + whole(images * maps.parts * maps.k * 4);
    const size_t weights = size_t(shape.k) * shape.group_c() * shape.filter * shape.filter;
    total = partial + size_t(groups) * weights * 4;
  }
};

}  // namespace ridgeline::cuda
