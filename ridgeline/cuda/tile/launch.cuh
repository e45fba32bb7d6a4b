#pragma once

#include <algorithm>

#include "ridgeline/cuda/tile/epilogue.cuh"
#include "ridgeline/cuda/tile/kernel.cuh"

// Chooses, sets up and launches the tile functions of one family, which is a type with
//   using T;  static constexpr TileMath kMath;  static constexpr int kVariants;
//   static constexpr double kFlops, the rate of an SM full of blocks (flop per microsecond);
//   kShare[kVariants], the fraction of it that each variant reaches;
//   template <Order a, Order b, typename F> static void with(int variant, F f), which calls f with
//   a null pointer to Variant<Shape, Math>, or not at all if the family has none for that order.
namespace ridgeline::cuda::tile {

template <typename TileShape, typename TileMathType>
struct Variant {
  using S = TileShape;
  using Math = TileMathType;
};

// The orders of A and B: Linear has k contiguous in both, LinearGradX in dy only, LinearGradW in
// neither.
template <typename F>
void with_orders(TileProduct product, F f) {
  using K = std::integral_constant<Order, Order::k>;
  using Rows = std::integral_constant<Order, Order::rows>;
  switch (product) {
    case TileProduct::linear:
      return f(K{}, K{});
    case TileProduct::grad_x:
      return f(K{}, Rows{});
    case TileProduct::grad_w:
      return f(Rows{}, Rows{});
  }
}

inline int64_t tiles_of(int64_t extent, int tile) { return (extent + tile - 1) / tile; }

struct Limits {
  int sms = 0, blocks = 0;  // blocks: resident per SM
};

template <typename V, typename Epilogue>
struct Kernel {
  using Math = typename V::Math;
  static constexpr auto kFunction = gemm_tile_kernel<Math, typename V::S, Epilogue>;
  static constexpr size_t kShared =
      BlockProduct<Math, typename V::S, Epilogue::kSumRows>::kSharedBytes;

  static cudaError_t prepare() {
    return cudaFuncSetAttribute(kFunction, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                int(kShared));
  }
  static Limits limits() {
    Limits limits;
    int device = 0;
    if (prepare() != cudaSuccess || cudaGetDevice(&device) != cudaSuccess) return {};
    cudaDeviceGetAttribute(&limits.sms, cudaDevAttrMultiProcessorCount, device);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&limits.blocks, kFunction, Math::kThreads,
                                                  kShared);
    return limits;
  }
};

// An estimate of the time: the work of the busiest SM at `flops` per microsecond, which takes eight
// warps to reach, and the transfer of partial sums through L2.
template <typename V>
double estimate_us(double flops, int64_t tiles, int64_t blocks, int64_t k, const Limits& limits) {
  using S = typename V::S;
  constexpr double kL2 = 5e6;  // bytes per microsecond, for all blocks together
  const bool shared = blocks != tiles;
  const double tile = 2.0 * S::kM * S::kN * double(tiles_of(k, S::kDepth) * S::kDepth);
  const double busiest = shared ? double(tiles) / limits.sms : double(tiles_of(tiles, limits.sms));
  const double resident = double(std::min<int64_t>(tiles_of(blocks, limits.sms), limits.blocks));
  const double full = std::min(1.0, 0.4 + 0.6 * resident * V::Math::kThreads / 256);
  const double tile_parts = double(std::min(tiles, blocks) + blocks);  // partial tiles
  const double sums = tile_parts * S::kM * S::kN * sizeof(typename V::Math::T);
  return 3.0 + busiest * tile / (flops * full) + (shared ? 2.0 + 2 * sums / kL2 : 0.0);
}

// The best number of blocks for a variant: one per tile, as many as are resident at once, or one
// per SM.
template <typename V>
TileChoice best_blocks(double flops, int64_t m, int64_t n, int64_t k, const Limits& limits) {
  using S = typename V::S;
  using Math = typename V::Math;
  const int64_t tiles = tiles_of(m, S::kM) * tiles_of(n, S::kN);
  const int64_t steps = tiles * tiles_of(k, S::kDepth);
  TileChoice best;
  best.blocks = tiles;
  best.estimate_us = estimate_us<V>(flops, tiles, tiles, k, limits);
  for (int each = 1; each <= limits.blocks; ++each) {
    const int64_t blocks = int64_t(limits.sms) * each;
    if (blocks == tiles || steps < 4 * blocks) continue;  // a share of few steps does not pay off
    const double us = estimate_us<V>(flops, tiles, blocks, k, limits);
    if (us >= best.estimate_us) continue;
    best.estimate_us = us;
    best.blocks = blocks;
    best.workspace =
        size_t(2 * blocks * (Math::kSums * Math::kThreads + S::kM)) * sizeof(typename Math::T);
    best.counters = int(2 * tiles);
  }
  best.name = std::to_string(S::kM) + "x" + std::to_string(S::kN) + "x" +
              std::to_string(S::kDepth) + " in " + std::to_string(best.blocks);
  return best;
}

template <typename T>
bool wide(const T* p, int64_t pitch) {
  return reinterpret_cast<uintptr_t>(p) % 16 == 0 && pitch * int64_t(sizeof(T)) % 16 == 0;
}

template <typename V, typename Epilogue>
cudaError_t launch(const TileChoice& choice, Operands<typename V::Math::T> operands,
                   const Epilogue& epilogue, const TileMemory& memory, cudaStream_t stream) {
  using K = Kernel<V, Epilogue>;
  operands.a_wide = wide(operands.a, operands.a_pitch);
  operands.b_wide = wide(operands.b, operands.b_pitch);
  operands.partial = static_cast<typename V::Math::T*>(memory.partial);
  operands.counters = memory.counters;
  if (const cudaError_t error = K::prepare(); error != cudaSuccess) return error;
  cudaLaunchConfig_t config{};
  config.gridDim = unsigned(choice.blocks);
  config.blockDim = V::Math::kThreads;
  config.dynamicSmemBytes = K::kShared;
  config.stream = stream;
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeCooperative;  // blocks that share a tile wait for each other
  attribute.val.cooperative = 1;
  config.attrs = &attribute;
  config.numAttrs = choice.workspace > 0 ? 1 : 0;
  return cudaLaunchKernelEx(&config, K::kFunction, operands, epilogue);
}

template <typename Family>
struct Launchers {
  using T = typename Family::T;

  static std::vector<TileChoice> choices(TileProduct product, int m, int n, int k) {
    std::vector<TileChoice> all;
    for (int variant = 0; variant < Family::kVariants; ++variant) {
      with_orders(product, [&](auto a, auto b) {
        Family::template with<a.value, b.value>(variant, [&](auto* v) {
          using V = std::remove_pointer_t<decltype(v)>;
          // The orders determine which product it is.
          using Epilogue = std::conditional_t<
              a.value == Order::rows, StoreOrUpdate<T>,
              std::conditional_t<b.value == Order::rows, StoreSlope<T>, BiasActivation<T>>>;
          const Limits limits = Kernel<V, Epilogue>::limits();
          if (limits.blocks == 0) return;
          const double flops = Family::kFlops * Family::kShare[variant];
          TileChoice choice = best_blocks<V>(flops, m, n, k, limits);
          choice.math = Family::kMath;
          choice.variant = variant;
          all.push_back(std::move(choice));
        });
      });
    }
    std::stable_sort(all.begin(), all.end(), [](const TileChoice& x, const TileChoice& y) {
      return x.estimate_us < y.estimate_us;
    });
    return all;
  }

  static cudaError_t linear(const TileChoice& choice, const LinearArgs<T>& args,
                            const TileMemory& memory, cudaStream_t stream) {
    const Operands<T> operands{.a = args.x,
                               .a_pitch = args.in,
                               .b = args.w,
                               .b_pitch = args.in,
                               .m = args.n,
                               .n = args.out,
                               .k = args.in};
    const BiasActivation<T> epilogue{args.y, args.b, args.out, args.activation};
    return launch_variant<Order::k, Order::k>(choice, operands, epilogue, memory, stream);
  }

  static cudaError_t grad_x(const TileChoice& choice, const TileGradXArgs<T>& args,
                            const TileMemory& memory, cudaStream_t stream) {
    const Operands<T> operands{.a = args.dy,
                               .a_pitch = args.out,
                               .b = args.w,
                               .b_pitch = args.in,
                               .m = args.n,
                               .n = args.in,
                               .k = args.out};
    const StoreSlope<T> epilogue{args.dx, args.saved, args.in, args.activation};
    return launch_variant<Order::k, Order::rows>(choice, operands, epilogue, memory, stream);
  }

  static cudaError_t grad_w(const TileChoice& choice, const TileGradWArgs<T>& args,
                            const TileMemory& memory, cudaStream_t stream) {
    const LinearGradWArgs<T>& p = args.product;
    const Operands<T> operands{.a = p.dy,
                               .a_pitch = p.out,
                               .b = p.x,
                               .b_pitch = p.in,
                               .m = p.out,
                               .n = p.in,
                               .k = p.n,
                               .sum_rows = p.has_bias()};
    const StoreOrUpdate<T> epilogue{args};
    return launch_variant<Order::rows, Order::rows>(choice, operands, epilogue, memory, stream);
  }

  static const TileKernels<T>& all() {
    static const TileKernels<T> kernels{choices, linear, grad_x, grad_w};
    return kernels;
  }

 private:
  template <Order kA, Order kB, typename Epilogue>
  static cudaError_t launch_variant(const TileChoice& choice, const Operands<T>& operands,
                                    const Epilogue& epilogue, const TileMemory& memory,
                                    cudaStream_t stream) {
    cudaError_t error = cudaErrorInvalidValue;
    Family::template with<kA, kB>(choice.variant, [&](auto* v) {
      using V = std::remove_pointer_t<decltype(v)>;
      error = launch<V>(choice, operands, epilogue, memory, stream);
    });
    return error;
  }
};

}  // namespace ridgeline::cuda::tile
