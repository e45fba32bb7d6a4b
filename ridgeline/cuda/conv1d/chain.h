#pragma once

#include <array>

#include "ridgeline/cuda/conv1d/conv1d.h"

namespace ridgeline::cuda {

constexpr int kMostChained = 4;

// Convolutions of 3 taps over 256 channels one after the other, relu after all but the last, which
// is normalised over a sample's (256, positions left) with gamma and beta, relu, and the largest of
// each three positions: what lies between them never leaves the chip. Results between convolutions
// are rounded to T, as if they did.
template <typename T>
struct Conv1dChainArgs {
  int n = 0, length = 0;  // of x, whose pitch is 112
  int layers = 0;
  const T* x = nullptr;                         // [n * 112, 256]
  std::array<const T*, kMostChained> w = {};    // [256, 256, 3]
  std::array<MixedIn<T>, kMostChained> bias{};  // [256] or none
  const T* gamma = nullptr;                     // [256, left]
  const T* beta = nullptr;
  float epsilon = 0;
  T* y = nullptr;  // [n, 256 * (left / 3)], the positions of a channel side by side

  int left() const { return length - 2 * layers; }
};

// "" when the kernel takes such a chain, else why not. `length` is that of x.
std::string refuse_conv1d_chain(int length, int layers);
// For weights, biases, gamma and beta in the order in which the kernel reads them.
size_t conv1d_chain_workspace(int layers);
// Makes the tensor map; what it returns arranges the weights and computes. Halves, sm_90a.
template <typename T>
std::function<cudaError_t(cudaStream_t)> prepare_conv1d_chain(const Conv1dChainArgs<T>& args,
                                                              void* workspace, int sms);

}  // namespace ridgeline::cuda
