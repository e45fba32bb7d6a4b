#include <algorithm>

#include "ridgeline/cuda/plain/accumulate.cuh"
#include "ridgeline/cuda/plain/gather.h"
#include "ridgeline/ops/augmentation.h"

namespace ridgeline::cuda {
namespace {

constexpr int kThreads = 256;

// kPack bytes at once, and as many results: samples must be aligned to kPack and multiples of it.
template <typename T, int kPack>
struct alignas(sizeof(T) * kPack < 16 ? sizeof(T) * kPack : 16) Pack {
  T values[kPack];
};

// threadIdx.x runs along a sample, threadIdx.y and blockIdx.x over the samples of the batch.
template <typename T, int kPack>
__global__ void gather_kernel(GatherArgs args) {
  using A = Accumulated<T>;
  const int64_t i = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
  if (i >= args.n) return;
  const int64_t source = args.order[*args.first + int64_t(*args.tick) * args.n + i];
  if (args.label != nullptr) {
    for (int64_t j = threadIdx.x; j < args.label_size; j += blockDim.x) {
      args.label[i * args.label_size + j] = args.labels[source * args.label_size + j];
    }
  }
  if (args.set == nullptr) return;
  const auto* from =
      reinterpret_cast<const Pack<uint8_t, kPack>*>(args.set + source * args.sample_size);
  auto* to = reinterpret_cast<Pack<T, kPack>*>(static_cast<T*>(args.y) + i * args.sample_size);
  const A scale = A(args.scale), shift = A(args.shift);
  for (int64_t j = threadIdx.x; j < args.sample_size / kPack; j += blockDim.x) {
    const Pack<uint8_t, kPack> bytes = from[j];
    Pack<T, kPack> result;
#pragma unroll
    for (int e = 0; e < kPack; ++e) result.values[e] = T(fma(A(bytes.values[e]), scale, shift));
    to[j] = result;
  }
}

// Gathers from sets of floats, which are rounded to T.
template <typename T, int kPack>
__global__ void gather_floats_kernel(GatherArgs args) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
  if (i >= args.n) return;
  const int64_t source = args.order[*args.first + int64_t(*args.tick) * args.n + i];
  const auto* from =
      reinterpret_cast<const Pack<float, kPack>*>(args.floats + source * args.sample_size);
  auto* to = reinterpret_cast<Pack<T, kPack>*>(static_cast<T*>(args.y) + i * args.sample_size);
  for (int64_t j = threadIdx.x; j < args.sample_size / kPack; j += blockDim.x) {
    const Pack<float, kPack> values = from[j];
    Pack<T, kPack> result;
#pragma unroll
    for (int e = 0; e < kPack; ++e) result.values[e] = T(values.values[e]);
    to[j] = result;
  }
}

// One block per image.
template <typename T>
__global__ void gather_augment_kernel(AugmentArgs args) {
  using A = Accumulated<T>;
  const GatherArgs& gather = args.gather;
  const int64_t i = blockIdx.x;
  const int64_t source = gather.order[*gather.first + int64_t(*gather.tick) * gather.n + i];
  const auto draw =
      Augmentation::draw(args.seed, args.move, args.flip, uint64_t(*args.epoch), uint64_t(source));
  const uint8_t* from = gather.set + source * gather.sample_size;
  T* to = static_cast<T*>(gather.y) + i * gather.sample_size;
  for (int j = threadIdx.x; j < gather.sample_size; j += blockDim.x) {
    const int q = j % args.w, row = j / args.w;  // row counts over all channels
    const int s = (draw.flip ? args.w - 1 - q : q) - int(draw.right);
    const int r = row % args.h - (args.h > 1 ? int(draw.down) : 0);
    const bool inside = r >= 0 && r < args.h && s >= 0 && s < args.w;
    const A byte = inside ? A(from[(row / args.h * args.h + r) * args.w + s]) : A(0);
    if constexpr (std::is_same_v<T, int32_t>) {  // codes are unchanged; outside the image: padding
      to[j] = inside ? int32_t(byte) : int32_t(gather.shift);
    } else {
      to[j] = T(fma(byte, A(gather.scale), A(gather.shift)));
    }
  }
}

bool aligned(const void* p, size_t to) { return reinterpret_cast<uintptr_t>(p) % to == 0; }

}  // namespace

template <typename T>
cudaError_t launch_gather(const GatherArgs& args, cudaStream_t stream) {
  if (args.n == 0) return cudaSuccess;
  const bool floats = args.floats != nullptr;
  const bool packed = args.sample_size % 4 == 0 && aligned(args.y, 16) &&
                      (floats ? aligned(args.floats, 16) : aligned(args.set, 4));
  const int64_t along = args.set == nullptr && !floats ? args.label_size
                        : packed                       ? args.sample_size / 4
                                                       : args.sample_size;
  // As many threads per sample as it has packs, in powers of two, and enough samples to fill the
  // block.
  int x = 1;
  while (x < kThreads && x < along) x *= 2;
  const dim3 block(x, kThreads / x);
  const auto blocks = unsigned((args.n + block.y - 1) / block.y);
  if (floats && packed) {
    gather_floats_kernel<T, 4><<<blocks, block, 0, stream>>>(args);
  } else if (floats) {
    gather_floats_kernel<T, 1><<<blocks, block, 0, stream>>>(args);
  } else if (packed) {
    gather_kernel<T, 4><<<blocks, block, 0, stream>>>(args);
  } else {
    gather_kernel<T, 1><<<blocks, block, 0, stream>>>(args);
  }
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch_gather_augment(const AugmentArgs& args, cudaStream_t stream) {
  if (args.gather.n == 0) return cudaSuccess;
  gather_augment_kernel<T><<<unsigned(args.gather.n), kThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

#define RIDGELINE_LAUNCH_GATHER(T)                                        \
  template cudaError_t launch_gather<T>(const GatherArgs&, cudaStream_t); \
  template cudaError_t launch_gather_augment<T>(const AugmentArgs&, cudaStream_t);
RIDGELINE_CUDA_FOR_FLOATS(RIDGELINE_LAUNCH_GATHER)
RIDGELINE_LAUNCH_GATHER(int32_t)  // bytes as codes

}  // namespace ridgeline::cuda
