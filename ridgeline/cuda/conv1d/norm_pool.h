#pragma once

#include "ridgeline/cuda/conv1d/conv1d.h"

namespace ridgeline::cuda {

// The end of the last block: normalises rows of channels over all of a sample's `length` rows with
// gamma and beta [channels, length], applies relu, and takes the maximum of each three rows. The
// output is plain, y[n, channels * length / 3], with the positions of a channel contiguous.
template <typename T>
struct NormPoolArgs {
  int n = 0, length = 0, pitch = 0, channels = 0;
  const T* x = nullptr;  // [n * pitch, channels]
  const T* gamma = nullptr;
  const T* beta = nullptr;
  float epsilon = 0;
  T* y = nullptr;
};

std::string refuse_norm_pool(int length, int channels, size_t width);
// The bytes for gamma and beta transposed to [length, channels].
size_t norm_pool_workspace(int length, int channels, size_t width);
template <typename T>
cudaError_t launch_norm_pool(const NormPoolArgs<T>& args, void* workspace, int sms,
                             cudaStream_t stream);

}  // namespace ridgeline::cuda
