#pragma once

#include "ridgeline/cuda/device/mbarrier.cuh"
#include "ridgeline/cuda/device/wgmma.cuh"
#include "ridgeline/cuda/gemm/epilogue.cuh"
#include "ridgeline/cuda/gemm/launch.h"

// Products with mma.sync and plain loads, for any pitch and any alignment. sm_80 and up.
namespace ridgeline::cuda {

template <int kN_>
struct MmaTile {
  static constexpr int kM = 64, kN = kN_, kDepth = 32;
  static constexpr int kThreads = 128;
  static constexpr int kWarpsN = kN >= 64 ? 2 : 1, kWarpsM = 4 / kWarpsN;
  static constexpr int kWarpM = kM / kWarpsM, kWarpN = kN / kWarpsN;
  static constexpr int kFragmentsM = kWarpM / 16, kFragmentsN = kWarpN / 8;
  static constexpr int kSums = kFragmentsM * kFragmentsN * 4;  // per thread
};

// kRows x 32 of an operand: in registers on the way from global memory, then in shared memory in
// the same order, [row][k] if k-major and [k][row] if mn-major. 8 extra elements per line keep
// ldmatrix free of bank conflicts, because the line is then an odd number of 16-byte units.
template <typename T, Major kMajor, int kRows>
struct MmaOperand {
  static constexpr bool kTransposed = kMajor == Major::mn;
  static constexpr int kDepth = 32;
  static constexpr int kLines = kTransposed ? kDepth : kRows;
  static constexpr int kLineLength = kTransposed ? kRows : kDepth;
  static constexpr int kPitch = kLineLength + 8;
  static constexpr int kChunks = kLines * kLineLength / 8;  // chunks of 16 bytes
  static constexpr int kPerThread = (kChunks + 127) / 128;

  uint4 held[kPerThread];

  // Loads from data[lines, length] with its pitch; elements outside the matrix read as zero.
  __device__ void fetch(const T* data, int64_t pitch, int rows, int k, int row0, int k0,
                        bool aligned) {
    const int lines = kTransposed ? k : rows, length = kTransposed ? rows : k;
    const int line0 = kTransposed ? k0 : row0, at0 = kTransposed ? row0 : k0;
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
      const int chunk = threadIdx.x + i * 128;
      const int line = line0 + chunk / (kLineLength / 8);
      const int at = at0 + chunk % (kLineLength / 8) * 8;
      held[i] = make_uint4(0, 0, 0, 0);
      if (chunk >= kChunks || line >= lines || at >= length) continue;
      const T* source = data + line * pitch + at;
      if (aligned && at + 8 <= length) {
        held[i] = *reinterpret_cast<const uint4*>(source);
      } else {
        uint32_t word[4] = {0, 0, 0, 0};
        const unsigned short* bits = reinterpret_cast<const unsigned short*>(source);
#pragma unroll
        for (int e = 0; e < 8; ++e) {
          if (at + e < length) word[e / 2] |= uint32_t(bits[e]) << (e % 2 * 16);
        }
        held[i] = make_uint4(word[0], word[1], word[2], word[3]);
      }
    }
  }
  __device__ void put(T* tile) const {
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
      const int chunk = threadIdx.x + i * 128;
      if (chunk >= kChunks) continue;
      const int line = chunk / (kLineLength / 8), at = chunk % (kLineLength / 8) * 8;
      *reinterpret_cast<uint4*>(tile + line * kPitch + at) = held[i];
    }
  }

  // Loads 16 rows x 16 of k as four 8 x 8 matrices: rows 0-7 and 8-15, each with k 0-7 and 8-15.
  // kRowsFirst selects which index varies faster: A's fragment needs rows first, B's k first.
  template <bool kRowsFirst>
  __device__ static void fragment(uint32_t (&f)[4], const T* tile, int row, int k) {
    const int lane = threadIdx.x % 32, low = lane / 8 % 2 * 8, high = lane / 16 * 8;
    const int r = row + (kRowsFirst ? low : high), c = k + (kRowsFirst ? high : low);
    const T* line =
        kTransposed ? tile + (c + lane % 8) * kPitch + r : tile + (r + lane % 8) * kPitch + c;
    const uint32_t address = uint32_t(__cvta_generic_to_shared(line));
    if constexpr (kTransposed) {
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(f[0]), "=r"(f[1]), "=r"(f[2]), "=r"(f[3])
                   : "r"(address)
                   : "memory");
    } else {
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(f[0]), "=r"(f[1]), "=r"(f[2]), "=r"(f[3])
                   : "r"(address)
                   : "memory");
    }
  }
};

template <typename T>
__device__ inline void mma_m16n8k16(float* d, const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

template <typename In, typename Out, Major kA, Major kB, typename Tile, typename Epilogue>
__global__ __launch_bounds__(Tile::kThreads) void gemm_mma_kernel(
    const In* a, int64_t lda, const In* b, int64_t ldb, Out* d, int64_t ldd, int m, int n, int k,
    int tile_rows, bool aligned_a, bool aligned_b, const Epilogue epilogue) {
#if __CUDA_ARCH__ >= 800
  using A = MmaOperand<In, kA, Tile::kM>;
  using B = MmaOperand<In, kB, Tile::kN>;
  __shared__ __align__(16) In tile_a[2][A::kLines * A::kPitch];
  __shared__ __align__(16) In tile_b[2][B::kLines * B::kPitch];
#if __CUDA_ARCH__ >= 900
  wait_for_previous_kernel();
  allow_next_kernel();
#endif

  const int tile = blockIdx.x;
  const int row0 = tile % tile_rows * Tile::kM, col0 = tile / tile_rows * Tile::kN;
  const int steps = (k + Tile::kDepth - 1) / Tile::kDepth;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int warp_row = warp / Tile::kWarpsN * Tile::kWarpM;
  const int warp_col = warp % Tile::kWarpsN * Tile::kWarpN;

  A in_a;
  B in_b;
  float acc[Tile::kSums] = {};
  in_a.fetch(a, lda, m, k, row0, 0, aligned_a);
  in_b.fetch(b, ldb, n, k, col0, 0, aligned_b);
  for (int s = 0; s < steps; ++s) {
    const int buffer = s % 2;  // free since the barrier of the previous step
    in_a.put(tile_a[buffer]);
    in_b.put(tile_b[buffer]);
    __syncthreads();
    if (s + 1 < steps) {
      in_a.fetch(a, lda, m, k, row0, (s + 1) * Tile::kDepth, aligned_a);
      in_b.fetch(b, ldb, n, k, col0, (s + 1) * Tile::kDepth, aligned_b);
    }
#pragma unroll
    for (int depth = 0; depth < Tile::kDepth; depth += 16) {
      uint32_t fa[Tile::kFragmentsM][4], fb[Tile::kFragmentsN / 2][4];
#pragma unroll
      for (int i = 0; i < Tile::kFragmentsM; ++i) {
        A::template fragment<true>(fa[i], tile_a[buffer], warp_row + i * 16, depth);
      }
#pragma unroll
      for (int j = 0; j < Tile::kFragmentsN / 2; ++j) {
        B::template fragment<false>(fb[j], tile_b[buffer], warp_col + j * 16, depth);
      }
#pragma unroll
      for (int i = 0; i < Tile::kFragmentsM; ++i) {
#pragma unroll
        for (int j = 0; j < Tile::kFragmentsN; ++j) {
          mma_m16n8k16<In>(&acc[(i * Tile::kFragmentsN + j) * 4], fa[i], fb[j / 2][j % 2 * 2],
                           fb[j / 2][j % 2 * 2 + 1]);
        }
      }
    }
  }

#pragma unroll
  for (int i = 0; i < Tile::kFragmentsM * Tile::kFragmentsN * 2; ++i) {
    const int fragment = i / 2, half = i % 2;
    const int row = row0 + warp_row + fragment / Tile::kFragmentsN * 16 + lane / 4 + half * 8;
    const int col = col0 + warp_col + fragment % Tile::kFragmentsN * 8 + lane % 4 * 2;
    if (row >= m || col >= n) continue;
    const float2 sum = {acc[fragment * 4 + half * 2], acc[fragment * 4 + half * 2 + 1]};
    store_pair(d + row * ldd + col, epilogue(row, col, sum, col + 1 < n), col + 1 < n);
  }
#else
  __trap();  // variants.cuh does not offer it for this architecture
#endif
}

// Takes every problem with m, n, k >= 1.
template <typename In, typename Out, Major kA, Major kB, typename Tile, typename Epilogue>
PreparedGemm prepare_gemm_mma(const GemmProblem& p, const Epilogue& epilogue,
                              const GemmOptions& options) {
  const auto aligned = [](const void* data, int64_t pitch) {
    return reinterpret_cast<uintptr_t>(data) % 16 == 0 && pitch % 8 == 0;
  };
  const int tile_rows = ceil_div(p.m, Tile::kM);
  const int tiles = tile_rows * ceil_div(p.n, Tile::kN);
  const bool aligned_a = aligned(p.a, p.lda), aligned_b = aligned(p.b, p.ldb);
  const auto kernel = gemm_mma_kernel<In, Out, kA, kB, Tile, Epilogue>;
  set_shared_memory(kernel, 0, p);
  return {fmt::format("mma_{}x{}", Tile::kM, Tile::kN), [=](cudaStream_t stream) {
            LaunchConfig launch(tiles, Tile::kThreads, 0, 1, options.overlap_previous);
            const cudaLaunchConfig_t config = launch.on(stream);
            check_gemm_call(
                cudaLaunchKernelEx(&config, kernel, static_cast<const In*>(p.a), p.lda,
                                   static_cast<const In*>(p.b), p.ldb, static_cast<Out*>(p.d),
                                   p.ldd, p.m, p.n, p.k, tile_rows, aligned_a, aligned_b, epilogue),
                "launch", p.m, p.n, p.k);
          }};
}

}  // namespace ridgeline::cuda
