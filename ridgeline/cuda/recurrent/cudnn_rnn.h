#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <vector>

#include "ridgeline/core/precision.h"
#include "ridgeline/cuda/libraries/cudnn_api.h"
#include "ridgeline/ops/recurrent.h"

#ifdef RIDGELINE_HAVE_CUDNN
namespace ridgeline::cuda {

// cuDNN's descriptors of one recurrent layer, batch first, with all samples of full length. cuDNN
// orders gates as we do. It is not copyable.
class CudnnRnn {
 public:
  CudnnRnn(const Cudnn& library, const Rnn& op, Precision precision, cudnnRNNAlgo_t algorithm,
           bool training);
  ~CudnnRnn();
  CudnnRnn(const CudnnRnn&) = delete;
  CudnnRnn& operator=(const CudnnRnn&) = delete;

  std::string refusal() const;  // why cuDNN does not take the layer; "" if it does
  size_t weight_bytes() const { return weight_bytes_; }
  size_t scratch_bytes() const { return scratch_bytes_; }
  size_t reserve_bytes() const { return reserve_bytes_; }  // 0 unless training

  // The places of a product's weights and bias in cuDNN's memory: those of x by gate, then those of
  // h.
  struct Place {
    void *matrix = nullptr, *bias = nullptr;
  };
  Place place(int direction, int product, void* weights) const;

  // Any state may be null; reserve is for training.
  struct Operands {
    const void *x, *h0, *c0;
    void *y, *hT, *cT;
    void *weights, *scratch, *reserve;
  };
  struct Gradients {
    const void *dy, *dhT, *dcT;
    void *dx, *dh0, *dc0;  // the states may be null
    void* dweights;        // written, in cuDNN's order
  };
  // Both throw Error(device) that names `what`.
  void forward(const Operands& o, cudaStream_t stream, const std::string& what) const;
  void backward(const Operands& o, const Gradients& g, cudaStream_t stream,
                const std::string& what) const;

 private:
  bool ok(cudnnStatus_t status);
  bool describe_sequence(cudnnRNNDataDescriptor_t& to, const RnnShape& s, int64_t width);
  void check(cudnnStatus_t status, const std::string& what) const;

  const Cudnn::Api& api_;
  cudnnHandle_t handle_;
  cudnnDataType_t type_;
  bool training_, lstm_;
  cudnnStatus_t status_ = CUDNN_STATUS_SUCCESS;  // the first failure
  cudnnDropoutDescriptor_t dropout_ = nullptr;
  cudnnRNNDescriptor_t rnn_ = nullptr;
  cudnnRNNDataDescriptor_t x_ = nullptr, y_ = nullptr;
  cudnnTensorDescriptor_t state_ = nullptr, matrix_ = nullptr, bias_ = nullptr;
  size_t weight_bytes_ = 0, scratch_bytes_ = 0, reserve_bytes_ = 0;
};

}  // namespace ridgeline::cuda
#endif
