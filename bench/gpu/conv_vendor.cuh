#pragma once

// cuDNN's convolutions of the 72 x 72 network, through its older API, which also offers transforms;
// our kernels do not use those.

#include <cuda_bf16.h>
#include <cudnn.h>

#include <cstring>
#include <random>

#include "bench/gpu/conv_device.cuh"
#include "ridgeline/cuda/libraries/cudnn.h"

namespace {

using namespace ridgeline::cuda;

class VendorConv {
 public:
  VendorConv(const Cudnn& library, int n, int c, int side, int k, cudnnDataType_t type, bool last,
             cudnnMathType_t math)
      : library_(library),
        elements_x_(size_t(n) * c * side * side),
        elements_y_(size_t(n) * k * (side - 6) * (side - 6)),
        width_(type == CUDNN_DATA_FLOAT ? 4 : 2),
        x_memory_(elements_x_ * width_),
        y_memory_(elements_y_ * width_),
        w_memory_(size_t(k) * c * 49 * width_) {
    const auto layout = last ? CUDNN_TENSOR_NHWC : CUDNN_TENSOR_NCHW;
    cudnnCreateTensorDescriptor(&x_), cudnnCreateTensorDescriptor(&y_),
        cudnnCreateFilterDescriptor(&w_), cudnnCreateConvolutionDescriptor(&conv_);
    cudnnSetTensor4dDescriptor(x_, layout, type, n, c, side, side);
    cudnnSetTensor4dDescriptor(y_, layout, type, n, k, side - 6, side - 6);
    cudnnSetFilter4dDescriptor(w_, type, layout, k, c, 7, 7);
    cudnnSetConvolution2dDescriptor(conv_, 0, 0, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION,
                                    CUDNN_DATA_FLOAT);
    cudnnSetConvolutionMathType(conv_, math);
    fill(x_memory_), fill(w_memory_);
  }
  ~VendorConv() {
    cudnnDestroyTensorDescriptor(x_), cudnnDestroyTensorDescriptor(y_),
        cudnnDestroyFilterDescriptor(w_), cudnnDestroyConvolutionDescriptor(conv_);
  }
  // Algorithms the heuristics offer, with their workspaces.
  std::vector<cudnnConvolutionFwdAlgoPerf_t> offers() const {
    std::vector<cudnnConvolutionFwdAlgoPerf_t> list(16), good;
    int count = 0;
    if (cudnnGetConvolutionForwardAlgorithm_v7(handle(), x_, w_, conv_, y_, 16, &count,
                                               list.data()) != CUDNN_STATUS_SUCCESS) {
      return {};
    }
    for (int i = 0; i < count; ++i) {
      if (list[i].status == CUDNN_STATUS_SUCCESS && list[i].memory < (size_t{6} << 30)) {
        good.push_back(list[i]);
      }
    }
    return good;
  }
  cudnnStatus_t run(const cudnnConvolutionFwdAlgoPerf_t& how, void* workspace) const {
    const float one = 1, zero = 0;
    return cudnnConvolutionForward(handle(), &one, x_, x_memory_.p, w_, w_memory_.p, conv_,
                                   how.algo, workspace, how.memory, &zero, y_, y_memory_.p);
  }

 private:
  cudnnHandle_t handle() const { return static_cast<cudnnHandle_t>(library_.handle()); }
  // Random numbers of moderate size in either type: bytes with exponents near 1.
  void fill(OnDevice<uint8_t>& memory) {
    std::vector<uint8_t> bytes(std::min<size_t>(memory.n, size_t{8} << 20));
    std::mt19937 rng(7);
    for (size_t i = 0; i + width_ <= bytes.size(); i += width_) {
      const float v = float(double(rng()) / 4294967296.0 - 0.5);
      const __nv_bfloat16 h = __float2bfloat16(v);
      std::memcpy(&bytes[i], width_ == 4 ? static_cast<const void*>(&v) : &h, width_);
    }
    for (size_t at = 0; at < memory.n; at += bytes.size()) {
      CHECK_CUDA(cudaMemcpy(memory.p + at, bytes.data(), std::min(bytes.size(), memory.n - at),
                            cudaMemcpyHostToDevice));
    }
  }

  const Cudnn& library_;
  size_t elements_x_, elements_y_, width_;
  OnDevice<uint8_t> x_memory_, y_memory_, w_memory_;
  cudnnTensorDescriptor_t x_ = nullptr, y_ = nullptr;
  cudnnFilterDescriptor_t w_ = nullptr;
  cudnnConvolutionDescriptor_t conv_ = nullptr;
};

}  // namespace
