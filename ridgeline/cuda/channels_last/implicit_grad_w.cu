// dw[k, tap, c] = sum over pixels p of dy[p, k] * x[p + tap, c], without unrolled taps in memory.
//
// A block computes 64 k by all nine taps of 64 c. It goes down a strip of the images row by row; a
// stage of its ring holds a row of dy and the same row of x with the column before and the one
// after. The warpgroup of filter row u multiplies row r of dy by row r + u - 1 of x, so each row is
// loaded once and multiplied three times. Rows of padding are not multiplied. The columns of
// padding are zeros that TMA fills in.
//
// TMA stores the channels of `images` images at one pixel before the next pixel's, [pixel, image,
// 64 channels], so that a step of 16 of wgmma's k consists of whole pixels of eight images or more.
// The products of the three taps of a filter row are one wgmma of 3 x 64 columns: the descriptor's
// stride between blocks of 64 columns is one pixel. All addresses are multiples of 1024 bytes,
// after which the swizzle repeats.
//
// On an H200 this computes 600 to 760 TFLOP/s for 512 images of 4 x 4 to 32 x 32 pixels.
#include <algorithm>

#include "ridgeline/cuda/channels_last/implicit_grad_w.h"
#include "ridgeline/cuda/conv/window_store.cuh"
#include "ridgeline/cuda/device/tma.cuh"
#include "ridgeline/cuda/device/uniform.cuh"
#include "ridgeline/cuda/device/wgmma.cuh"

namespace ridgeline::cuda {
namespace {

constexpr int kTile = 64;        // k and c of a block: 128 bytes of each pixel
constexpr int kBoxPixels = 128;  // of all images of a box
constexpr int kFilter = 3, kTaps = kFilter * kFilter;
constexpr int kPixelBytes = kTile * 2, kDyBytes = kBoxPixels * kPixelBytes;
constexpr int kConsumers = kFilter;              // a warpgroup for each filter row
constexpr int kThreads = kConsumers * 128 + 32;  // and a warp that starts the loads
constexpr int kHead = 1024;                      // bytes of barriers
constexpr int kSharedBytes = 227 * 1024;         // per block on sm_90
constexpr int kMostStages = 6;                   // 2 to 4 % faster than four
constexpr int kLeastColumns = 4;                 // of a box

__host__ __device__ int tiles(int channels) { return (channels + kTile - 1) / kTile; }

// The ring of stages in shared memory. A warpgroup may wait for one while it holds three others.
struct Stages {
  int x_bytes, bytes, count;

  explicit __host__ __device__ Stages(const ImplicitGradWShape& shape)
      : x_bytes((shape.columns + kFilter - 1) * shape.images * kPixelBytes),
        bytes(kDyBytes + x_bytes),
        count((kSharedBytes - kHead) / bytes) {
    if (count > kMostStages) count = kMostStages;
  }
};
constexpr int kMostStageBytes = 2 * kDyBytes + (kFilter - 1) * kDyBytes / kLeastColumns;
static_assert((kSharedBytes - kHead) / kMostStageBytes >= 4);

__device__ inline void load_box(void* destination, const CUtensorMap* map, Mbarrier* barrier,
                                int channel, int image, int column, int row) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(smem_address(destination)),
      "l"(map), "r"(smem_address(barrier)), "r"(channel), "r"(image), "r"(column), "r"(row)
      : "memory");
}

template <typename T>
__global__ void __launch_bounds__(kThreads, 1)
    conv2d_grad_w_implicit_rows_kernel(const __grid_constant__ CUtensorMap x_map,
                                       const __grid_constant__ CUtensorMap dy_map,
                                       const __grid_constant__ ImplicitGradWShape shape,
                                       float* partial) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) std::byte memory[];
  auto* const full = reinterpret_cast<Mbarrier*>(memory);
  Mbarrier* const empty = full + kMostStages;
  std::byte* const ring = memory + kHead;
  const Stages stages(shape);
  const int c_tiles = tiles(shape.c);
  const int k0 = int(blockIdx.x) / c_tiles * kTile, c0 = int(blockIdx.x) % c_tiles * kTile;
  const auto strips_before = [&](unsigned split) {
    return int(int64_t(shape.strips) * split / gridDim.y);
  };
  const int first = strips_before(blockIdx.y), strips = strips_before(blockIdx.y + 1) - first;

  if (threadIdx.x == 0) {
    for (int stage = 0; stage < stages.count; ++stage) {
      mbarrier_init(full + stage, 1);
      mbarrier_init(empty + stage, kConsumers);
    }
    mbarrier_init_fence();
  }
  __syncthreads();

  const int warpgroup = uniform(int(threadIdx.x) / 128);
  if (warpgroup == kConsumers) {
    if (threadIdx.x != kConsumers * 128) return;
    const int across = shape.w / shape.columns;
    for (int row = 0; row < strips * shape.h; ++row) {
      const int stage = row % stages.count, strip = first + row / shape.h;
      const int image = strip / across * shape.images, column = strip % across * shape.columns;
      std::byte* const to = ring + stage * stages.bytes;
      mbarrier_wait(empty + stage, uint32_t(row / stages.count & 1) ^ 1);
      mbarrier_arrive_expect(full + stage, uint32_t(stages.bytes));
      load_box(to, &dy_map, full + stage, k0, image, column, row % shape.h);
      load_box(to + kDyBytes, &x_map, full + stage, c0, image, column - 1, row % shape.h);
    }
    return;
  }

  // The accumulator of thread t holds rows t / 4 % 8 + 16 (t / 32) (+ 8), and of each eight columns
  // the pair 2 (t % 4).
  float acc[kFilter * kTile / 2] = {};
  const uint32_t base = smem_address(ring);
  const auto wait_for = [&](int row) {
    mbarrier_wait(full + row % stages.count, uint32_t(row / stages.count & 1));
    return base + uint32_t(row % stages.count * stages.bytes);
  };
  int released = 0;
  for (int strip = 0; strip < strips; ++strip) {
    const int begin = strip * shape.h + (warpgroup == 0);
    const int end = (strip + 1) * shape.h - (warpgroup == 2);
    for (int row = begin; row < end; ++row) {
      constexpr int kSteps = kBoxPixels / 16;
      const uint64_t a = wgmma_descriptor(wait_for(row), 16, 8 * kPixelBytes, kPixelBytes);
      const uint64_t b =
          wgmma_descriptor(wait_for(row + warpgroup - 1) + kDyBytes,
                           uint32_t(shape.images * kPixelBytes), 8 * kPixelBytes, kPixelBytes);
      wgmma_fence();
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        const uint64_t at = uint64_t(step * kDyBytes / kSteps / 16);
        wgmma<T, true, true>(acc, a + at, b + at, true);
      }
      wgmma_commit();
      // This row's products stay in flight. The earlier ones are complete, and the later ones need
      // no row before this one, except that filter row 0 needs the one above.
      wgmma_wait<1>();
      for (; released < row - (warpgroup == 0); ++released) {
        if (threadIdx.x % 128 == 0) mbarrier_arrive(empty + released % stages.count);
      }
    }
  }
  wgmma_wait<0>();
  wgmma_keep(acc);

  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) % 128 / 32;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int k = k0 + warp * 16 + lane / 4 + i * 8;
    if (k >= shape.k) continue;
#pragma unroll
    for (int j = 0; j < kFilter * kTile / 8; ++j) {
      const int tap = warpgroup * kFilter + j / 8, c = c0 + j % 8 * 8 + lane % 4 * 2;
      if (c >= shape.c) continue;
      const int64_t filter = (int64_t(blockIdx.y) * shape.k + k) * kTaps + tap;
      *reinterpret_cast<float2*>(partial + filter * shape.c + c) =
          make_float2(acc[j * 4 + i * 2], acc[j * 4 + i * 2 + 1]);
    }
  }
#endif
}

constexpr int kSumThreads = kTaps * kTile / 4;

// Adds the splits' sums in order, for 64 c of one k.
template <typename T>
__global__ void __launch_bounds__(kSumThreads)
    conv2d_grad_w_implicit_sum_kernel(const __grid_constant__ ImplicitGradWShape shape,
                                      const float* partial, MixedOut<T> dw) {
  __shared__ float sums[kTile * kTaps];
  const int k = int(blockIdx.x), c0 = int(blockIdx.y) * kTile;
  const int tap = int(threadIdx.x) / (kTile / 4), channel = int(threadIdx.x) % (kTile / 4) * 4;
  const int64_t weights = int64_t(shape.k) * kTaps * shape.c;
  if (c0 + channel < shape.c) {
    const float* from = partial + (int64_t(k) * kTaps + tap) * shape.c + c0 + channel;
    float sum[4] = {};
#pragma unroll 8
    for (int split = 0; split < shape.splits; ++split) {
      const float4 more = *reinterpret_cast<const float4*>(from + split * weights);
      sum[0] += more.x, sum[1] += more.y, sum[2] += more.z, sum[3] += more.w;
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) sums[(channel + e) * kTaps + tap] = sum[e];
  }
  __syncthreads();
  const int count = min(kTile, shape.c - c0) * kTaps;
  for (int i = int(threadIdx.x); i < count; i += kSumThreads) {
    dw.put((int64_t(k) * shape.c + c0) * kTaps + i, sums[i]);
  }
}

// A map of values[n, h, w, channels] with boxes of one row that are stored as [columns, images, 64
// channels]. What lies outside reads as zero.
template <typename T>
CUtensorMap box_map(const T* values, const ImplicitGradWShape& shape, int channels, int columns) {
  const cuuint64_t pixel = cuuint64_t(channels) * sizeof(T), row = pixel * cuuint64_t(shape.w);
  const cuuint64_t extent[4] = {cuuint64_t(channels), cuuint64_t(shape.n), cuuint64_t(shape.w),
                                cuuint64_t(shape.h)};
  const cuuint64_t stride[3] = {row * cuuint64_t(shape.h), pixel, row};
  const cuuint32_t box[4] = {kTile, cuuint32_t(shape.images), cuuint32_t(columns), 1};
  const cuuint32_t step[4] = {1, 1, 1, 1};
  CUtensorMap map;
  const CUresult result =
      tensor_map_encoder()(&map, tensor_map_type<T>(), 4, const_cast<T*>(values), extent, stride,
                           box, step, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                           CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    throw_error(ErrorKind::device,
                "conv2d_grad_w: the driver refused a tensor map of {} x {} x {} x {} (error {})",
                shape.n, shape.h, shape.w, channels, int(result));
  }
  return map;
}

}  // namespace

ImplicitGradWShape::ImplicitGradWShape(int n, int h, int w, int c, int k, int sms)
    : n(n), h(h), w(w), c(c), k(k) {
  // The widest box whose images exceed the batch least.
  int64_t least = 0;
  for (const int width : {16, 8, kLeastColumns}) {
    const int each = kBoxPixels / width;
    const int64_t groups = (n + each - 1) / each, computed = groups * each;
    if (w % width != 0 || (columns != 0 && computed >= least)) continue;
    least = computed, columns = width, images = each, strips = int(groups * (w / width));
  }
  // As few splits as give no block more strips.
  const int most = std::max(sms / (tiles(c) * tiles(k)), 1), each = (strips + most - 1) / most;
  splits = (strips + each - 1) / each;
}

template <typename T>
std::function<cudaError_t(cudaStream_t)> prepare_implicit_grad_w(const ImplicitGradWShape& shape,
                                                                 const T* x, const T* dy,
                                                                 float* partial, MixedOut<T> dw) {
  const Stages stages(shape);
  const int bytes = kHead + stages.count * stages.bytes;
  const CUtensorMap x_map = box_map(x, shape, shape.c, shape.columns + kFilter - 1);
  const CUtensorMap dy_map = box_map(dy, shape, shape.k, shape.columns);
  return [=](cudaStream_t stream) {
    const auto kernel = conv2d_grad_w_implicit_rows_kernel<T>;
    const cudaError_t status = allow_shared(kernel, bytes);
    if (status != cudaSuccess) return status;
    const dim3 blocks(unsigned(tiles(shape.k) * tiles(shape.c)), unsigned(shape.splits));
    kernel<<<blocks, kThreads, size_t(bytes), stream>>>(x_map, dy_map, shape, partial);
    const dim3 sums(unsigned(shape.k), unsigned(tiles(shape.c)));
    conv2d_grad_w_implicit_sum_kernel<T><<<sums, kSumThreads, 0, stream>>>(shape, partial, dw);
    return cudaGetLastError();
  };
}

#define INSTANTIATE(T)                                                          \
  template std::function<cudaError_t(cudaStream_t)> prepare_implicit_grad_w<T>( \
      const ImplicitGradWShape&, const T*, const T*, float*, MixedOut<T>);
INSTANTIATE(__nv_bfloat16)
INSTANTIATE(__half)
#undef INSTANTIATE

}  // namespace ridgeline::cuda
