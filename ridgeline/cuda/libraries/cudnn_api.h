#pragma once

#include "ridgeline/cuda/libraries/cudnn.h"

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
  decltype(&cudnnBackendCreateDescriptor) backend_create = nullptr;
  decltype(&cudnnBackendDestroyDescriptor) backend_destroy = nullptr;
  decltype(&cudnnBackendSetAttribute) backend_set = nullptr;
  decltype(&cudnnBackendGetAttribute) backend_get = nullptr;
  decltype(&cudnnBackendFinalize) backend_finalize = nullptr;
  decltype(&cudnnBackendExecute) backend_execute = nullptr;
  decltype(&cudnnSetTensorNdDescriptor) tensor_set_nd = nullptr;
  decltype(&cudnnCreateDropoutDescriptor) dropout_create = nullptr;
  decltype(&cudnnDestroyDropoutDescriptor) dropout_destroy = nullptr;
  decltype(&cudnnSetDropoutDescriptor) dropout_set = nullptr;
  decltype(&cudnnCreateRNNDescriptor) rnn_create = nullptr;
  decltype(&cudnnDestroyRNNDescriptor) rnn_destroy = nullptr;
  decltype(&cudnnSetRNNDescriptor_v8) rnn_set = nullptr;
  decltype(&cudnnBuildRNNDynamic) rnn_build_dynamic = nullptr;
  decltype(&cudnnCreateRNNDataDescriptor) rnn_data_create = nullptr;
  decltype(&cudnnDestroyRNNDataDescriptor) rnn_data_destroy = nullptr;
  decltype(&cudnnSetRNNDataDescriptor) rnn_data_set = nullptr;
  decltype(&cudnnGetRNNWeightSpaceSize) rnn_weight_size = nullptr;
  decltype(&cudnnGetRNNWeightParams) rnn_weight_params = nullptr;
  decltype(&cudnnGetRNNTempSpaceSizes) rnn_temp_sizes = nullptr;
  decltype(&cudnnRNNForward) rnn_forward = nullptr;
  decltype(&cudnnRNNBackwardData_v8) rnn_backward_data = nullptr;
  decltype(&cudnnRNNBackwardWeights_v8) rnn_backward_weights = nullptr;
#endif
};

}  // namespace ridgeline::cuda
