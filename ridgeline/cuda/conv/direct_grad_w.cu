#include <algorithm>

#include "ridgeline/cuda/conv/direct_grad_w.h"
#include "ridgeline/cuda/conv/grad_w_sum.cuh"
#include "ridgeline/cuda/conv/staging.cuh"
#include "ridgeline/cuda/conv/window_store.cuh"
#include "ridgeline/cuda/device/async_copy.cuh"

namespace ridgeline::cuda {
namespace {

// A block takes a row u of the filter, 32 input channels, 64 output channels and a share of the
// images; warps share its output channels and the rows of pixels. A thread's sums are 8 outputs by
// two input channels (one, of a filter of 7) by the row's taps: of a pair of pixels it reads 8
// pairs of dy, the same for many lanes, and two new pixels of each channel of x, for 160
// multiply-adds of a filter of 5.
constexpr int kWarps = 16, kThreads = kWarps * 32;
constexpr int kChannels = 32, kEach = 8, kOutputs = 64;
static_assert(kThreads == 8 * kOutputs);  // the sums of dy

constexpr int deep(int filter) { return filter == 7 ? 1 : 2; }  // input channels of a thread

// How lanes and warps share that out.
template <int kFilter>
struct Shares {
  static constexpr int kDeep = deep(kFilter);
  static constexpr int kLanes = kChannels / kDeep;  // that take them; others take more outputs
  static constexpr int kOutputWarps = kOutputs / (kEach * kDeep);
  static constexpr int kRows = kWarps / kOutputWarps;  // shares of the rows
};

struct DirectGradWLayout {
  int dy_pitch, dy_plane;  // words; pitch even: pairs of pixels are one load
  int x_pitch, x_plane;    // plane odd: channels lie in different banks
  int channel_blocks, output_blocks, groups;

  __host__ __device__ int stage() const { return kOutputs * dy_plane + kChannels * x_plane; }
};

DirectGradWLayout layout_of(const ImplicitShape& shape, int sms) {
  DirectGradWLayout l;
  l.dy_pitch = (shape.out_w() + 1) / 2 * 2;
  l.dy_plane = shape.out_h() * l.dy_pitch;
  while (l.dy_plane % 4 != 2) ++l.dy_plane;  // outputs eight apart lie in different banks
  l.x_pitch = l.dy_pitch + shape.filter - 1;
  l.x_plane = (shape.out_h() * l.x_pitch) | 1;
  l.channel_blocks = (shape.c + kChannels - 1) / kChannels;
  l.output_blocks = (shape.k + kOutputs - 1) / kOutputs;
  const int blocks = l.channel_blocks * l.output_blocks * shape.filter;
  const int groups = std::clamp(sms / blocks, 1, shape.n);
  const int each = (shape.n + groups - 1) / groups;
  l.groups = (shape.n + each - 1) / each;
  return l;
}

int shared_bytes(const ImplicitShape& shape, const DirectGradWLayout& l) {
  const int stages = 2 * l.stage(),
            exchange = kThreads * (kEach * deep(shape.filter) * shape.filter + 1);
  return std::max(stages, exchange) * 4;
}

// `planes` planes of `rows` rows of `columns` numbers, a warp a plane: nothing is divided.
__device__ inline void copy_planes(const float* from, int64_t from_plane, int planes, int rows,
                                   int columns, float* to, int to_plane, int to_pitch) {
  const int lanes = lanes_along(columns), lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int plane = warp; plane < planes; plane += kWarps) {
    const float* source = from + plane * from_plane;
    float* target = to + plane * to_plane;
#pragma unroll 4
    for (int row = lane / lanes; row < rows; row += 32 / lanes) {
      for (int column = lane % lanes; column < columns; column += lanes) {
        copy_async_4(target + row * to_pitch + column, source + row * columns + column);
      }
    }
  }
}

// One image: dy's rows padded to pairs, the rows of x that meet row u of the filter. What lies
// outside the image was set to zero before and is not touched.
__device__ inline void fetch_image(const DirectGradWArgs& args, const DirectGradWLayout& l,
                                   int64_t image, int u, int c0, int o0, float* stage) {
  const ImplicitShape& s = args.shape;
  const int out_h = s.out_h(), out_w = s.out_w(), area = out_h * out_w;
  copy_planes(args.dy + (image * s.k + o0) * area, area, min(kOutputs, s.k - o0), out_h, out_w,
              stage, l.dy_plane, l.dy_pitch);
  const int low = max(0, u - s.pad), high = min(s.h, out_h + u - s.pad);  // rows of x
  copy_planes(args.x + (image * s.c + c0) * s.h * s.w + low * s.w, s.h * s.w,
              min(kChannels, s.c - c0), high - low, s.w,
              stage + kOutputs * l.dy_plane + (low + s.pad - u) * l.x_pitch + s.pad, l.x_plane,
              l.x_pitch);
}

template <int kFilter>
__global__ void __launch_bounds__(kThreads, 1)
    conv2d_grad_w_direct_kernel(DirectGradWArgs args, DirectGradWLayout l, float* partial,
                                float* bias) {
#if __CUDA_ARCH__ >= 800
  extern __shared__ __align__(16) float words[];
  const ImplicitShape& s = args.shape;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  using Of = Shares<kFilter>;
  constexpr int kDeep = Of::kDeep;
  const int u = blockIdx.x % kFilter, c0 = blockIdx.x / kFilter * kChannels;
  const int o0 = blockIdx.z * kOutputs;
  const int first = (warp % Of::kOutputWarps * kDeep + lane / Of::kLanes) * kEach;
  const bool sums_bias = args.db != nullptr && blockIdx.x == 0;
  for (int at = threadIdx.x; at < 2 * l.stage(); at += kThreads) words[at] = 0;
  __syncthreads();
  float acc[kEach][kDeep][kFilter] = {}, bias_sum = 0;
  const int each = (s.n + int(gridDim.y) - 1) / int(gridDim.y);
  const int begin = int(blockIdx.y) * each, end = min(s.n, begin + each);
  const auto fetch = [&](int image) {  // counts as a group of copies even past the last
    if (image < end) {
      fetch_image(args, l, image, u, c0, o0, words + (image - begin) % 2 * l.stage());
    }
    copy_async_commit();
  };
  fetch(begin);
#pragma unroll 1
  for (int image = begin; image < end; ++image) {
    fetch(image + 1);
    copy_async_wait<1>();
    __syncthreads();
    const float* dys = words + (image - begin) % 2 * l.stage();
    const float* xs = dys + kOutputs * l.dy_plane + lane % Of::kLanes * kDeep * l.x_plane;
    if (sums_bias) {  // eight threads an output
      const float* plane = dys + threadIdx.x / 8 * l.dy_plane;
      for (int at = threadIdx.x % 8; at < s.out_h() * l.dy_pitch; at += 8) bias_sum += plane[at];
    }
    dys += first * l.dy_plane;
#pragma unroll 1
    for (int p = warp / Of::kOutputWarps; p < s.out_h(); p += Of::kRows) {
      const float *row = xs + p * l.x_pitch, *slopes = dys + p * l.dy_pitch;
      float pixels[kDeep][kFilter + 1];
#pragma unroll
      for (int c = 0; c < kDeep; ++c) {
#pragma unroll
        for (int v = 0; v < kFilter - 1; ++v) pixels[c][v] = row[c * l.x_plane + v];
      }
#pragma unroll 2
      for (int q = 0; q < l.dy_pitch; q += 2) {
#pragma unroll
        for (int c = 0; c < kDeep; ++c) {
          const float* next = row + c * l.x_plane + q + kFilter - 1;
          pixels[c][kFilter - 1] = next[0], pixels[c][kFilter] = next[1];
        }
#pragma unroll
        for (int o = 0; o < kEach; ++o) {
          const float2 pair = *reinterpret_cast<const float2*>(slopes + o * l.dy_plane + q);
#pragma unroll
          for (int at = 0; at < kDeep * kFilter; ++at) {
            const int c = at / kFilter, v = at % kFilter;
            acc[o][c][v] += pair.x * pixels[c][v];
            acc[o][c][v] += pair.y * pixels[c][v + 1];
          }
        }
#pragma unroll
        for (int at = 0; at < kDeep * (kFilter - 1); ++at) {
          const int c = at / (kFilter - 1), v = at % (kFilter - 1);
          pixels[c][v] = pixels[c][v + 2];
        }
      }
    }
    __syncthreads();  // all are done with this stage
  }
  copy_async_wait<0>();

  // The shares of the rows, added in order. [output and channel of a thread, tap][thread]
#pragma unroll
  for (int at = 0; at < kEach * kDeep * kFilter; ++at) {
    words[at * kThreads + threadIdx.x] =
        acc[at / kFilter / kDeep][at / kFilter % kDeep][at % kFilter];
  }
  float* bias_words = words + kEach * kDeep * kFilter * kThreads;
  bias_words[threadIdx.x] = bias_sum;
  __syncthreads();
  float* to = partial + blockIdx.y * int64_t(s.c) * kFilter * kFilter * s.k;
  for (int at = threadIdx.x; at < kOutputs * kFilter * kChannels; at += kThreads) {
    const int o = at % kOutputs, v = at / kOutputs % kFilter, c = at / kOutputs / kFilter;
    if (o0 + o >= s.k || c0 + c >= s.c) continue;
    const int thread = o / kEach / kDeep * 32 + o / kEach % kDeep * Of::kLanes + c / kDeep;
    const float* part = words + ((o % kEach * kDeep + c % kDeep) * kFilter + v) * kThreads + thread;
    float sum = part[0];
    for (int share = 1; share < Of::kRows; ++share) sum += part[share * Of::kOutputWarps * 32];
    to[int64_t(((c0 + c) * kFilter + u) * kFilter + v) * s.k + o0 + o] = sum;
  }
  if (args.db == nullptr || blockIdx.x != 0) return;
  for (int o = threadIdx.x; o < min(kOutputs, s.k - o0); o += kThreads) {
    float sum = 0;
    for (int part = 0; part < 8; ++part) sum += bias_words[o * 8 + part];
    bias[int64_t(blockIdx.y) * s.k + o0 + o] = sum;
  }
#endif
}

template <int kFilter>
cudaError_t launch(const DirectGradWArgs& args, float* partial, int sms, cudaStream_t stream) {
  const ImplicitShape& s = args.shape;
  const DirectGradWLayout l = layout_of(s, sms);
  const int taps = s.c * kFilter * kFilter, bytes = shared_bytes(s, l);
  float* bias = partial + int64_t(l.groups) * taps * s.k;
  const auto kernel = conv2d_grad_w_direct_kernel<kFilter>;
  const cudaError_t error = allow_shared(kernel, bytes);
  if (error != cudaSuccess) return error;
  const dim3 grid(unsigned(l.channel_blocks * kFilter), unsigned(l.groups),
                  unsigned(l.output_blocks));
  kernel<<<grid, kThreads, size_t(bytes), stream>>>(args, l, partial, bias);
  return launch_grad_w_sum<float>({partial, l.groups, int64_t(taps) * s.k}, {bias, l.groups, s.k},
                                  taps, s.k, {args.dw}, {args.db}, stream);
}

}  // namespace

const char* refuse_direct_grad_w(const ImplicitShape& shape, size_t shared_memory) {
  if (shape.filter != 3 && shape.filter != 5 && shape.filter != 7) {
    return "takes square filters of 3, 5 and 7";
  }
  if (shape.pad < 0 || shape.pad >= shape.filter) return "takes padding smaller than the filter";
  if (shape.out_h() < 1 || shape.out_w() < 1) return "there are no outputs";
  // First by far: the sizes below are ints.
  if (int64_t(shape.out_h()) * (shape.out_w() + shape.filter) > (1 << 20)) {
    return "two images do not fit in shared memory";
  }
  if (size_t(shared_bytes(shape, layout_of(shape, 1))) > shared_memory) {
    return "two images do not fit in shared memory";
  }
  return "";
}

size_t direct_grad_w_workspace(const ImplicitShape& shape, int sms) {
  const size_t taps = size_t(shape.c) * shape.filter * shape.filter;
  return size_t(layout_of(shape, sms).groups) * (taps + 1) * shape.k * 4;
}

cudaError_t launch_conv2d_grad_w_direct(const DirectGradWArgs& args, void* workspace, int sms,
                                        cudaStream_t stream) {
  auto* partial = static_cast<float*>(workspace);
  switch (args.shape.filter) {
    case 3:
      return launch<3>(args, partial, sms, stream);
    case 5:
      return launch<5>(args, partial, sms, stream);
    default:
      return launch<7>(args, partial, sms, stream);
  }
}

}  // namespace ridgeline::cuda
