// With few channels the taps fit in a handful of steps of k, so B stays in registers and A is read
// word by word, and no channel is padded to whole chunks. k runs over (channel, u, v). Two
// neighbouring halves form a word, so v is padded to an even count, and the image is in shared
// memory twice, the second time shifted by a pixel for the pixels at odd columns.
#include "ridgeline/cuda/conv/small_cin.h"
#include "ridgeline/cuda/conv/source.cuh"
#include "ridgeline/cuda/conv/staging.cuh"
#include "ridgeline/cuda/conv/tensor.cuh"
#include "ridgeline/cuda/conv/window_store.cuh"

namespace ridgeline::cuda {
namespace {

constexpr int kThreads = 512, kWarps = kThreads / 32;
constexpr int kColumnTiles = 4, kOutputs = kColumnTiles * 8;  // per block
constexpr int kMostSteps = 8;
constexpr int kPassRows = kWarps * 32, kPitch = sums_pitch(kPassRows);  // eight windows per warp

// Words (of one or two elements) in shared memory and along k.
struct SmallCinLayout {
  int per_word, pairs;     // pairs: words per row of a filter
  int pitch, plane, copy;  // in elements; each is a whole number of words

  __host__ __device__ SmallCinLayout(const ImplicitShape& shape, int width)
      : per_word(4 / width),
        pairs((shape.filter + per_word - 1) / per_word),
        pitch((shape.w + 2 * shape.pad + 2 * per_word) / per_word * per_word),
        plane(pitch * (shape.h + 2 * shape.pad)),
        copy(shape.c * plane + 2 * per_word) {}
  __host__ __device__ int words(const ImplicitShape& shape) const {
    return shape.c * shape.filter * pairs;
  }
  // One copy of 32-bit words, or two of halves, in whole chunks; the sums follow.
  __host__ __device__ int bytes() const { return (copy * 4 + 15) / 16 * 16; }
};

// The bytes of the image, the sums and the biases.
int small_cin_shared(const ImplicitShape& shape, int width) {
  return SmallCinLayout(shape, width).bytes() + kOutputs * (kPitch + 1) * 4;
}

int steps_of(const ImplicitShape& shape, size_t width) {
  const int steps = (SmallCinLayout(shape, int(width)).words(shape) + 7) / 8;
  return steps <= 2 ? steps : steps <= 4 ? 4 : kMostSteps;
}

template <typename T>
__device__ void stage_image(const SmallCinArgs<T>& args, const SmallCinLayout& l, int64_t i,
                            T* to) {
  const ImplicitShape& shape = args.shape;
  auto* words = reinterpret_cast<uint32_t*>(to);
  for (int at = threadIdx.x; at < l.bytes() / 4; at += kThreads) words[at] = 0;
  __syncthreads();
  const int64_t numel = int64_t(shape.c) * shape.h * shape.w;
  const auto put = [&](int c, int y, int column, float value) {
    const int at = c * l.plane + (y + shape.pad) * l.pitch + column + shape.pad;
    to[at] = Factor<T>::round(value);
    if (sizeof(T) == 2 && at > 0) to[l.copy + at - 1] = T(value);
  };
  if (args.source.set == nullptr) {
    const T* x = static_cast<const T*>(args.source.x) + i * numel;
    for_elements<kThreads>(x, shape.c, shape.h, shape.w, [&](int c, int y, int column, T value) {
      put(c, y, column, float(value));
    });
    return;
  }
  const bool keeps = args.gathered.x != nullptr && blockIdx.y == 0 && blockIdx.z == 0;
  T* kept = args.gathered.x + i * numel;
  for_elements<kThreads>(bytes_of(args.source, i, numel), shape.c, shape.h, shape.w,
                         [&](int c, int y, int column, uint8_t byte) {
                           const T value =
                               T(fmaf(float(byte), args.source.scale, args.source.shift));
                           if (keeps) kept[(c * shape.h + y) * shape.w + column] = value;
                           put(c, y, column, float(value));
                         });
}

template <typename T>
__device__ void gather_labels(const SmallCinArgs<T>& args, int64_t i) {
  const Gathered<T>& to = args.gathered;
  if (to.label == nullptr || blockIdx.y != 0 || blockIdx.z != 0) return;
  const ImageSource& source = args.source;
  const int64_t row = source.order[*source.first + int64_t(*source.tick) * source.n + i];
  for (int e = threadIdx.x; e < to.label_row; e += kThreads) {
    to.label[i * to.label_row + e] = to.labels[row * to.label_row + e];
  }
}

// Packs B in the order in which lanes load it, [step][tile][lane][half]. One thread makes each
// word: words s * 8 + lane % 4 and the fourth from there, for output o0 + tile * 8 + lane / 4.
template <typename T, int kSteps>
__device__ void arrange_filters(const SmallCinArgs<T>& args, const SmallCinLayout& l, int o0,
                                uint32_t* packed_filters) {
  const ImplicitShape& shape = args.shape;
  const int count = l.words(shape);
  for (int i = threadIdx.x; i < kSteps * kColumnTiles * 64; i += kThreads) {
    const int half = i % 2, lane = i / 2 % 32, tile = i / 64 % kColumnTiles;
    const int word = i / (64 * kColumnTiles) * 8 + half * 4 + lane % 4;
    const int row = word / l.pairs, v = word % l.pairs * Factor<T>::kPerWord;  // row: (c, u)
    const int o = o0 + tile * 8 + lane / 4;
    T values[Factor<T>::kPerWord];
#pragma unroll
    for (int e = 0; e < Factor<T>::kPerWord; ++e) {
      const bool inside = word < count && v + e < shape.filter && o < shape.k;
      const int at = (o * shape.c * shape.filter + row) * shape.filter + v + e;
      values[e] = inside ? Factor<T>::round(float(args.w[at])) : T(0.0f);
    }
    packed_filters[i] = *reinterpret_cast<uint32_t*>(values);
  }
}

// A block takes one image by kOutputs channels, or a share of its windows. Two blocks fit per SM
// while the filters leave enough registers: 12.4 us against 15.7 us for the first layer of
// fashion-lenet.
template <typename T, int kSteps>
__global__ void __launch_bounds__(kThreads, kSteps <= 2 ? 2 : 1)
    conv2d_pool_small_cin_kernel(SmallCinArgs<T> args) {
#if __CUDA_ARCH__ >= 800
  extern __shared__ __align__(128) std::byte memory[];
  T* image = reinterpret_cast<T*>(memory);
  const ImplicitShape& shape = args.shape;
  const SmallCinLayout l(shape, sizeof(T));
  const int64_t i = blockIdx.x;
  const int o0 = blockIdx.y * kOutputs, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  gather_labels(args, i);
  stage_image(args, l, i, image);
  auto* sums = reinterpret_cast<float*>(memory + l.bytes());
  float* biases = sums + kOutputs * kPitch;
  stage_biases<kOutputs>(args.b, o0, shape.k, biases);
  arrange_filters<T, kSteps>(args, l, o0, reinterpret_cast<uint32_t*>(sums));
  int offset[kSteps][2];  // offsets of this lane's words of A from a pixel's first word
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int word = min(s * 8 + half * 4 + lane % 4, l.words(shape) - 1);
      const int row = word / l.pairs, v = word % l.pairs * Factor<T>::kPerWord;
      const int c = row / shape.filter, u = row % shape.filter;
      offset[s][half] = (c * l.plane + u * l.pitch + v) / Factor<T>::kPerWord;
    }
  }
  __syncthreads();
  uint2 b[kSteps][kColumnTiles];
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
#pragma unroll
    for (int tile = 0; tile < kColumnTiles; ++tile) {
      b[s][tile] = reinterpret_cast<const uint2*>(sums)[(s * kColumnTiles + tile) * 32 + lane];
    }
  }
  const auto* words = reinterpret_cast<const uint32_t*>(image);
  const int columns = shape.out_w() / 2, windows = shape.out_h() / 2 * columns;
  // The pixel to the right is the same word of the shifted copy, or the next word.
  const int right = sizeof(T) == 2 ? l.copy / 2 : 1;
  const BlockOutput<T> out{shape, biases, args.y, i, o0, min(kOutputs, shape.k - o0)};
  const int share = (windows + int(gridDim.z) - 1) / int(gridDim.z);
  const int last = min(windows, int(blockIdx.z + 1) * share);
  for (int first = int(blockIdx.z) * share; first < last; first += kWarps * 8) {
    const int window = min(first + warp * 8 + lane / 4, windows - 1);
    const uint32_t* corner =
        words + (window / columns * 2 * l.pitch + window % columns * 2) / Factor<T>::kPerWord;
    float acc[2][kColumnTiles][4] = {};
#pragma unroll
    for (int below = 0; below < 2; ++below) {
      const uint32_t* pixel = corner + below * l.pitch / Factor<T>::kPerWord;
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        const uint32_t a[4] = {pixel[offset[s][0]], pixel[offset[s][0] + right],
                               pixel[offset[s][1]], pixel[offset[s][1] + right]};
#pragma unroll
        for (int tile = 0; tile < kColumnTiles; ++tile) {
          Factor<T>::mma(acc[below][tile], a, b[s][tile].x, b[s][tile].y);
        }
      }
    }
    __syncthreads();  // the previous sums have been read
#pragma unroll
    for (int below = 0; below < 2; ++below) {
#pragma unroll
      for (int tile = 0; tile < kColumnTiles; ++tile) {
        put_sums(acc[below][tile], sums + tile * 8 * kPitch + warp * 32 + below * 16, kPitch);
      }
    }
    __syncthreads();
    store_windows<kThreads>(out, args.pool, sums, kPitch, first,
                            min(kPassRows, (last - first) * 4));
  }
#endif
}

template <typename T, int kSteps>
cudaError_t launch(const SmallCinArgs<T>& args, int sms, cudaStream_t stream) {
  const auto kernel = conv2d_pool_small_cin_kernel<T, kSteps>;
  const int bytes = small_cin_shared(args.shape, sizeof(T));
  const cudaError_t error = allow_shared(kernel, bytes);
  if (error != cudaSuccess) return error;
  const int outputs = (args.shape.k + kOutputs - 1) / kOutputs;
  const int shares = args.shape.n * outputs < 2 * sms ? 2 : 1;  // two blocks per SM
  const dim3 grid(unsigned(args.shape.n), unsigned(outputs), unsigned(shares));
  kernel<<<grid, kThreads, bytes, stream>>>(args);
  return cudaGetLastError();
}

}  // namespace

const char* refuse_small_cin(const ImplicitShape& shape, size_t width, size_t shared_memory) {
  const SmallCinLayout l(shape, int(width));
  if (l.words(shape) > kMostSteps * 8) return "the taps of a filter do not fit in registers";
  if (shape.pad < 0 || shape.pad >= shape.filter) return "takes padding smaller than the filter";
  if (shape.out_h() < 2 || shape.out_w() < 2) return "there are no windows";
  if (size_t(small_cin_shared(shape, int(width))) > shared_memory) {
    return "an image does not fit in shared memory";
  }
  return "";
}

template <typename T>
cudaError_t launch_conv2d_pool_small_cin(const SmallCinArgs<T>& args, int sms,
                                         cudaStream_t stream) {
  switch (steps_of(args.shape, sizeof(T))) {
    case 1:
      return launch<T, 1>(args, sms, stream);
    case 2:
      return launch<T, 2>(args, sms, stream);
    case 4:
      return launch<T, 4>(args, sms, stream);
    default:
      return launch<T, kMostSteps>(args, sms, stream);
  }
}

template cudaError_t launch_conv2d_pool_small_cin(const SmallCinArgs<float>&, int, cudaStream_t);
template cudaError_t launch_conv2d_pool_small_cin(const SmallCinArgs<__nv_bfloat16>&, int,
                                                  cudaStream_t);
template cudaError_t launch_conv2d_pool_small_cin(const SmallCinArgs<__half>&, int, cudaStream_t);

}  // namespace ridgeline::cuda
