#pragma once

// Convolutions of generated functions. A block keeps the images of its samples in shared memory for
// a whole step, with channels innermost (padded to kGroup): the inputs of each convolution, with
// the padding around them, and its outputs, which later hold their gradients. Products read 16
// bytes of a pixel's channels at a time, so nothing is unfolded, except for the input of the first
// convolution: its few channels are unfolded into kTaps times as many, and it is a product over
// single pixels.

#include "ridgeline/cuda/generate/device/update.cuh"

namespace ridgeline::generated {

// The geometry of a convolution from kIn channels of kInH x kInW pixels to kOut of kOutH x kOutW.
// kXLd and kZLd: values per pixel in memory. kGroup: eight channels in half types, else four.
// kBack: a gradient of the input is wanted. Outputs are then stored as far apart as the stride,
// with zeros between and around them, so that this gradient is a convolution of the outputs'
// gradients with stride 1.
template <int kIn_, int kInH_, int kInW_, int kOut_, int kOutH_, int kOutW_, int kTapsH_,
          int kTapsW_, int kStepH_, int kStepW_, int kPadH_, int kPadW_, bool kBack_, int kXLd_,
          int kZLd_, int kGroup>
struct Conv {
  static constexpr int kIn = kIn_, kInH = kInH_, kInW = kInW_;
  static constexpr int kOut = kOut_, kOutH = kOutH_, kOutW = kOutW_;
  static constexpr int kTapsH = kTapsH_, kTapsW = kTapsW_, kTaps = kTapsH * kTapsW;
  static constexpr bool kBack = kBack_;
  static constexpr int kStepH = kStepH_, kStepW = kStepW_;
  static constexpr int kXLd = kXLd_, kZLd = kZLd_;
  static constexpr int kInP = (kIn + kGroup - 1) / kGroup * kGroup;
  static constexpr int kOutP = (kOut + kGroup - 1) / kGroup * kGroup;
  static constexpr int kInPixels = kInH * kInW, kPixels = kOutH * kOutW;
  static constexpr int kXRow = (kInW + 2 * kPadW_) * kXLd;
  static constexpr int kXSize = (kInH + 2 * kPadH_) * kXRow;
  // Where output pixels read, from the first tap on.
  static constexpr int kXStepRow = kStepH_ * kXRow, kXStep = kStepW_ * kXLd;
  static constexpr int kZRow = (kBack ? kInW + kTapsW - 1 : kOutW) * kZLd;
  static constexpr int kZSize = (kBack ? kInH + kTapsH - 1 : kOutH) * kZRow;
  static constexpr int kZStepRow = (kBack ? kStepH_ : 1) * kZRow;
  static constexpr int kZStep = (kBack ? kStepW_ : 1) * kZLd;
  static constexpr int kZFirst =
      kBack ? (kTapsH - 1 - kPadH_) * kZRow + (kTapsW - 1 - kPadW_) * kZLd : 0;
  static constexpr int kWeights = kTaps * kInP;  // per output, in the order of products

  // With a stride, pixels of the inputs fall into classes by the remainders of their places: the
  // gradients of a class come from the same taps, the others' would meet zeros only.
  static constexpr bool kClassed = kBack && kTapsH >= kStepH && kTapsW >= kStepW;
  static constexpr int kClassesH = kClassed ? kStepH : 1, kClassesW = kClassed ? kStepW : 1;
  static constexpr int kClasses = kClassesH * kClassesW;
  // The taps of class `k` are k / kClassesW, + kClassesH and so on down, counted from the last.
  static __device__ constexpr int taps_h(int k) {
    return (kTapsH - k / kClassesW + kClassesH - 1) / kClassesH;
  }
  static __device__ constexpr int taps_w(int k) {
    return (kTapsW - k % kClassesW + kClassesW - 1) / kClassesW;
  }
  // Its first pixel, and how many there are.
  static __device__ constexpr int first_h(int k) {
    return (kTapsH - 1 - kPadH_ + kClassesH - k / kClassesW) % kClassesH;
  }
  static __device__ constexpr int first_w(int k) {
    return (kTapsW - 1 - kPadW_ + kClassesW - k % kClassesW) % kClassesW;
  }
  static __device__ constexpr int height(int k) {
    return (kInH - first_h(k) + kClassesH - 1) / kClassesH;
  }
  static __device__ constexpr int width(int k) {
    return (kInW - first_w(k) + kClassesW - 1) / kClassesW;
  }

  // The inputs' pixel (r, s).
  static __device__ int x_at(int r, int s) { return (r + kPadH_) * kXRow + (s + kPadW_) * kXLd; }
  // The outputs' pixel (p, q).
  static __device__ int z_at(int p, int q) { return kZFirst + p * kZStepRow + q * kZStep; }
};

// Operands of weights: rows of whole chunks, for outputs and for gradients of inputs.
template <typename Math, typename C>
constexpr int kForwardLd = (C::kTaps * C::kInP + Math::kChunk - 1) / Math::kChunk* Math::kChunk;
// Those of class k come after those of the classes before.
template <typename Math, typename C>
__device__ constexpr int backward_ld(int k) {
  return (C::taps_h(k) * C::taps_w(k) * C::kOutP + Math::kChunk - 1) / Math::kChunk * Math::kChunk;
}
template <typename Math, typename C>
__device__ constexpr int backward_begin(int k) {
  int begin = 0;
  for (int i = 0; i < k; ++i) begin += whole_units(C::kIn) * backward_ld<Math, C>(i);
  return begin;
}
// Where the offsets of class k begin.
template <typename Math, typename C>
__device__ constexpr int offsets_begin(int k) {
  int begin = 0;
  for (int i = 0; i < k; ++i) begin += backward_ld<Math, C>(i) / Math::kChunk * 4;
  return begin;
}

// The offsets from a pixel's first tap to the parts of 16 bytes that its product reads, for whole
// chunks. Those past the end have weights of zero, and read the first part.
template <typename Math, int kTaps, int kTapsW, int kRow, int kLd, int kChannels>
__device__ inline void fill_offsets(int* to) {
  constexpr int kPart = 16 / int(sizeof(typename Math::Number)), kEach = kChannels / kPart;
  constexpr int kAll = (kTaps * kEach + 3) / 4 * 4;
  for (int i = thread_of(); i < kAll; i += kThreads) {
    const int tap = i / kEach;
    to[i] = tap < kTaps ? tap / kTapsW * kRow + tap % kTapsW * kLd + i % kEach * kPart : 0;
  }
}
template <typename Math, typename C>
__device__ inline void fill_forward_offsets(int* to) {
  fill_offsets<Math, C::kTaps, C::kTapsW, C::kXRow, C::kXLd, C::kInP>(to);
}
template <typename Math, typename C, int k = 0>
__device__ inline void fill_backward_offsets(int* to) {
  fill_offsets<Math, C::taps_h(k) * C::taps_w(k), C::taps_w(k), C::kClassesH * C::kZRow,
               C::kClassesW * C::kZLd, C::kOutP>(to + offsets_begin<Math, C>(k));
  if constexpr (k + 1 < C::kClasses) fill_backward_offsets<Math, C, k + 1>(to);
}

// Copies `count` operands to shared memory; wait_for_operands and a block barrier must follow.
template <typename Number>
__device__ inline void copy_operands(Number* to, const Number* from, int count) {
  for (int i = thread_of(); i < count * int(sizeof(Number)) / 16; i += kThreads) {
    copy_async(u32(__cvta_generic_to_shared(reinterpret_cast<uint4*>(to) + i)),
               reinterpret_cast<const uint4*>(from) + i, 16);
  }
}
__device__ inline void wait_for_operands() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// A block multiplies kHeight x kWidth pixels, kStepRow and kStep values apart in an image, by
// kColumns rows of weights. A warp makes kMt x kNt units at a time, with kRing chunks in flight.
// The epilogue has take(pixel, column, block) for the lane's two pixels and four columns.
template <typename Math, bool kRound, int kMt, int kNt, int kRing, int kChunks, int kHeight,
          int kWidth, int kStepRow, int kStep, int kColumns>
struct PixelProduct {
  using Number = typename Math::Number;
  static constexpr int kPixels = kHeight * kWidth, kLd = kChunks * Math::kChunk;
  static constexpr int kRowTiles = (kPixels + 16 * kMt - 1) / (16 * kMt);
  static constexpr int kColumnTiles = (kColumns + 16 * kNt - 1) / (16 * kNt);

  struct Operands {
    uint4 a[kMt][2], b[kNt][2];
  };

  template <typename E>
  static __device__ void run(const Number* image, const Number* weights, const int* offsets,
                             const E& e) {
    const int lane = lane_of(), g = lane >> 2, t = lane & 3;
#pragma unroll 1
    for (int tile = warp_of(); tile < kRowTiles * kColumnTiles; tile += kWarps) {
      const int row = tile / kColumnTiles * 16 * kMt, column = tile % kColumnTiles * 16 * kNt;
      int at[kMt][2];
#pragma unroll
      for (int i = 0; i < 2 * kMt; ++i) {
        const int pixel = min(row + 16 * (i / 2) + 2 * g + i % 2, kPixels - 1);
        at[i / 2][i % 2] = pixel / kWidth * kStepRow + pixel % kWidth * kStep;
      }
      const Number* const b =
          weights + (column + 4 * (g >> 1) + (g & 1)) * kLd + t * (16 / int(sizeof(Number)));
      const auto load = [&](Operands& to, int chunk) {
        const int offset = offsets[4 * chunk + t];
#pragma unroll
        for (int i = 0; i < 2 * kMt; ++i)
          to.a[i / 2][i % 2] = *reinterpret_cast<const uint4*>(image + at[i / 2][i % 2] + offset);
#pragma unroll
        for (int i = 0; i < 2 * kNt; ++i) {
          to.b[i / 2][i % 2] = *reinterpret_cast<const uint4*>(
              b + (16 * (i / 2) + 2 * (i % 2)) * kLd + chunk * Math::kChunk);
        }
      };
      Operands ring[kRing];
      typename Math::Sum d[kMt][2 * kNt][4] = {};
#pragma unroll
      for (int r = 0; r < kRing; ++r) load(ring[r], min(r, kChunks - 1));
#pragma unroll 1
      for (int c0 = 0; c0 < kChunks; c0 += kRing) {
#pragma unroll
        for (int r = 0; r < kRing; ++r) {
          if (kChunks % kRing == 0 || c0 + r < kChunks)
            multiply_units<Math, kRound, kMt, kNt>(d, ring[r].a, ring[r].b);
          load(ring[r], min(c0 + r + kRing, kChunks - 1));
        }
      }
#pragma unroll
      for (int m = 0; m < kMt; ++m) {
#pragma unroll
        for (int n = 0; n < kNt; ++n) {
          Block<typename Math::Value> block;
#pragma unroll
          for (int i = 0; i < 8; ++i)
            block.v[i / 4][i % 4] =
                typename Math::Value(d[m][2 * n + i % 4 / 2][2 * (i / 4) + i % 2]);
          e.take(row + 16 * m + 2 * g, column + 16 * n + 4 * t, block);
        }
      }
    }
  }
};

// z = sum + bias, into the image of outputs. `bias` has kOutP values.
template <typename Math, typename C>
struct StoreOutputs {
  using Value = typename Math::Value;
  const Value* bias;
  typename Math::Number* z;

  __device__ void take(int pixel, int column, const Block<Value>& sum) const {
    if (column >= C::kOutP) return;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (pixel + r >= C::kPixels) break;
      typename Math::Number n[4];
#pragma unroll
      for (int c = 0; c < 4; ++c)
        n[c] = Narrow<typename Math::Number>::from(sum.v[r][c] + bias[column + c]);
      store_four(z + C::z_at((pixel + r) / C::kOutW, (pixel + r) % C::kOutW) + column, n);
    }
  }
};

// The gradient of the inputs of class k, into their image.
template <typename Math, typename C, int k>
struct StoreInputGradient {
  typename Math::Number* x;

  __device__ void take(int pixel, int column, const Block<typename Math::Value>& sum) const {
    if (column >= C::kInP) return;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (pixel + r >= C::height(k) * C::width(k)) break;
      typename Math::Number n[4];
#pragma unroll
      for (int c = 0; c < 4; ++c) n[c] = Narrow<typename Math::Number>::from(sum.v[r][c]);
      const int row = C::first_h(k) + C::kClassesH * ((pixel + r) / C::width(k));
      const int place = C::first_w(k) + C::kClassesW * ((pixel + r) % C::width(k));
      store_four(x + C::x_at(row, place) + column, n);
    }
  }
};

// The outputs of a sample, and the gradient of its inputs, by one block.
template <typename Math, typename C, int kMt, int kNt, int kRing>
using ConvForward = PixelProduct<Math, false, kMt, kNt, kRing, kForwardLd<Math, C> / Math::kChunk,
                                 C::kOutH, C::kOutW, C::kXStepRow, C::kXStep, C::kOutP>;
template <typename Math, typename C, int k, int kMt, int kNt, int kRing>
struct ConvBackward {
  using Number = typename Math::Number;
  using Product = PixelProduct<Math, true, kMt, kNt, kRing, backward_ld<Math, C>(k) / Math::kChunk,
                               C::height(k), C::width(k), C::kClassesH * C::kZRow,
                               C::kClassesW * C::kZLd, C::kInP>;
  static __device__ void run(const Number* z, const Number* weights, const int* offsets,
                             Number* x) {
    // The class's first tap of its first pixel.
    constexpr int kFirst = (C::first_h(k) + k / C::kClassesW) * C::kZRow +
                           (C::first_w(k) + k % C::kClassesW) * C::kZLd;
    Product::run(z + kFirst, weights + backward_begin<Math, C>(k),
                 offsets + offsets_begin<Math, C>(k), StoreInputGradient<Math, C, k>{x});
  }
};

// Eight channels of a chunk's pixels, as a lane multiplies them with pixels as k: channel g of the
// pixels that belong to t. In half types `at` points to the channels of pixel `lane` of the chunk.
__device__ inline uint4 load_channels(const void* at) {
  uint4 v;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(u32(__cvta_generic_to_shared(at)))
               : "memory");
  return v;
}

// The gradient of the weights, over all pixels of a block's `count` samples: kMt x kNt tiles of 16
// outputs x 8 channels of a tap at a time, with the pixels divided over kSplit warps. Stored as
// [kOut][kWeights] values.
template <typename Math, typename C, int kMt, int kNt, int kSplit>
struct ConvGradient {
  using Number = typename Math::Number;
  using Value = typename Math::Value;
  static constexpr int kEach = 16 / int(sizeof(Number));  // pixels per lane and chunk
  static constexpr bool kHalf = sizeof(Number) == 2;
  static constexpr int kChunks = (C::kPixels + Math::kChunk - 1) / Math::kChunk;  // of a sample
  static constexpr int kTiles = (C::kWeights + 7) / 8, kUnits = (C::kOutP + 15) / 16;
  static constexpr int kAcross = (kTiles + kNt - 1) / kNt;
  static constexpr int kTasks = (kUnits + kMt - 1) / kMt * kAcross, kGroups = kWarps / kSplit;

  // `zeros` has 16 bytes of them.
  static __device__ void run(const Number* z, const Number* x, int count, const Number* zeros,
                             Value* to, void* scratch) {
    const int group = warp_of() / kSplit, part = warp_of() % kSplit;
#pragma unroll 1
    for (int first = 0; first < kTasks; first += kGroups) {
      const int task = min(first + group, kTasks - 1);
      const int unit = task / kAcross * kMt, tile = task % kAcross * kNt;
      typename Math::Sum d[kMt][kNt][4] = {};
      multiply(d, z, x, count, zeros, unit, tile, part);
      if constexpr (kSplit > 1) {
        Value* const sums = static_cast<Value*>(scratch);
        if (first > 0) __syncthreads();  // the previous sums have been read
        put(d, sums + warp_of() * kMt * kNt * 128);
        __syncthreads();
        if (part == 0 && first + group < kTasks) {
          add(d, sums + warp_of() * kMt * kNt * 128);
          store(d, to, unit, tile);
        }
      } else {
        if (first + group < kTasks) store(d, to, unit, tile);
      }
    }
  }

 private:
  using Sums = typename Math::Sum[kMt][kNt][4];
  struct Operands {
    uint4 a[kMt][2], b[kNt];
  };

  static __device__ void multiply(Sums& d, const Number* z, const Number* x, int count,
                                  const Number* zeros, int unit, int tile, int part) {
    const int lane = lane_of(), g = lane >> 2, t = lane & 3;
    int z_of[kMt][2], x_of[kNt];
#pragma unroll
    for (int i = 0; i < 2 * kMt; ++i)
      z_of[i / 2][i % 2] = min(16 * unit + 8 * i + (kHalf ? 0 : g), C::kOutP - (kHalf ? 8 : 1));
#pragma unroll
    for (int n = 0; n < kNt; ++n) {
      const int at = min(8 * (tile + n) + (kHalf ? 0 : g), C::kWeights - (kHalf ? 8 : 1));
      const int tap = at / C::kInP;
      x_of[n] = tap / C::kTapsW * C::kXRow + tap % C::kTapsW * C::kXLd + at % C::kInP;
    }
    const auto load = [&](Operands& to, int chunk) {
      const int sample = chunk / kChunks, begin = chunk % kChunks * Math::kChunk;
      if constexpr (kHalf) {
        const int pixel = begin + lane, real = min(pixel, C::kPixels - 1);
        const Number* const from = z + sample * C::kZSize + z_pixel(real);
        const Number* const of_x = x + sample * C::kXSize + x_pixel(real);
#pragma unroll
        for (int i = 0; i < 2 * kMt; ++i)
          to.a[i / 2][i % 2] = load_channels(pixel == real ? from + z_of[i / 2][i % 2] : zeros);
#pragma unroll
        for (int n = 0; n < kNt; ++n) to.b[n] = load_channels(of_x + x_of[n]);
      } else {
        Number as[kMt][2][kEach], bs[kNt][kEach];
#pragma unroll
        for (int k = 0; k < kEach; ++k) {
          const int pixel = begin + 4 * k + t, real = min(pixel, C::kPixels - 1);
          const Number* const from = z + sample * C::kZSize + z_pixel(real);
          const Number* const of_x = x + sample * C::kXSize + x_pixel(real);
#pragma unroll
          for (int i = 0; i < 2 * kMt; ++i)
            as[i / 2][i % 2][k] = pixel == real ? from[z_of[i / 2][i % 2]] : Number(0);
#pragma unroll
          for (int n = 0; n < kNt; ++n) bs[n][k] = of_x[x_of[n]];
        }
#pragma unroll
        for (int i = 0; i < 2 * kMt; ++i) to.a[i / 2][i % 2] = packed(as[i / 2][i % 2]);
#pragma unroll
        for (int n = 0; n < kNt; ++n) to.b[n] = packed(bs[n]);
      }
    };
    // A chunk is loaded while the one before it is multiplied.
    const int chunks = count * kChunks;
    Operands now;
    load(now, min(part, chunks - 1));
#pragma unroll 1
    for (int chunk = part; chunk < chunks; chunk += kSplit) {
      Operands next;
      load(next, min(chunk + kSplit, chunks - 1));
#pragma unroll
      for (int i = 0; i < kMt * kNt; ++i)
        Math::template multiply<true, 0>(d[i / kNt][i % kNt], now.a[i / kNt][0], now.a[i / kNt][1],
                                         now.b[i % kNt]);
      if constexpr (Math::kParts == 2) {
#pragma unroll
        for (int i = 0; i < kMt * kNt; ++i)
          Math::template multiply<true, 1>(d[i / kNt][i % kNt], now.a[i / kNt][0],
                                           now.a[i / kNt][1], now.b[i % kNt]);
      }
      now = next;
    }
  }
  static __device__ int z_pixel(int pixel) { return C::z_at(pixel / C::kOutW, pixel % C::kOutW); }
  static __device__ int x_pixel(int pixel) {
    return pixel / C::kOutW * C::kXStepRow + pixel % C::kOutW * C::kXStep;
  }
  static __device__ uint4 packed(const float (&v)[kEach]) {
    if constexpr (kEach == 4) {
      return {__float_as_uint(v[0]), __float_as_uint(v[1]), __float_as_uint(v[2]),
              __float_as_uint(v[3])};
    }
    return {};
  }
  static __device__ uint4 packed(const double (&v)[kEach]) {
    return {u32(__double2loint(v[0])), u32(__double2hiint(v[0])), u32(__double2loint(v[kEach - 1])),
            u32(__double2hiint(v[kEach - 1]))};
  }

  static __device__ void put(const Sums& d, Value* to) {
#pragma unroll
    for (int i = 0; i < 4 * kMt * kNt; ++i)
      to[32 * i + lane_of()] = Value(d[i / 4 / kNt][i / 4 % kNt][i % 4]);
  }
  // Adds the parts in the order of their warps.
  static __device__ void add(Sums& d, const Value* from) {
#pragma unroll
    for (int i = 0; i < 4 * kMt * kNt; ++i) {
      Value sum = Value(0);
#pragma unroll
      for (int s = 0; s < kSplit; ++s) sum += from[s * kMt * kNt * 128 + 32 * i + lane_of()];
      d[i / 4 / kNt][i / 4 % kNt][i % 4] = sum;
    }
  }
  static __device__ void store(const Sums& d, Value* to, int unit, int tile) {
    const int lane = lane_of(), g = lane >> 2, t = lane & 3;
#pragma unroll
    for (int i = 0; i < 2 * kMt * kNt; ++i) {
      const int m = i / 2 / kNt, n = i / 2 % kNt, row = 16 * (unit + m) + 8 * (i % 2) + g;
      const int column = 8 * (tile + n) + 2 * t;
      if (row >= C::kOut || column >= C::kWeights) continue;
      *reinterpret_cast<Pack<Value, 2>*>(to + row * C::kWeights + column) = {
          {Value(d[m][n][2 * (i % 2)]), Value(d[m][n][2 * (i % 2) + 1])}};
    }
  }
};

}  // namespace ridgeline::generated
