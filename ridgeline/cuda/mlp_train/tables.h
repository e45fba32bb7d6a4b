#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace ridgeline::cuda {

// Copies between the tables of a program, which a launch enters at `tick`, and those of mlp_train,
// which begin with its first step.
struct MlpTables {
  // The program's tables.
  int32_t* tick = nullptr;
  const int64_t* first = nullptr;
  const double* lr = nullptr;
  double* loss = nullptr;
  int32_t* correct = nullptr;  // or null
  // The tables of mlp_train.
  int64_t* own_first = nullptr;
  double* own_lr = nullptr;
  const float* own_loss = nullptr;
  const int32_t* own_correct = nullptr;
  int64_t batch = 0;
};

// own_first = first + tick * batch;  own_lr[i] = lr[tick + i]
cudaError_t launch_mlp_enter(const MlpTables& tables, int steps, cudaStream_t stream);

// loss[tick + i] = own_loss[i], and likewise for correct;  tick += steps
cudaError_t launch_mlp_leave(const MlpTables& tables, int steps, cudaStream_t stream);

}  // namespace ridgeline::cuda
