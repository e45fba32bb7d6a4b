#pragma once

#include "ridgeline/cuda/device/cluster.cuh"
#include "ridgeline/cuda/plain/index.cuh"
#include "ridgeline/cuda/plain/mixed_operand.h"

namespace ridgeline::cuda {

// The values that a thread loads at once: 16 bytes if the alignment of rows allows it.
template <typename T, int kEach>
struct alignas(kEach * sizeof(T)) Numbers {
  T values[kEach];
};

// kEach values of an optional operand from `at` on, a multiple of kEach.
template <int kEach, typename T>
__device__ void load_mixed(const MixedIn<T>& from, int64_t at, Accumulated<T> (&to)[kEach]) {
  using A = Accumulated<T>;
  if (from.is_accumulator) {
    constexpr int kRun = 16 / int{sizeof(A)} < kEach ? 16 / int{sizeof(A)} : kEach;
#pragma unroll
    for (int e = 0; e < kEach; e += kRun) {
      using Run = Numbers<A, kRun>;
      const Run run = *reinterpret_cast<const Run*>(static_cast<const A*>(from.data) + at + e);
#pragma unroll
      for (int j = 0; j < kRun; ++j) to[e + j] = run.values[j];
    }
  } else {
    using Run = Numbers<T, kEach>;
    const Run run = *reinterpret_cast<const Run*>(static_cast<const T*>(from.data) + at);
#pragma unroll
    for (int e = 0; e < kEach; ++e) to[e] = A(run.values[e]);
  }
}

template <typename A>
__device__ A load_from(const A* slot, uint32_t rank) {
  const uint32_t address = cluster_address(shared_address(slot), rank);
  A value;
  if constexpr (sizeof(A) == 8) {
    asm volatile("ld.shared::cluster.f64 %0, [%1];" : "=d"(value) : "r"(address) : "memory");
  } else {
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory");
  }
  return value;
}

// The sum over the threads of a cluster of kBlocks blocks of up to kMostThreads threads; all
// threads receive it. `slot` is in shared memory and used by this sum only.
template <int kBlocks, int kMostThreads, typename A>
__device__ A cluster_sum(A value, A* slot) {
  const A mine = block_sum<kMostThreads>(value);
  if (threadIdx.x == 0) *slot = mine;
  cluster_sync();
  A sum = A(0);
  for (uint32_t rank = 0; rank < kBlocks; ++rank) sum += load_from(slot, rank);
  return sum;
}

// Launches kernel<<<groups * kBlocks>>> in clusters of kBlocks blocks.
template <int kBlocks, typename Args>
cudaError_t launch_clusters(void (*kernel)(Args), int64_t groups, int threads, size_t shared,
                            const Args& args, cudaStream_t stream) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(unsigned(groups) * kBlocks);
  config.blockDim = dim3(unsigned(threads));
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  cudaLaunchAttribute cluster[1];
  cluster[0].id = cudaLaunchAttributeClusterDimension;
  cluster[0].val.clusterDim = {kBlocks, 1, 1};
  config.attrs = cluster;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, args);
}

}  // namespace ridgeline::cuda
