#include <algorithm>

#include "ridgeline/cuda/conv/grad_w_sum.cuh"
#include "ridgeline/cuda/conv/pool_sparse_grad_w.h"
#include "ridgeline/cuda/conv/staging.cuh"
#include "ridgeline/cuda/conv/window_store.cuh"

namespace ridgeline::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kOutputs = 32;          // output channels per block: one per lane
constexpr int kPitch = kOutputs + 1;  // between windows in shared memory
constexpr int kShare = 128;           // windows that a block takes at a time

// The gradient of a window, and the offset in the shared-memory image of the pixel that receives
// it.
template <typename A>
struct Slope {
  A value;
  int place;
};

// A plane of an image in shared memory, with its padding.
struct WindowPlane {
  int rows, pitch;

  // The four pixels of a window are in different banks.
  __host__ __device__ explicit WindowPlane(const ImplicitShape& shape)
      : rows(shape.out_h() + shape.filter - 1), pitch(shape.out_w() + shape.filter - 1) {
    while (pitch % 32 < 2 || pitch % 32 == 31) ++pitch;
  }
  __host__ __device__ int count() const { return rows * pitch; }
};

// How the images, and the windows of each, are split over blocks.
struct WindowShares {
  int images, parts;

  int groups() const { return images * parts; }
};

WindowShares shares_of(const ImplicitShape& shape, int sms) {
  const int blocks = (shape.k + kOutputs - 1) / kOutputs * shape.c, slots = 2 * sms;
  const int groups = std::clamp(slots / blocks, 1, shape.n);
  const int each = (shape.n + groups - 1) / groups, images = (shape.n + each - 1) / each;
  return {images, each == 1 ? std::clamp(slots / (images * blocks), 1, 4) : 1};
}

size_t shared_bytes(const ImplicitShape& shape, size_t wide) {
  const size_t slope = wide == 8 ? 16 : 8;
  const size_t images =
      (size_t(WindowPlane(shape).count()) * wide + 15) / 16 * 16 + size_t(kShare) * kPitch * slope;
  const size_t exchange =
      size_t(kWarps) * (size_t(shape.filter) * shape.filter + 1) * kOutputs * wide;
  return std::max(images, exchange);
}

// Loads the gradients of windows first .. last of 32 channels. Lanes run along the windows, which
// are contiguous, and each warp takes a few channels. A thread takes the same windows of each
// channel and has their loads in flight together.
template <typename T, bool kEven, typename A>
__device__ void stage_slopes(const PoolSparseGradWArgs<T>& args, const WindowPlane& plane,
                             int64_t image, int o0, int first, int last, Slope<A>* slopes) {
  constexpr int kEach = (kShare + 31) / 32;
  const ImplicitShape& shape = args.shape;
  const int h = shape.out_h(), w = shape.out_w(), columns = w / 2, windows = h / 2 * columns;
  const int lane = threadIdx.x % 32, outputs = min(kOutputs, shape.k - o0);
  const int64_t channel = image * shape.k + o0;
  const T *a = args.dy.a + channel * h * w, *dy = args.dy.dy + channel * windows;
  int corner[kEach], place[kEach];
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    const int window = min(first + e * 32 + lane, last - 1);
    const int y = window / columns * 2, x = window % columns * 2;
    corner[e] = y * w + x, place[e] = y * plane.pitch + x;
  }
#pragma unroll 2
  for (int o = threadIdx.x / 32; o < kOutputs; o += kWarps) {
    const int from = min(o, outputs - 1);
    T quads[kEach][4], slope[kEach];
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      load_quad<kEven>(a + from * h * w + corner[e], w, quads[e]);
      slope[e] = dy[from * windows + min(first + e * 32 + lane, last - 1)];
    }
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const int window = e * 32 + lane;
      if (window >= last - first) continue;
      const QuadGrad<T> grad(quads[e], slope[e], args.dy.activation);
      slopes[window * kPitch + o] = {o < outputs ? A(grad.slope) : A(0),
                                     place[e] + grad.best / 2 * plane.pitch + grad.best % 2};
    }
  }
}

// A block takes an input channel, 32 output channels and a share of the images. It leaves its sums
// in partial[group][channel, tap, o] and bias[group][o].
template <typename T, int kFilter>
__global__ void __launch_bounds__(kThreads)
    conv2d_grad_w_pool_sparse_kernel(PoolSparseGradWArgs<T> args, WindowShares shares,
                                     Accumulated<T>* partial, Accumulated<T>* bias) {
  using A = Accumulated<T>;
  extern __shared__ __align__(128) std::byte memory[];
  constexpr int kTaps = kFilter * kFilter;
  const ImplicitShape& shape = args.shape;
  const WindowPlane plane(shape);
  A* pixels = reinterpret_cast<A*>(memory);
  auto* slopes =
      reinterpret_cast<Slope<A>*>(memory + (plane.count() * int(sizeof(A)) + 15) / 16 * 16);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int c = int(blockIdx.x), o0 = int(blockIdx.z) * kOutputs;
  const int windows = (shape.out_h() / 2) * (shape.out_w() / 2);
  A acc[kTaps] = {}, bias_sum = A(0);
  const int each = (shape.n + shares.images - 1) / shares.images;
  const int share = int(blockIdx.y) / shares.parts, part = int(blockIdx.y) % shares.parts;
  const int begin = windows * part / shares.parts, end = windows * (part + 1) / shares.parts;
  const int last_image = min(shape.n, (share + 1) * each);
  for (int image = share * each; image < last_image; ++image) {
    __syncthreads();  // all threads are done with the previous image
    const T* x = args.x + (int64_t(image) * shape.c + c) * shape.h * shape.w;
    for (int at = threadIdx.x; at < plane.count(); at += kThreads) {
      const int y = at / plane.pitch - shape.pad, column = at % plane.pitch - shape.pad;
      const bool inside = y >= 0 && y < shape.h && column >= 0 && column < shape.w;
      pixels[at] = inside ? A(x[y * shape.w + column]) : A(0);
    }
    for (int first = begin; first < end; first += kShare) {
      const int last = min(end, first + kShare);
      if (first > begin) __syncthreads();  // the previous gradients have been read
      if (shape.out_w() % 2 == 0) {
        stage_slopes<T, true>(args, plane, image, o0, first, last, slopes);
      } else {
        stage_slopes<T, false>(args, plane, image, o0, first, last, slopes);
      }
      __syncthreads();
      for (int window = warp; window < last - first; window += kWarps) {
        const Slope<A> slope = slopes[window * kPitch + lane];
        const A* patch = pixels + slope.place;
        bias_sum += slope.value;
#pragma unroll
        for (int u = 0; u < kFilter; ++u) {
#pragma unroll
          for (int v = 0; v < kFilter; ++v) {
            acc[u * kFilter + v] += slope.value * patch[u * plane.pitch + v];
          }
        }
      }
    }
  }

  // Adds the warps' sums in order.
  __syncthreads();
  A* sums = reinterpret_cast<A*>(memory);
#pragma unroll
  for (int tap = 0; tap < kTaps; ++tap) {
    sums[(warp * (kTaps + 1) + tap) * kOutputs + lane] = acc[tap];
  }
  sums[(warp * (kTaps + 1) + kTaps) * kOutputs + lane] = bias_sum;
  __syncthreads();
  for (int at = threadIdx.x; at < (kTaps + 1) * kOutputs; at += kThreads) {
    const int tap = at / kOutputs, o = o0 + at % kOutputs;
    if (o >= shape.k) continue;
    A sum = A(0);
    for (int w = 0; w < kWarps; ++w) sum += sums[w * (kTaps + 1) * kOutputs + at];
    if (tap < kTaps) {
      partial[((int64_t(blockIdx.y) * shape.c + c) * kTaps + tap) * shape.k + o] = sum;
    } else if (c == 0) {
      bias[int64_t(blockIdx.y) * shape.k + o] = sum;
    }
  }
}

// The groups' sums in the workspace.
template <typename T>
struct WindowSums {
  using A = Accumulated<T>;
  WindowShares shares;
  int groups, taps;
  A *partial, *bias;

  WindowSums(const ImplicitShape& shape, void* workspace, int sms)
      : shares(shares_of(shape, sms)),
        groups(shares.groups()),
        taps(shape.c * shape.filter * shape.filter),
        partial(static_cast<A*>(workspace)),
        bias(partial + int64_t(groups) * taps * shape.k) {}
};

template <typename T, int kFilter>
cudaError_t launch(const PoolSparseGradWArgs<T>& args, void* workspace, int sms,
                   cudaStream_t stream) {
  const ImplicitShape& shape = args.shape;
  const WindowSums<T> at(shape, workspace, sms);
  const auto kernel = conv2d_grad_w_pool_sparse_kernel<T, kFilter>;
  const auto bytes = int(shared_bytes(shape, sizeof(Accumulated<T>)));
  const cudaError_t error = allow_shared(kernel, bytes);
  if (error != cudaSuccess) return error;
  const dim3 grid(unsigned(shape.c), unsigned(at.groups),
                  unsigned((shape.k + kOutputs - 1) / kOutputs));
  kernel<<<grid, kThreads, size_t(bytes), stream>>>(args, at.shares, at.partial, at.bias);
  return cudaGetLastError();
}

}  // namespace

const char* refuse_pool_sparse_grad_w(const ImplicitShape& shape, size_t width,
                                      size_t shared_memory) {
  if (shape.filter != 3 && shape.filter != 5 && shape.filter != 7) {
    return "takes square filters of 3, 5 and 7";
  }
  if (shape.pad < 0 || shape.pad >= shape.filter) return "takes padding smaller than the filter";
  if (shape.out_h() < 2 || shape.out_w() < 2) return "there are no windows";
  if (shape.c > 4) return "reads the gradient once for each of few input channels";
  if (shared_bytes(shape, width == 8 ? 8 : 4) > shared_memory) {
    return "an image does not fit in shared memory";
  }
  return "";
}

size_t pool_sparse_grad_w_workspace(const ImplicitShape& shape, size_t width, int sms) {
  const size_t taps = size_t(shape.c) * shape.filter * shape.filter;
  return size_t(shares_of(shape, sms).groups()) * (taps + 1) * shape.k * (width == 8 ? 8 : 4);
}

template <typename T>
cudaError_t launch_pool_sparse_grad_w(const PoolSparseGradWArgs<T>& args, void* workspace, int sms,
                                      cudaStream_t stream) {
  switch (args.shape.filter) {
    case 3:
      return launch<T, 3>(args, workspace, sms, stream);
    case 5:
      return launch<T, 5>(args, workspace, sms, stream);
    default:
      return launch<T, 7>(args, workspace, sms, stream);
  }
}

template <typename T>
cudaError_t launch_pool_sparse_grad_w_sum(const PoolSparseGradWArgs<T>& args, void* workspace,
                                          int sms, cudaStream_t stream) {
  const WindowSums<T> at(args.shape, workspace, sms);
  const int k = args.shape.k;
  return launch_grad_w_sum<T>({at.partial, at.groups, int64_t(at.taps) * k},
                              {at.bias, at.groups, k}, at.taps, k, args.dw, args.db, stream);
}

#define RIDGELINE_LAUNCH_POOL_SPARSE(T)                                                         \
  template cudaError_t launch_pool_sparse_grad_w(const PoolSparseGradWArgs<T>&, void*, int,     \
                                                 cudaStream_t);                                 \
  template cudaError_t launch_pool_sparse_grad_w_sum(const PoolSparseGradWArgs<T>&, void*, int, \
                                                     cudaStream_t);
RIDGELINE_CUDA_FOR_FLOATS(RIDGELINE_LAUNCH_POOL_SPARSE)

}  // namespace ridgeline::cuda
