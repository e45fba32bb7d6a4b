#pragma once

#include "ridgeline/cuda/vendor/cudnn.h"

#ifdef RIDGELINE_HAVE_CUDNN
#include <cudnn.h>
#endif

namespace ridgeline::cuda {

// The functions we call, looked up by name.
struct Cudnn::Api {
#ifdef RIDGELINE_HAVE_CUDNN
  decltype(&cudnnCreate) create = nullptr;
  decltype(&cudnnDestroy) destroy = nullptr;
  decltype(&cudnnGetVersion) version = nullptr;
  decltype(&cudnnGetErrorString) status_text = nullptr;
  decltype(&cudnnSetStream) set_stream = nullptr;
  decltype(&cudnnCreateTensorDescriptor) tensor_create = nullptr;
  decltype(&cudnnDestroyTensorDescriptor) tensor_destroy = nullptr;
  decltype(&cudnnSetTensor4dDescriptor) tensor_set = nullptr;
  decltype(&cudnnCreateFilterDescriptor) filter_create = nullptr;
  decltype(&cudnnDestroyFilterDescriptor) filter_destroy = nullptr;
  decltype(&cudnnSetFilter4dDescriptor) filter_set = nullptr;
  decltype(&cudnnCreateConvolutionDescriptor) conv_create = nullptr;
  decltype(&cudnnDestroyConvolutionDescriptor) conv_destroy = nullptr;
  decltype(&cudnnSetConvolution2dDescriptor) conv_set = nullptr;
  decltype(&cudnnSetConvolutionMathType) conv_set_math = nullptr;
  decltype(&cudnnSetConvolutionGroupCount) conv_set_groups = nullptr;
  decltype(&cudnnGetConvolutionForwardAlgorithm_v7) forward_algorithms = nullptr;
  decltype(&cudnnGetConvolutionBackwardDataAlgorithm_v7) data_algorithms = nullptr;
  decltype(&cudnnGetConvolutionBackwardFilterAlgorithm_v7) filter_algorithms = nullptr;
  decltype(&cudnnConvolutionForward) forward = nullptr;
  decltype(&cudnnConvolutionBackwardData) backward_data = nullptr;
  decltype(&cudnnConvolutionBackwardFilter) backward_filter = nullptr;
  decltype(&cudnnAddTensor) add_tensor = nullptr;
#endif
};

}  // namespace ridgeline::cuda
