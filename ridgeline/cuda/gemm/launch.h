#pragma once

#include <cuda_runtime.h>

#include "ridgeline/core/error.h"
#include "ridgeline/cuda/gemm/problem.h"

namespace ridgeline::cuda {

inline void check_gemm_call(cudaError_t error, const char* what, int m, int n, int k) {
  if (error == cudaSuccess) return;
  throw_error(ErrorKind::device, "gemm {} x {} x {}: {}: {}", m, n, k, what,
              cudaGetErrorString(error));
}

// Lets a GPU function use this much dynamic shared memory, and requests the SM's maximum as shared
// memory, so that a second block fits whatever the driver would choose (on an H200 this made no
// difference).
template <typename Kernel>
void set_shared_memory(Kernel kernel, int bytes, const GemmProblem& p) {
  check_gemm_call(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
                  "shared memory", p.m, p.n, p.k);
  check_gemm_call(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                       cudaSharedmemCarveoutMaxShared),
                  "shared memory", p.m, p.n, p.k);
}

inline int ceil_div(int a, int b) { return (a + b - 1) / b; }

// A launch with the cluster size and dependency attributes that <<<>>> cannot express.
struct LaunchConfig {
  LaunchConfig(dim3 blocks, int threads, int smem, int cluster, bool overlap_previous)
      : blocks_(blocks), threads_(threads), smem_(smem) {
    if (cluster > 1) {
      attributes_[count_].id = cudaLaunchAttributeClusterDimension;
      attributes_[count_++].val.clusterDim = {unsigned(cluster), 1, 1};
    }
    if (overlap_previous) {
      attributes_[count_].id = cudaLaunchAttributeProgrammaticStreamSerialization;
      attributes_[count_++].val.programmaticStreamSerializationAllowed = 1;
    }
  }
  // The result points into this object and is valid while the object is not moved.
  cudaLaunchConfig_t on(cudaStream_t stream) {
    cudaLaunchConfig_t config = {};
    config.gridDim = blocks_;
    config.blockDim = dim3(threads_);
    config.dynamicSmemBytes = smem_;
    config.stream = stream;
    config.attrs = attributes_;
    config.numAttrs = count_;
    return config;
  }

 private:
  dim3 blocks_;
  int threads_, smem_;
  cudaLaunchAttribute attributes_[2] = {};
  unsigned count_ = 0;
};

}  // namespace ridgeline::cuda
