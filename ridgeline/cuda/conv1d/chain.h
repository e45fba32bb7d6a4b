#pragma once

#include <array>

#include "ridgeline/cuda/conv1d/conv1d.h"

namespace ridgeline::cuda {

constexpr int kMostChained = 4;

// A chain of convolutions of 3 taps over 256 channels, with relu after all but the last. The last
// is followed by a normalisation over a sample's (256, positions left) with gamma and beta, relu,
// and the maximum of each three positions. Intermediate values never leave the chip, but are
// rounded to T as if they did.
template <typename T>
struct Conv1dChainArgs {
  int n = 0, length = 0;  // length of x; its pitch is 112
  int layers = 0;
  const T* x = nullptr;                         // [n * 112, 256]
  std::array<const T*, kMostChained> w = {};    // [256, 256, 3]
  std::array<MixedIn<T>, kMostChained> bias{};  // [256] or none
  const T* gamma = nullptr;                     // [256, left]
  const T* beta = nullptr;
  float epsilon = 0;
  T* y = nullptr;  // [n, 256 * (left / 3)]; the positions of a channel are contiguous

  int left() const { return length - 2 * layers; }
};

// Why the kernel does not take such a chain; "" if it does. `length` is the length of x.
std::string refuse_conv1d_chain(int length, int layers);
// The bytes for weights, biases, gamma and beta in the order in which the kernel reads them.
size_t conv1d_chain_workspace(int layers);
// Makes the tensor map. The returned function packs the weights and computes the chain. Halves,
// sm_90a.
template <typename T>
std::function<cudaError_t(cudaStream_t)> prepare_conv1d_chain(const Conv1dChainArgs<T>& args,
                                                              void* workspace, int sms);

}  // namespace ridgeline::cuda
