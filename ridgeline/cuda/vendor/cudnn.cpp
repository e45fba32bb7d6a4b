#include "ridgeline/cuda/vendor/cudnn.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "ridgeline/core/error.h"
#include "ridgeline/cuda/vendor/conv_plans.h"
#include "ridgeline/cuda/vendor/cudnn_api.h"

namespace ridgeline::cuda {

#ifdef RIDGELINE_HAVE_CUDNN

namespace {

// The second is where the toolkit may have it when the loader has not been told.
constexpr const char* kLibraries[] = {"libcudnn.so.9", "/usr/local/cuda/lib64/libcudnn.so.9",
                                      "/usr/local/cuda/lib/libcudnn.so.9"};

std::string fill(Cudnn::Api& api, void* library) {
  std::string missing;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    if (function == nullptr && missing.empty()) missing = name;
  };
  find(api.create, "cudnnCreate");
  find(api.destroy, "cudnnDestroy");
  find(api.version, "cudnnGetVersion");
  find(api.status_text, "cudnnGetErrorString");
  find(api.set_stream, "cudnnSetStream");
  find(api.tensor_create, "cudnnCreateTensorDescriptor");
  find(api.tensor_destroy, "cudnnDestroyTensorDescriptor");
  find(api.backend_create, "cudnnBackendCreateDescriptor");
  find(api.backend_destroy, "cudnnBackendDestroyDescriptor");
  find(api.backend_set, "cudnnBackendSetAttribute");
  find(api.backend_get, "cudnnBackendGetAttribute");
  find(api.backend_finalize, "cudnnBackendFinalize");
  find(api.backend_execute, "cudnnBackendExecute");
  find(api.tensor_set_nd, "cudnnSetTensorNdDescriptor");
  find(api.dropout_create, "cudnnCreateDropoutDescriptor");
  find(api.dropout_destroy, "cudnnDestroyDropoutDescriptor");
  find(api.dropout_set, "cudnnSetDropoutDescriptor");
  find(api.rnn_create, "cudnnCreateRNNDescriptor");
  find(api.rnn_destroy, "cudnnDestroyRNNDescriptor");
  find(api.rnn_set, "cudnnSetRNNDescriptor_v8");
  find(api.rnn_build_dynamic, "cudnnBuildRNNDynamic");
  find(api.rnn_data_create, "cudnnCreateRNNDataDescriptor");
  find(api.rnn_data_destroy, "cudnnDestroyRNNDataDescriptor");
  find(api.rnn_data_set, "cudnnSetRNNDataDescriptor");
  find(api.rnn_weight_size, "cudnnGetRNNWeightSpaceSize");
  find(api.rnn_weight_params, "cudnnGetRNNWeightParams");
  find(api.rnn_temp_sizes, "cudnnGetRNNTempSpaceSizes");
  find(api.rnn_forward, "cudnnRNNForward");
  find(api.rnn_backward_data, "cudnnRNNBackwardData_v8");
  find(api.rnn_backward_weights, "cudnnRNNBackwardWeights_v8");
  return missing;
}

}  // namespace

Cudnn::Cudnn() : api_(new Api) { open(); }

void Cudnn::open() {
  for (const char* name : kLibraries) {
    library_ = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library_ != nullptr) break;
  }
  if (library_ == nullptr) {
    refusal_ = "libcudnn.so.9 was not found; put it on LD_LIBRARY_PATH";
    return;
  }
  if (const std::string missing = fill(*api_, library_); !missing.empty()) {
    refusal_ = fmt::format("libcudnn.so.9 has no {}", missing);
  }
}

void* Cudnn::handle() const {
  if (handle_ != nullptr) return handle_;
  cudnnHandle_t handle = nullptr;
  const cudnnStatus_t status = api_->create(&handle);
  if (status != CUDNN_STATUS_SUCCESS) {
    throw_error(ErrorKind::device, "cuDNN does not start: {}; leave its rows out or mend it",
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
  // The library stays open: closing it under a live CUDA context is not safe.
}

std::string Cudnn::version() const {
  if (!refusal_.empty()) return "absent";
  const size_t version = api_->version();  // 91900 -> 9.19.0
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

#else

Cudnn::Cudnn() { open(); }
void Cudnn::open() { refusal_ = "this build has no cuDNN: its headers were not found"; }
Cudnn::~Cudnn() = default;
void* Cudnn::handle() const { return nullptr; }
std::string Cudnn::version() const { return "absent"; }

#endif

}  // namespace ridgeline::cuda
