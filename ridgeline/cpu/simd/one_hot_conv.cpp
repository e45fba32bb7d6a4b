#include "ridgeline/cpu/simd/one_hot_conv.h"

#include <algorithm>
#include <cmath>

#include "ridgeline/cpu/simd/dispatch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ridgeline/cpu/simd/one_hot_conv.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ridgeline/cpu/simd/bf16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu::simd::HWY_NAMESPACE {
namespace one_hot_conv {
namespace hn = hwy::HWY_NAMESPACE;

// Positions that are transposed at once from [t, channel] to [channel, t] or back.
constexpr int64_t kTransposed = 16;

template <typename T>
using Tag = hn::CappedTag<T, size_t(kOneHotBlock)>;

// Returns the row of a table for the code at `tap`.
template <typename T>
HWY_INLINE T* row_of(const OneHotShape& s, T* block, const int32_t* text, int64_t tap) {
  const int64_t code = std::min<int64_t>(text[tap], s.symbols);
  return block + (tap * (s.symbols + 1) + code) * kOneHotBlock;
}

template <class V>
HWY_INLINE V nan_max(V a, V b) {  // NaN if a is
  return hn::IfThenElse(hn::Eq(a, a), hn::Max(a, b), a);
}

template <typename T>
void forward(const OneHotShape& s, const int32_t* token, const T* table, const T* bias, T* y,
             Range pairs) {
  const Tag<T> d;
  const int64_t lanes = int64_t(hn::Lanes(d)), steps = s.steps();
  HWY_ALIGN T tile[kTransposed * kOneHotBlock];
  for (int64_t pair = pairs.begin; pair < pairs.end; ++pair) {
    const int64_t i = pair / s.blocks(), first = pair % s.blocks() * kOneHotBlock;
    const int64_t channels = std::min(kOneHotBlock, s.out - first);
    const T* block = table + pair % s.blocks() * s.table_block();
    HWY_ALIGN T start[kOneHotBlock] = {};
    if (bias != nullptr) std::copy_n(bias + first, channels, start);
    for (int64_t t0 = 0; t0 < steps; t0 += kTransposed) {
      const int64_t count = std::min(kTransposed, steps - t0);
      for (int64_t t = 0; t < count; ++t) {
        const int32_t* text = token + i * s.length + t0 + t;
        for (int64_t c = 0; c < kOneHotBlock; c += lanes) {
          auto sum = hn::Load(d, start + c);
          for (int64_t tap = 0; tap < s.kernel; ++tap) {
            sum = hn::Add(sum, hn::LoadU(d, row_of(s, block, text, tap) + c));
          }
          hn::Store(sum, d, tile + t * kOneHotBlock + c);
        }
      }
      for (int64_t c = 0; c < channels; ++c) {
        T* to = y + (i * s.out + first + c) * steps + t0;
        for (int64_t t = 0; t < count; ++t) to[t] = tile[t * kOneHotBlock + c];
      }
    }
  }
}

template <typename T>
void grad(const OneHotShape& s, const int32_t* token, const T* dy, T* table, T* db, Range blocks) {
  const Tag<T> d;
  const int64_t lanes = int64_t(hn::Lanes(d)), steps = s.steps();
  HWY_ALIGN T tile[kTransposed * kOneHotBlock];
  for (int64_t b = blocks.begin; b < blocks.end; ++b) {
    const int64_t first = b * kOneHotBlock, channels = std::min(kOneHotBlock, s.out - first);
    T* block = table + b * s.table_block();
    std::fill_n(block, s.table_block(), T(0));
    std::fill_n(tile, kTransposed * kOneHotBlock, T(0));  // channels past the last stay zero
    HWY_ALIGN T sums[kOneHotBlock] = {};
    for (int64_t i = 0; i < s.n; ++i) {
      for (int64_t t0 = 0; t0 < steps; t0 += kTransposed) {
        const int64_t count = std::min(kTransposed, steps - t0);
        for (int64_t c = 0; c < channels; ++c) {
          const T* from = dy + (i * s.out + first + c) * steps + t0;
          for (int64_t t = 0; t < count; ++t) tile[t * kOneHotBlock + c] = from[t];
        }
        for (int64_t t = 0; t < count; ++t) {
          const int32_t* text = token + i * s.length + t0 + t;
          for (int64_t c = 0; c < kOneHotBlock; c += lanes) {
            const auto value = hn::Load(d, tile + t * kOneHotBlock + c);
            hn::Store(hn::Add(hn::Load(d, sums + c), value), d, sums + c);
            for (int64_t tap = 0; tap < s.kernel; ++tap) {
              T* row = row_of(s, block, text, tap) + c;
              hn::StoreU(hn::Add(hn::LoadU(d, row), value), d, row);
            }
          }
        }
      }
    }
    if (db != nullptr) std::copy_n(sums, channels, db + first);
  }
}

// Computes rows[block, t, :] of one sample's convolution; returns the sum of all (channels past the
// last are zero).
template <typename T>
double convolve_rows(const OneHotBlockArgs<T>& g, const int32_t* token, T* rows) {
  const Tag<T> d;
  const OneHotShape& s = g.shape;
  const int64_t lanes = int64_t(hn::Lanes(d)), steps = s.steps();
  double total = 0;
  for (int64_t b = 0; b < s.blocks(); ++b) {
    const T* block = g.table + b * s.table_block();
    T* to = rows + b * steps * kOneHotBlock;
    HWY_ALIGN T start[kOneHotBlock] = {};
    const int64_t first = b * kOneHotBlock;
    if (g.bias != nullptr) {
      std::copy_n(g.bias + first, std::min(kOneHotBlock, s.out - first), start);
    }
    for (int64_t c = 0; c < kOneHotBlock; c += lanes) {
      const auto bias = hn::Load(d, start + c);
      auto sums = hn::Zero(d);
      for (int64_t t = 0; t < steps; ++t) {
        auto sum = bias;
        for (int64_t tap = 0; tap < s.kernel; ++tap) {
          sum = hn::Add(sum, hn::LoadU(d, row_of(s, block, token + t, tap) + c));
        }
        hn::StoreU(sum, d, to + t * kOneHotBlock + c);
        sums = hn::Add(sums, sum);
      }
      total += double(hn::GetLane(hn::SumOfLanes(d, sums)));
    }
  }
  return total;
}

// Returns the sum of (x - mean)^2 over `count` numbers, a multiple of a block.
template <typename T>
double squares_about(const T* rows, int64_t count, T mean) {
  const Tag<T> d;
  const int64_t lanes = int64_t(hn::Lanes(d)), stretch = 64 * kOneHotBlock;
  const auto middle = hn::Set(d, mean);
  double total = 0;
  for (int64_t i = 0; i < count; i += stretch) {
    auto sum = hn::Zero(d);
    for (int64_t j = i; j < std::min(i + stretch, count); j += lanes) {
      const auto off = hn::Sub(hn::LoadU(d, rows + j), middle);
      sum = hn::MulAdd(off, off, sum);
    }
    total += double(hn::GetLane(hn::SumOfLanes(d, sum)));
  }
  return total;
}

template <typename T>
void block(const OneHotBlockArgs<T>& g, T* rows, Range samples) {
  const Tag<T> d;
  const OneHotShape& s = g.shape;
  const int64_t lanes = int64_t(hn::Lanes(d)), steps = s.steps(), windows = steps / 3;
  const double count = double(s.out) * double(steps);
  HWY_ALIGN T tile[kTransposed * kOneHotBlock];
  for (int64_t i = samples.begin; i < samples.end; ++i) {
    const double mean = convolve_rows(g, g.token + i * s.length, rows) / count;
    double squares = squares_about(rows, s.blocks() * steps * kOneHotBlock, T(mean));
    // Channels past the last are zeros, which must not count.
    squares -= double(s.blocks() * kOneHotBlock - s.out) * double(steps) * double(T(mean)) *
               double(T(mean));
    const T rstd = T(1.0 / std::sqrt(squares / count + double(g.epsilon)));
    const auto scale = hn::Set(d, rstd), shift = hn::Set(d, T(-mean) * rstd);
    for (int64_t b = 0; b < s.blocks(); ++b) {
      const int64_t first = b * kOneHotBlock, channels = std::min(kOneHotBlock, s.out - first);
      for (int64_t w0 = 0; w0 < windows; w0 += kTransposed) {
        const int64_t many = std::min(kTransposed, windows - w0);
        for (int64_t w = 0; w < many; ++w) {
          for (int64_t c = 0; c < kOneHotBlock; c += lanes) {
            auto best = hn::Zero(d);  // relu
            for (int64_t k = 0; k < 3; ++k) {
              const int64_t at = (b * steps + 3 * (w0 + w) + k) * kOneHotBlock + c;
              const auto even = hn::MulAdd(hn::LoadU(d, rows + at), scale, shift);
              best = nan_max(
                  hn::MulAdd(even, hn::LoadU(d, g.gamma + at), hn::LoadU(d, g.beta + at)), best);
            }
            const int64_t to = (i * windows + w0 + w) * s.out + first + c;  // in rows
            if (g.halves != nullptr) {
              if constexpr (sizeof(T) == 4) store_halves(best, d, g.halves + to);
            } else if (g.rows) {
              hn::StoreU(best, d, g.y + to);
            } else {
              hn::Store(best, d, tile + w * kOneHotBlock + c);
            }
          }
        }
        if (g.rows) continue;
        for (int64_t c = 0; c < channels; ++c) {
          T* to = g.y + (i * s.out + first + c) * windows + w0;
          for (int64_t w = 0; w < many; ++w) to[w] = tile[w * kOneHotBlock + c];
        }
      }
    }
  }
}

template <typename T>
constexpr OneHotFunctions<T> kKernels{forward<T>, grad<T>, block<T>};

}  // namespace one_hot_conv

RIDGELINE_SIMD_TABLE(OneHotFunctions, one_hot_functions, one_hot_conv::kKernels)

}  // namespace ridgeline::cpu::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::cpu::simd {

RIDGELINE_SIMD_DISPATCH(OneHotFunctions, one_hot_functions);

}  // namespace ridgeline::cpu::simd
#endif  // HWY_ONCE
