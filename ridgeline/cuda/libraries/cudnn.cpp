#include "ridgeline/cuda/libraries/cudnn.h"

#include <fmt/format.h>

#include "ridgeline/core/error.h"
#include "ridgeline/core/shared_library.h"
#include "ridgeline/cuda/libraries/conv_plans.h"
#include "ridgeline/cuda/libraries/cudnn_api.h"

namespace ridgeline::cuda {

#ifdef RIDGELINE_HAVE_CUDNN

namespace {

// The later paths are where the toolkit may have installed it, for when the loader's search path
// does not include them.
std::string fill(Cudnn::Api& api) {
  SharedLibrary library("libcudnn.so.9", {"libcudnn.so.9", "/usr/local/cuda/lib64/libcudnn.so.9",
                                          "/usr/local/cuda/lib/libcudnn.so.9"});
  library.find(api.create, "cudnnCreate");
  library.find(api.destroy, "cudnnDestroy");
  library.find(api.version, "cudnnGetVersion");
  library.find(api.status_text, "cudnnGetErrorString");
  library.find(api.set_stream, "cudnnSetStream");
  library.find(api.tensor_create, "cudnnCreateTensorDescriptor");
  library.find(api.tensor_destroy, "cudnnDestroyTensorDescriptor");
  library.find(api.backend_create, "cudnnBackendCreateDescriptor");
  library.find(api.backend_destroy, "cudnnBackendDestroyDescriptor");
  library.find(api.backend_set, "cudnnBackendSetAttribute");
  library.find(api.backend_get, "cudnnBackendGetAttribute");
  library.find(api.backend_finalize, "cudnnBackendFinalize");
  library.find(api.backend_execute, "cudnnBackendExecute");
  library.find(api.tensor_set_nd, "cudnnSetTensorNdDescriptor");
  library.find(api.dropout_create, "cudnnCreateDropoutDescriptor");
  library.find(api.dropout_destroy, "cudnnDestroyDropoutDescriptor");
  library.find(api.dropout_set, "cudnnSetDropoutDescriptor");
  library.find(api.rnn_create, "cudnnCreateRNNDescriptor");
  library.find(api.rnn_destroy, "cudnnDestroyRNNDescriptor");
  library.find(api.rnn_set, "cudnnSetRNNDescriptor_v8");
  library.find(api.rnn_build_dynamic, "cudnnBuildRNNDynamic");
  library.find(api.rnn_data_create, "cudnnCreateRNNDataDescriptor");
  library.find(api.rnn_data_destroy, "cudnnDestroyRNNDataDescriptor");
  library.find(api.rnn_data_set, "cudnnSetRNNDataDescriptor");
  library.find(api.rnn_weight_size, "cudnnGetRNNWeightSpaceSize");
  library.find(api.rnn_weight_params, "cudnnGetRNNWeightParams");
  library.find(api.rnn_temp_sizes, "cudnnGetRNNTempSpaceSizes");
  library.find(api.rnn_forward, "cudnnRNNForward");
  library.find(api.rnn_backward_data, "cudnnRNNBackwardData_v8");
  library.find(api.rnn_backward_weights, "cudnnRNNBackwardWeights_v8");
  return library.refusal();
}

}  // namespace

Cudnn::Cudnn() : api_(new Api) { refusal_ = fill(*api_); }

void* Cudnn::handle() const {
  if (handle_ != nullptr) return handle_;
  cudnnHandle_t handle = nullptr;
  const cudnnStatus_t status = api_->create(&handle);
  if (status != CUDNN_STATUS_SUCCESS) {
    throw_error(ErrorKind::device,
                "cuDNN does not start: {}; exclude its kernels or fix the installation",
                api_->status_text(status));
  }
  return handle_ = handle;
}

ConvPlans& Cudnn::conv_plans(const ConvProblem& problem) const {
  auto& plans = conv_plans_[to_string(problem)];
  if (plans == nullptr) plans = std::make_shared<ConvPlans>(*this, problem);
  return *plans;
}

Cudnn::~Cudnn() {
  conv_plans_.clear();
  if (handle_ != nullptr) api_->destroy(static_cast<cudnnHandle_t>(handle_));
  delete api_;
}

std::string Cudnn::version() const {
  if (!refusal_.empty()) return "absent";
  const size_t version = api_->version();  // 91900 -> 9.19.0
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

#else

Cudnn::Cudnn() : refusal_("this build has no cuDNN: its headers were not found") {}
Cudnn::~Cudnn() = default;
void* Cudnn::handle() const { return nullptr; }
std::string Cudnn::version() const { return "absent"; }

#endif

}  // namespace ridgeline::cuda
