#pragma once

#include <algorithm>
#include <utility>

#include "ridgeline/cuda/gemm/estimate.h"
#include "ridgeline/cuda/gemm/gemm.h"
#include "ridgeline/cuda/gemm/gemm_flat.cuh"
#include "ridgeline/cuda/gemm/gemm_mma.cuh"
#include "ridgeline/cuda/gemm/gemm_persistent.cuh"
#include "ridgeline/cuda/gemm/gemm_split.cuh"

// All the ways this library has to compute a product, for the planner to measure.
namespace ridgeline::cuda {

// The number of stages is the largest with which two blocks share an SM (113 KB each), so that one
// block loads while the other finishes, or the next launch's blocks load while this one's finish;
// 64x128 has an SM to itself. Sweeps over M = 512 to 8192, N = 16 to M on an H200 excluded these:
// 128x128 and a one-stage 64x128 never won; 128x64 with six stages won once and a one-stage 64x64
// six times, by a few per cent.
using Split64x16 = SplitTile<64, 16, 9>;
using Split64x32 = SplitTile<64, 32, 7>;
using Split64x64 = SplitTile<64, 64, 5>;
using Split128x64 = SplitTile<128, 64, 3>;
using Split64x128 = SplitTile<64, 128, 7>;
// For large matrices: one block per SM, with as many stages as fit.
using Deep128x16 = SplitTile<128, 16, 9>;
using Deep128x32 = SplitTile<128, 32, 8>;
using Deep64x64 = SplitTile<64, 64, 11>;
// A matrix is large if it has blocks for most of an H200's 132 SMs: 12 tiles of 128 rows, with k in
// up to eight parts.
constexpr int kLeastDeepRows = 12 * 128;
// If there are few results, narrow tiles are tried whatever the shape of D: up to 128 tiles, about
// one per SM.
template <typename Tile>
constexpr int64_t kFewResults = int64_t{128} * Tile::kM* Tile::kN;

// The most k that the flat variants can hold in registers.
constexpr int kMostFlatDepth = 64;

// More blocks than this per SM only add launch work to a product whose k is already split.
constexpr int kMaxSplitBlocksPerSm = 4;

// The limit of a grid's second and third dimensions.
constexpr int kMostGridRows = 65535;

struct GemmDevice {
  int sms = 132;
  int major = 9;
};

inline GemmDevice current_gemm_device() {
  GemmDevice device;
  int id = 0;
  check_gemm_call(cudaGetDevice(&id), "device", 0, 0, 0);
  check_gemm_call(cudaDeviceGetAttribute(&device.sms, cudaDevAttrMultiProcessorCount, id), "device",
                  0, 0, 0);
  check_gemm_call(cudaDeviceGetAttribute(&device.major, cudaDevAttrComputeCapabilityMajor, id),
                  "device", 0, 0, 0);
  return device;
}

// D^T = B^T A^T, with the same memory interpreted as transposed.
inline GemmProblem swap_operands(const GemmProblem& p) {
  return {p.n, p.m, p.k, p.b, p.ldb, p.b_major, p.a, p.lda, p.a_major, p.d, p.ldd};
}

template <typename In, typename Out, Major kA, Major kB, typename Epilogue>
class GemmVariants {
 public:
  GemmVariants(const GemmProblem& problem, const Epilogue& epilogue, const GemmOptions& options)
      : p_(problem), epilogue_(epilogue), options_(options), device_(current_gemm_device()) {
    rates_.sms = device_.sms;
  }

  // Variants for the problem itself: large or small tiles of D, with k split or not.
  void add_wgmma(std::vector<PreparedGemm>& list) const {
    if (device_.major != 9 || !tma_accepts<In>(p_.a, p_.lda) || !tma_accepts<In>(p_.b, p_.ldb)) {
      return;
    }
    add_thin(list, p_, /*swapped=*/false);
    add_split<Split64x128>(list, p_, false);
    add_split<Split128x64>(list, p_, false);
    if (!tma_accepts<Out>(p_.d, p_.ldd) || p_.n * sizeof(Out) % 16 != 0) return;
    add_persistent<PersistentTile<128, 128>>(list);
    add_persistent<PersistentTile<128, 256>>(list);
    // Gives whole waves where the tiles above would leave most of one idle: a 2560 x 2704 output
    // has 10 or 20 x 13 of these tiles. The smaller one is better for short k, but an mn-major B is
    // loaded in blocks of 64 columns.
    if constexpr (sizeof(In) == 2) {
      add_persistent<PersistentTile<kB == Major::k ? 128 : 256, 208>>(list);
    }
  }
  // Variants whose operands go straight to registers, in whole units of 16 bytes.
  void add_direct(std::vector<PreparedGemm>& list) const {
    if constexpr (sizeof(In) == 2 && kA == kB) {
      if (device_.major != 9 || p_.k > kMostFlatDepth ||
          !direct_accepts<In, kA>(p_.a, p_.lda, p_.m, p_.k) ||
          !direct_accepts<In, kB>(p_.b, p_.ldb, p_.n, p_.k)) {
        return;
      }
      if (p_.k <= kMostFlatDepth / 2) {
        add_flat<FlatTile<16, 1, 2>>(list);
      } else {
        add_flat<FlatTile<16, 2, 2>>(list);
      }
    }
  }
  // Variants of the swapped problem: for a D with few rows, and for a D with few columns (which
  // become a tile's rows), with narrow tiles along its many rows.
  void add_wgmma_swapped(std::vector<PreparedGemm>& list) const {
    if (device_.major != 9 || !tma_accepts<In>(p_.a, p_.lda) || !tma_accepts<In>(p_.b, p_.ldb)) {
      return;
    }
    if (p_.n <= 64) return add_thin(list, p_, true);
    if constexpr (sizeof(In) == 2) {
      if (p_.m < 64 || p_.m > 256) return;
      const int64_t results = int64_t{p_.m} * p_.n;
      if (results <= kFewResults<Split64x16>) add_split<Split64x16>(list, p_, true);
      if (results <= kFewResults<Split64x32>) add_split<Split64x32>(list, p_, true);
      add_split<Deep64x64>(list, p_, true);
    }
  }
  void add_mma(std::vector<PreparedGemm>& list) const {
    if (device_.major < 8) return;
    add_mma_tile<MmaTile<64>>(list);
    if (p_.n <= 32) add_mma_tile<MmaTile<16>>(list);
  }

 private:
  void add_thin(std::vector<PreparedGemm>& list, const GemmProblem& p, bool swapped) const {
    const bool few = int64_t{p.m} * p.n <= kFewResults<Split64x16>;
    if (p.n <= 32 || few) add_split<Split64x16>(list, p, swapped);
    if (p.n > 16 && (p.n <= 64 || few)) add_split<Split64x32>(list, p, swapped);
    if (p.n > 32) add_split<Split64x64>(list, p, swapped);
    if constexpr (sizeof(In) == 2) {
      if (p.n > 64) add_split<Deep64x64>(list, p, swapped);
      if (p.m < kLeastDeepRows || p.n > 64) return;
      if (p.n <= 16) add_split<Deep128x16>(list, p, swapped);
      if (p.n > 16 && p.n <= 32) add_split<Deep128x32>(list, p, swapped);
      if (p.n > 32) add_split<Deep64x64>(list, p, swapped);
    }
  }
  template <typename Tile>
  void add_split(std::vector<PreparedGemm>& list, const GemmProblem& p, bool swapped) const {
    if (Tile::kM > 64 && p.m <= 64) return;
    if (Tile::kN > 64 && p.n <= 64) return;
    const int rows = ceil_div(p.m, Tile::kM), cols = ceil_div(p.n, Tile::kN), tiles = rows * cols;
    if (std::max(rows, cols) > kMostGridRows) return;
    const int stages = ceil_div(p.k, kStageDepth<In>);
    for (const int split : {1, 2, 3, 4, 5, 6, 8}) {
      if (split > stages) break;
      if (split > 1 && tiles * split > kMaxSplitBlocksPerSm * device_.sms) break;
      list.push_back(prepare_gemm_split<In, Out, kA, kB, Tile, Epilogue>(p, split, swapped,
                                                                         epilogue_, options_));
      list.back().estimate_us =
          estimate_split(rates_, tiles * split, stages, split, Tile::blocks_per_sm(split),
                         Tile::kStages, Tile::kStageBytes, Tile::kM * Tile::kN);
    }
  }
  template <typename Tile>
  void add_flat(std::vector<PreparedGemm>& list) const {
    for (const int iterations : {1, 2, 4}) {
      list.push_back(
          prepare_gemm_flat<In, Out, kA, kB, Tile, Epilogue>(p_, iterations, epilogue_, options_));
      list.back().estimate_us =
          estimate_flat(iterations, Tile::kQuads, double(p_.m) * p_.n * sizeof(Out));
    }
  }
  template <typename Tile>
  void add_persistent(std::vector<PreparedGemm>& list) const {
    if (p_.m <= Tile::kM / 2 || p_.n <= Tile::kN / 2) return;
    list.push_back(
        prepare_gemm_persistent<In, Out, kA, kB, Tile, Epilogue>(p_, epilogue_, options_));
    const int tiles = ceil_div(p_.m, Tile::kM) * ceil_div(p_.n, Tile::kN);
    list.back().estimate_us = estimate_persistent(
        rates_, tiles, ceil_div(p_.k, kStageDepth<In>), (Tile::kM + Tile::kN) * kStageRowBytes,
        2.0 * Tile::kM * Tile::kN * 64, double(Tile::kM) * Tile::kN * sizeof(Out));
  }
  template <typename Tile>
  void add_mma_tile(std::vector<PreparedGemm>& list) const {
    const int tiles = ceil_div(p_.m, Tile::kM) * ceil_div(p_.n, Tile::kN);
    list.push_back(prepare_gemm_mma<In, Out, kA, kB, Tile, Epilogue>(p_, epilogue_, options_));
    list.back().estimate_us = estimate_mma(rates_, tiles, ceil_div(p_.k, Tile::kDepth));
  }

  GemmProblem p_;
  Epilogue epilogue_;
  GemmOptions options_;
  GemmDevice device_;
  GemmRates rates_ = {};
};

inline void sort_by_estimate(std::vector<PreparedGemm>& list) {
  std::stable_sort(list.begin(), list.end(), [](const PreparedGemm& x, const PreparedGemm& y) {
    return x.estimate_us < y.estimate_us;
  });
}

template <typename In, typename Out, Major kA, Major kB, typename Epilogue>
void add_gemm_variants(std::vector<PreparedGemm>& list, const GemmProblem& p,
                       const Epilogue& epilogue, const GemmOptions& options) {
  const GemmVariants<In, Out, kA, kB, Epilogue> as_is(p, epilogue, options);
  as_is.add_wgmma(list);
  as_is.add_direct(list);
  constexpr Major kSwappedA = kB, kSwappedB = kA;
  const GemmVariants<In, Out, kSwappedA, kSwappedB, Epilogue> swapped(swap_operands(p), epilogue,
                                                                      options);
  swapped.add_wgmma_swapped(list);
  as_is.add_mma(list);
}

template <typename In, typename Out, Major kA, Major kB, typename Epilogue>
bool add_if_built(std::vector<PreparedGemm>& list, const GemmProblem& p, const Epilogue& epilogue,
                  const GemmOptions& options) {
  if constexpr (gemm_is_built<In, Out, Epilogue>(kA, kB)) {
    if (p.a_major != kA || p.b_major != kB) return false;
    add_gemm_variants<In, Out, kA, kB>(list, p, epilogue, options);
    return true;
  }
  return false;
}

template <typename In, typename Out, typename Epilogue>
std::vector<PreparedGemm> prepare_gemm_variants(const GemmProblem& p, const Epilogue& epilogue,
                                                const GemmOptions& options) {
  std::vector<PreparedGemm> list;
  const bool built = add_if_built<In, Out, Major::k, Major::k>(list, p, epilogue, options) ||
                     add_if_built<In, Out, Major::k, Major::mn>(list, p, epilogue, options) ||
                     add_if_built<In, Out, Major::mn, Major::mn>(list, p, epilogue, options);
  if (!built) {
    throw_error(ErrorKind::device,
                "gemm {} x {} x {}: no kernel with this epilogue for A {}-major, B {}-major", p.m,
                p.n, p.k, p.a_major == Major::k ? "k" : "mn", p.b_major == Major::k ? "k" : "mn");
  }
  sort_by_estimate(list);
  return list;
}

template <typename Epilogue>
std::vector<PreparedGemm> prepare_gemm_tf32_variants(const GemmProblem& p, const Epilogue& epilogue,
                                                     const GemmOptions& options) {
  std::vector<PreparedGemm> list;
  if (p.a_major != Major::k || p.b_major != Major::k) return list;
  const GemmVariants<float, float, Major::k, Major::k, Epilogue> as_is(p, epilogue, options);
  const GemmVariants<float, float, Major::k, Major::k, Epilogue> swapped(swap_operands(p), epilogue,
                                                                         options);
  as_is.add_wgmma(list);
  swapped.add_wgmma_swapped(list);
  sort_by_estimate(list);
  return list;
}

}  // namespace ridgeline::cuda
