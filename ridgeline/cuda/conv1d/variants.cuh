#pragma once

#include "ridgeline/cuda/conv1d/wgmma.cuh"

namespace ridgeline::cuda {

template <typename T>
std::function<cudaError_t(cudaStream_t)> prepare_conv1d(const Conv1dArgs<T>& args, void* workspace,
                                                        int sms) {
  const auto with = [&]<int kTaps, int kPool>() {
    return prepare_conv1d_tile<T, Conv1dTile<T, kTaps, kPool>>(args, workspace, sms);
  };
  if (args.taps == 7)
    return args.pool == 3 ? with.template operator()<7, 3>() : with.template operator()<7, 1>();
  return args.pool == 3 ? with.template operator()<3, 3>() : with.template operator()<3, 1>();
}

}  // namespace ridgeline::cuda
