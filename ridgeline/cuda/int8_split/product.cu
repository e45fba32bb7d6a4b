// The products of int8_split.h: unsigned bytes times signed digits, summed in integers (wgmma u8 x
// s8).

#include "ridgeline/cuda/device/wgmma_u8s8.cuh"
#include "ridgeline/cuda/gemm/launch.h"
#include "ridgeline/cuda/gemm/operand_tile.cuh"
#include "ridgeline/cuda/int8_split/int8_split.h"
#include "ridgeline/cuda/plain/activation.cuh"
#include "ridgeline/cuda/plain/sgd.cuh"

namespace ridgeline::cuda {
namespace {

// A block computes 128 rows by 32 outputs with all their digits, so that a thread holds all digits
// of each of its sums. Two blocks share an SM with four digits; with seven, one block has it to
// itself.
template <typename T>
struct Int8SplitTile {
  static constexpr int kRows = 128, kConsumers = kRows / 64;
  static constexpr int kColumns = kInt8SplitGroup * kDigits<T>;
  static constexpr int kThreads = kConsumers * 128 + 32;  // plus a producer warp
  static constexpr int kStages = std::is_same_v<T, double> ? 4 : 3;
  static constexpr int kBlocks = std::is_same_v<T, double> ? 1 : 2;  // per SM
  using A = OperandTile<uint8_t, Major::k, kRows>;
  using B = OperandTile<uint8_t, Major::k, kColumns>;
  static constexpr int kStageBytes = A::kBytes + B::kBytes;
  static constexpr int kBytes = 1024 + kStages * kStageBytes + 2 * kStages * 8;
};

// Combines the digits' sums, lowest first, into one number, rounded once.
template <typename T>
__device__ T put_together(const int (&sum)[kDigits<T>]) {
  if constexpr (std::is_same_v<T, float>) {
    const int64_t low = int64_t{sum[1]} * 256 + sum[0], high = int64_t{sum[3]} * 256 + sum[2];
    return float(high * 65536 + low);
  } else {
    const int64_t low = (int64_t{sum[2]} * 256 + sum[1]) * 256 + sum[0];
    const int64_t high = ((int64_t{sum[6]} * 256 + sum[5]) * 256 + sum[4]) * 256 + sum[3];
    return fma(double(high), 0x1p24, double(low));  // one rounding; a second from 32,768 terms on
  }
}

// The contribution of the bytes' center to the sums of a digit: center times the sum of the digits.
struct Center {
  const int* sums;  // [digit row]
  int center;
};

template <typename T>
struct ActivationOut {
  Center center;
  T* y;
  const T *up, *bias;
  int rows, columns;
  T scale;
  ActivationFn activation;
  struct Thread {
    __device__ explicit Thread(const ActivationOut&) {}
  };

  // Outputs col and col + 1; the second may be past the last.
  __device__ void operator()(const Thread&, int row, int col, T first, T second) const {
    if (row >= rows || col >= columns) return;
    T* to = y + int64_t(row) * columns + col;
    const bool pair = col + 1 < columns;
    const T own[2] = {bend(fma(scale * up[col], first, bias[col])),
                      pair ? bend(fma(scale * up[col + 1], second, bias[col + 1])) : T(0)};
    if (columns % 2 == 0) {
      struct alignas(2 * sizeof(T)) Two {
        T values[2];
      };
      *reinterpret_cast<Two*>(to) = {own[0], own[1]};
    } else {
      to[0] = own[0];
      if (pair) to[1] = own[1];
    }
  }
  __device__ T bend(T z) const {
    // a rounded reciprocal takes half the time of a division
    if constexpr (std::is_same_v<T, float>) {
      if (activation == ActivationFn::sigmoid) return __frcp_rn(1.0f + expf(-z));
    }
    return activation_value(activation, z);
  }
};

template <typename T>
struct SgdOut {
  Center center;
  T *w, *momentum;  // [columns, rows]
  const T* up;
  int rows, columns;
  T scale;
  SgdSettings sgd;
  struct Thread {
    SgdRates<T> rates;
    __device__ explicit Thread(const SgdOut& out) : rates(out.sgd) {}
  };

  __device__ void operator()(const Thread& thread, int row, int col, T first, T second) const {
    if (row >= rows || col >= columns) return;
    const int64_t at = int64_t(col) * rows + row;
    sgd_element(thread.rates, w, momentum, at, scale * up[col] * first);
    if (col + 1 < columns) {
      sgd_element(thread.rates, w, momentum, at + rows, scale * up[col + 1] * second);
    }
  }
};

template <typename T, typename Out>
__global__ __launch_bounds__(
    Int8SplitTile<T>::kThreads,
    Int8SplitTile<T>::kBlocks) void int8_split_product_kernel(const __grid_constant__ CUtensorMap
                                                                  map_a,
                                                              const __grid_constant__ CUtensorMap
                                                                  map_b,
                                                              int k, int tile_rows, bool early,
                                                              const Out out) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Tile = Int8SplitTile<T>;
  using ATile = typename Tile::A;
  using BTile = typename Tile::B;
  constexpr int kStages = Tile::kStages;
  extern __shared__ char raw[];
  char* smem = raw + (-smem_address(raw) & 1023);
  auto* full = reinterpret_cast<Mbarrier*>(smem + kStages * Tile::kStageBytes);
  Mbarrier* empty = full + kStages;
  const int row0 = int(blockIdx.x) % tile_rows * Tile::kRows;
  const int group = int(blockIdx.x) / tile_rows;
  const int count = (k + kStageRowBytes - 1) / kStageRowBytes;
  if (threadIdx.x == Tile::kConsumers * 128) {
    tma_prefetch_map(&map_a);
    tma_prefetch_map(&map_b);
    for (int s = 0; s < kStages; ++s) {
      mbarrier_init(&full[s], 1);
      mbarrier_init(&empty[s], Tile::kConsumers);
    }
    mbarrier_init_fence();
  }
  __syncthreads();

  StageCursor<kStages> cursor;
  if (threadIdx.x >= Tile::kConsumers * 128) {
    if (threadIdx.x % 32 != 0) return;
    if (!early) {
      wait_for_previous_kernel();
      allow_next_kernel();
    }
    for (int i = 0; i < count; ++i, cursor.next()) {
      if (i >= kStages) mbarrier_wait(&empty[cursor.stage], cursor.parity ^ 1);
      char* stage = smem + cursor.stage * Tile::kStageBytes;
      mbarrier_arrive_expect(&full[cursor.stage], Tile::kStageBytes);
      ATile::load(stage, &map_a, &full[cursor.stage], row0, i * kStageRowBytes);
      BTile::load(stage + ATile::kBytes, &map_b, &full[cursor.stage], group * Tile::kColumns,
                  i * kStageRowBytes);
    }
    if (early) {  // the next launch may rely on all launches before this one
      wait_for_previous_kernel();
      allow_next_kernel();
    }
    return;
  }

  const int consumer = int(threadIdx.x) / 128;
  int acc[Tile::kColumns / 2];
  int previous = -1;
  for (int i = 0; i < count; ++i, cursor.next()) {
    mbarrier_wait(&full[cursor.stage], cursor.parity);
    const uint32_t a = smem_address(smem + cursor.stage * Tile::kStageBytes);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kStepsPerStage; ++step) {
      wgmma_u8s8(acc, ATile::descriptor(a + consumer * 64 * kStageRowBytes, step),
                 BTile::descriptor(a + ATile::kBytes, step), i > 0 || step > 0);
    }
    wgmma_commit();
    wgmma_wait<1>();
    if (previous >= 0 && threadIdx.x % 128 == 0) mbarrier_arrive(&empty[previous]);
    previous = cursor.stage;
  }
  wgmma_wait<0>();
  wgmma_keep(acc);
  wait_for_previous_kernel();  // the previous launch may have written what `out` reads
  const typename Out::Thread thread(out);
  const int lane = int(threadIdx.x) % 32;
  const int row = row0 + int(threadIdx.x) / 32 * 16 + lane / 4;
#pragma unroll
  for (int j = 0; j < kInt8SplitGroup / 8; ++j) {
    const int column = 8 * j + 2 * (lane % 4);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      int sum[2][kDigits<T>];
#pragma unroll
      for (int d = 0; d < kDigits<T>; ++d) {
        const int at = (d * (kInt8SplitGroup / 8) + j) * 4 + half * 2;
        sum[0][d] = acc[at], sum[1][d] = acc[at + 1];
        if (out.center.center != 0) {
          const int* own = out.center.sums + group * Tile::kColumns + d * kInt8SplitGroup + column;
          sum[0][d] -= out.center.center * own[0];
          sum[1][d] -= out.center.center * own[1];
        }
      }
      out(thread, row + 8 * half, group * kInt8SplitGroup + column, put_together<T>(sum[0]),
          put_together<T>(sum[1]));
    }
  }
#else
  __trap();  // the kernels refuse other GPUs
#endif
}

// a [rows][k] of bytes, times the digits of `outputs`.
template <typename T, typename Out>
Int8SplitProduct make_product(int rows, int outputs, int k, const uint8_t* a, const int8_t* digits,
                              bool early, const Out& out) {
  using Tile = Int8SplitTile<T>;
  const auto kernel = int8_split_product_kernel<T, Out>;
  const int64_t pitch = int8_split_pitch(k), digit_row_count = int8_split_rows(outputs, kDigits<T>);
  const CUtensorMap map_a = Tile::A::make_map(a, rows, k, pitch);
  const CUtensorMap map_b = Tile::B::make_map(digits, digit_row_count, k, pitch);
  GemmProblem problem{};  // for error messages
  problem.m = rows, problem.n = outputs, problem.k = k;
  set_shared_memory(kernel, Tile::kBytes, problem);
  const int tile_rows = ceil_div(rows, Tile::kRows);
  const int blocks = tile_rows * ceil_div(outputs, kInt8SplitGroup);
  return [=](cudaStream_t stream) {
    LaunchConfig launch(blocks, Tile::kThreads, Tile::kBytes, 1, /*overlap_previous=*/true);
    const cudaLaunchConfig_t config = launch.on(stream);
    return cudaLaunchKernelEx(&config, kernel, map_a, map_b, k, tile_rows, early, out);
  };
}

}  // namespace

template <typename T>
Int8SplitProduct int8_split_linear(const Int8SplitLinear<T>& p) {
  return make_product<T>(
      p.n, p.out, p.in, p.x, p.w_digits, false,
      ActivationOut<T>{{p.w_sums, p.center}, p.y, p.w_up, p.b, p.n, p.out, p.scale, p.activation});
}

template <typename T>
Int8SplitProduct int8_split_grad_w(const Int8SplitGradW<T>& p) {
  return make_product<T>(
      p.in, p.out, p.n, p.x_transposed, p.dz_digits, p.early,
      SgdOut<T>{{p.dz_sums, p.center}, p.w, p.momentum, p.dz_up, p.in, p.out, p.scale, p.sgd});
}

template Int8SplitProduct int8_split_linear(const Int8SplitLinear<float>&);
template Int8SplitProduct int8_split_linear(const Int8SplitLinear<double>&);
template Int8SplitProduct int8_split_grad_w(const Int8SplitGradW<float>&);
template Int8SplitProduct int8_split_grad_w(const Int8SplitGradW<double>&);

}  // namespace ridgeline::cuda
