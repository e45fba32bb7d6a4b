#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "ridgeline/cuda/plain/mixed_operand.h"

// Convolutions over channels-last signals of many channels, for inference.
namespace ridgeline::cuda {

// Signals are rows of channels, [n * pitch, channels]: position t of sample i is row i * pitch + t.
// Rows past a sample's length hold no meaningful values. With a fixed pitch, each tap of a
// convolution is a tile shifted by a row, and a tile may span several samples.
RIDGELINE_MIXED_HD constexpr int signal_pitch(int64_t length) {
  return int((length + 15) / 16 * 16);
}

// y = act(b + sum over taps and channels), then the maximum of each `pool` rows (1 or 3). The pitch
// of y is the pitch of x divided by `pool`. In float the factors are rounded to tf32.
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

// Why the kernel does not take such a convolution; "" if it does.
std::string refuse_conv1d(int pitch, int channels, int out, int taps, int pool, size_t width);
// The bytes for the weights transposed to [taps, out, channels].
size_t conv1d_workspace(int channels, int out, int taps, size_t width);
// Makes the tensor maps. The returned function transposes the weights and convolves. sm_90a.
template <typename T>
std::function<cudaError_t(cudaStream_t)> prepare_conv1d(const Conv1dArgs<T>& args, void* workspace,
                                                        int sms);

}  // namespace ridgeline::cuda
