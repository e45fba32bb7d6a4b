#include "ridgeline/cuda/conv1d/variants.cuh"

namespace ridgeline::cuda {

std::string refuse_conv1d(int pitch, int channels, int out, int taps, int pool, size_t width) {
  if (taps != 3 && taps != 7) return "takes kernels of 3 and 7";
  if (pool != 1 && (pool != 3 || pitch % 3 != 0))
    return "takes pools of 3 over lengths divisible by 3";
  if (channels * int(width) % kStageRowBytes != 0) return "takes input channels by 128 bytes";
  if (out % 256 != 0) return "takes output channels by 256";
  return {};
}

size_t conv1d_workspace(int channels, int out, int taps, size_t width) {
  return size_t(channels) * size_t(out) * size_t(taps) * width;
}

template std::function<cudaError_t(cudaStream_t)> prepare_conv1d(const Conv1dArgs<float>&, void*,
                                                                 int);
}  // namespace ridgeline::cuda
