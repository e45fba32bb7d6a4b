#pragma once

// Code that the launchers of this folder share.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "ridgeline/cuda/mlp_train/batch_tiles.h"
#include "ridgeline/cuda/mlp_train/mlp_train.h"

namespace ridgeline::cuda::mlp {

struct DeviceLimits {
  int blocks;           // SMs
  size_t shared_bytes;  // available per block
  int generation;       // major compute capability
};
cudaError_t device_limits(DeviceLimits* limits);

cudaError_t launch_cluster_replicated(const MlpTrainArgs& args, const MlpTrainLayout& layout,
                                      void* workspace, cudaStream_t stream);
cudaError_t launch_grid_sharded(const MlpTrainArgs& args, const MlpTrainLayout& layout,
                                void* workspace, cudaStream_t stream);
cudaError_t launch_weight_streaming(const MlpTrainArgs& args, const MlpTrainLayout& layout,
                                    void* workspace, cudaStream_t stream);

// Calls f(T{}, sample tiles, masters), the last two as integral constants. A function is
// instantiated for each combination; RIDGELINE_MLP_TRAIN_BRIEF leaves out all but fp16 and batches
// up to 32, for a quick build.
template <typename F>
cudaError_t dispatch(const MlpTrainShape& shape, F&& f) {
  const auto by_masters = [&](auto half, auto samples) -> cudaError_t {
    return shape.masters ? f(half, samples, std::true_type{}) : f(half, samples, std::false_type{});
  };
  const auto by_samples = [&](auto half) -> cudaError_t {
    switch (sample_tiles(shape.batch)) {
      case 2:
        return by_masters(half, std::integral_constant<int, 2>{});
#ifndef RIDGELINE_MLP_TRAIN_BRIEF
      case 4:
        return by_masters(half, std::integral_constant<int, 4>{});
#endif
      default:
        return cudaErrorNotSupported;
    }
  };
#ifdef RIDGELINE_MLP_TRAIN_BRIEF
  return shape.half == DType::fp16 ? by_samples(__half{}) : cudaErrorNotSupported;
#else
  return shape.half == DType::fp16 ? by_samples(__half{}) : by_samples(__nv_bfloat16{});
#endif
}

}  // namespace ridgeline::cuda::mlp
