#include "ridgeline/cuda/mlp_train/tables.h"

namespace ridgeline::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void mlp_enter_kernel(MlpTables tables, int steps) {
  const int32_t tick = *tables.tick;
  if (threadIdx.x == 0) *tables.own_first = *tables.first + tick * tables.batch;
  for (int i = int(threadIdx.x); i < steps; i += kThreads) tables.own_lr[i] = tables.lr[tick + i];
}

__global__ void mlp_leave_kernel(MlpTables tables, int steps) {
  const int32_t tick = *tables.tick;
  for (int i = int(threadIdx.x); i < steps; i += kThreads) {
    tables.loss[tick + i] = double(tables.own_loss[i]);
    if (tables.correct != nullptr) tables.correct[tick + i] = tables.own_correct[i];
  }
  __syncthreads();  // all threads have read the tick
  if (threadIdx.x == 0) *tables.tick = tick + steps;
}

}  // namespace

cudaError_t launch_mlp_enter(const MlpTables& tables, int steps, cudaStream_t stream) {
  mlp_enter_kernel<<<1, kThreads, 0, stream>>>(tables, steps);
  return cudaGetLastError();
}

cudaError_t launch_mlp_leave(const MlpTables& tables, int steps, cudaStream_t stream) {
  mlp_leave_kernel<<<1, kThreads, 0, stream>>>(tables, steps);
  return cudaGetLastError();
}

}  // namespace ridgeline::cuda
