#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "ridgeline/cuda/plain/mixed_operand.h"

// Convolutions over channels-last signals of many channels, for inference.
namespace ridgeline::cuda {

// Signals lie as rows of channels, [n * pitch, channels]: sample i's position t is row i * pitch +
// t. Rows past a sample's length mean nothing. A fixed pitch makes each tap of a convolution a tile
// shifted by a row, and a tile may run across samples.
RIDGELINE_MIXED_HD constexpr int signal_pitch(int64_t length) {
  return int((length + 15) / 16 * 16);
}

// y = act(b + sum over taps and channels), then the largest of each `pool` rows (1 or 3). y's pitch
// is x's over pool. In float the factors are rounded to tf32.
template <typename T>
struct Conv1dArgs {
  int n = 0, pitch = 0;  // of x
  int channels = 0, out = 0, taps = 0, pool = 1;
  bool relu = false;
  const T* x = nullptr;  // [n * pitch, channels]
  const T* w = nullptr;  // [out, channels, taps]
  MixedIn<T> bias;       // [out] or none
  T* y = nullptr;        // [n * pitch / pool, out]
};

// "" when the kernel takes such a convolution, else why not.
std::string refuse_conv1d(int pitch, int channels, int out, int taps, int pool, size_t width);
// For the weights transposed to [taps, out, channels].
size_t conv1d_workspace(int channels, int out, int taps, size_t width);
// Makes the tensor maps; what it returns transposes the weights and convolves. sm_90a.
template <typename T>
std::function<cudaError_t(cudaStream_t)> prepare_conv1d(const Conv1dArgs<T>& args, void* workspace,
                                                        int sms);

}  // namespace ridgeline::cuda
