#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "ridgeline/cuda/device/cluster.cuh"
#include "ridgeline/cuda/recurrent/batch_parallel.h"
#include "ridgeline/cuda/recurrent/batch_parallel_cluster_mma.cuh"
#include "ridgeline/cuda/recurrent/batch_parallel_fma.cuh"
#include "ridgeline/cuda/recurrent/batch_parallel_mma.cuh"
#include "ridgeline/cuda/recurrent/exchange.cuh"

// Both directions of a batch-parallel pass share this. Product is one of batch_parallel_mma.cuh,
// batch_parallel_cluster_mma.cuh or batch_parallel_fma.cuh; each of its threads applies the gates
// of one unit and sample, or of none.
namespace ridgeline::cuda::recurrent {

__device__ inline int cluster_blocks() {
  uint32_t blocks;
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(blocks));
  return int(blocks);
}

// The shared memory of a block: two buffers of the values that are multiplied, which alternate, so
// that one barrier a timestep suffices; then partial sums; then x.
template <typename Product>
constexpr size_t batch_shared_bytes() {
  return 2 * Product::kSamples * Product::kPitch * sizeof(typename Product::State) +
         Product::kPartialFloats * sizeof(float);
}

template <typename T, typename Product>
class BatchPass {
 public:
  using State = typename Product::State;
  static constexpr int kBufferValues = Product::kSamples * Product::kPitch;

  __device__ BatchPass(const Sequence& s, void* shared)
      : s(s), cluster(Product::kMayCluster ? cluster_blocks() : 1), rank(int(cluster_rank())) {
    buffers = static_cast<State*>(shared);
    partials = reinterpret_cast<float*>(buffers + 2 * kBufferValues);
    inputs = reinterpret_cast<State*>(partials + Product::kPartialFloats);
    first_sample = int(blockIdx.x) / cluster * Product::kSamples;
    first_unit = rank * Product::kUnits;
    local = product.sample();
    unit = first_unit + product.unit();
    sample = first_sample + local;
    has = product.has() && unit < s.hidden && sample < s.batch;
    length = has ? s.length(sample) : 0;
  }

  __device__ State* buffer(int step) const { return buffers + (step & 1) * kBufferValues; }
  // Writes a value of this thread's sample, if `wanted`, for the product of all blocks of the
  // cluster. Called by all threads.
  __device__ void publish(State* to, int place, float v, bool wanted) const {
    State* at = to + local * Product::kPitch + place;
    if constexpr (sizeof(State) == sizeof(float)) {
      if (wanted) send(at, v);
    } else if constexpr (Product::kMayCluster) {
      product.send(at, v, wanted);
    } else {
      if (wanted) *at = State(v);
    }
  }
  // Writes to the same address in the shared memory of all blocks of the cluster.
  __device__ void send(float* to, float v) const {
    if (cluster == 1) {
      *to = v;
      return;
    }
    const uint32_t address = shared_address(to);
    for (int block = 0; block < cluster; ++block) {
      asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(cluster_address(address, block)), "f"(v)
                   : "memory");
    }
  }
  __device__ void sync() const {
    if (cluster == 1) {
      __syncthreads();
    } else {
      cluster_sync();
    }
  }
  // Clears both buffers; places that are never written have weights of zero.
  __device__ void clear() const {
    for (int i = int(threadIdx.x); i < 2 * kBufferValues; i += Product::kThreads) {
      buffers[i] = State(0.0f);
    }
  }
  __device__ bool live(int step) const { return step < length; }
  // The index in [B, T, D] of this thread's sample.
  __device__ int place(int step) const { return row(step) * s.directions + s.direction; }
  __device__ int row(int step) const { return sample * s.steps + s.time(step, length); }
  // This thread's part of a state [B, H], which may be null.
  __device__ float state_of(const T* all) const {
    return has && all != nullptr ? float(all[int64_t(sample) * s.hidden + unit]) : 0.0f;
  }
  __device__ void store_state(T* all, float v) const {
    if (has && all != nullptr) all[int64_t(sample) * s.hidden + unit] = T(v);
  }

  const Sequence s;
  const int cluster, rank;
  State *buffers, *inputs;
  float* partials;
  int first_sample, first_unit;
  int local, unit, sample;  // of this thread, whose sample is `local` in the block
  bool has;                 // whether there are such a unit and sample
  int length;               // of the sample; 0 if there is none
  Product product;
};

constexpr size_t kMostPlainShared = 48 << 10;  // per block, without an attribute

// Launches a GPU function in clusters of layout.cluster blocks.
inline cudaError_t launch_batch_parallel(const void* kernel, const BatchParallelLayout& layout,
                                         int threads, int batch, void* params,
                                         cudaStream_t stream) {
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = unsigned(layout.cluster);
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(unsigned(layout.blocks(batch)));
  config.blockDim = dim3(unsigned(threads));
  config.dynamicSmemBytes = layout.shared_bytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = layout.cluster > 1 ? 1 : 0;
  void* arguments[] = {params};
  return cudaLaunchKernelExC(&config, kernel, arguments);
}

// The padded number of hidden units, or 0 if there is no such form: the weights of 64 or 128 units
// fit in a block (128 units of an LSTM in halves only), those of 256 in a small cluster (of a cell
// with one gate, in halves, in a block).
constexpr int batch_places(Cell cell, int planes, int hidden) {
  const int places = hidden <= 64 ? 64 : hidden <= 128 ? 128 : 256;
  if (hidden > 256) return 0;
  return places == 64 && planes == 1 && cell_gates(cell) == 1 ? 128 : places;
}

// The units per block and the blocks per cluster of fp32.
constexpr int fma_units(Cell cell, int places) {
  const int gates = cell_gates(cell);
  if (places == 64) return 64;
  if (places == 128) return gates == 4 ? 64 : 128;
  return gates == 4 ? 32 : gates == 3 ? 64 : 128;
}

}  // namespace ridgeline::cuda::recurrent
