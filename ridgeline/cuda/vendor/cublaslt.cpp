#include "ridgeline/cuda/vendor/cublaslt.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "ridgeline/cuda/vendor/cublaslt_api.h"

namespace ridgeline::cuda {
namespace {

// The API we use is the same in both; the second of each is where the toolkit puts it when the
// loader has not been told.
constexpr const char* kLibraries[] = {
    "libcublasLt.so.13", "/usr/local/cuda/lib64/libcublasLt.so.13", "libcublasLt.so.12",
    "/usr/local/cuda/lib64/libcublasLt.so.12"};

template <typename F>
void look_up(void* library, F& function, const char* name, std::string& missing) {
  function = reinterpret_cast<F>(dlsym(library, name));
  if (function == nullptr && missing.empty()) missing = name;
}

std::string fill(CublasLt::Api& api, void* library) {
  std::string missing;
  const auto find = [&](auto& function, const char* name) {
    look_up(library, function, name, missing);
  };
  find(api.create, "cublasLtCreate");
  find(api.destroy, "cublasLtDestroy");
  find(api.version, "cublasLtGetVersion");
  find(api.status_text, "cublasLtGetStatusString");
  find(api.matmul, "cublasLtMatmul");
  find(api.heuristic, "cublasLtMatmulAlgoGetHeuristic");
  find(api.desc_create, "cublasLtMatmulDescCreate");
  find(api.desc_destroy, "cublasLtMatmulDescDestroy");
  find(api.desc_set, "cublasLtMatmulDescSetAttribute");
  find(api.layout_create, "cublasLtMatrixLayoutCreate");
  find(api.layout_destroy, "cublasLtMatrixLayoutDestroy");
  find(api.preference_create, "cublasLtMatmulPreferenceCreate");
  find(api.preference_destroy, "cublasLtMatmulPreferenceDestroy");
  find(api.preference_set, "cublasLtMatmulPreferenceSetAttribute");
  return missing;
}

}  // namespace

CublasLt::CublasLt() : api_(new Api) { open(); }

void CublasLt::open() {
  for (const char* name : kLibraries) {
    library_ = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library_ != nullptr) break;
  }
  if (library_ == nullptr) {
    refusal_ = "libcublasLt.so was not found; put it on LD_LIBRARY_PATH";
    return;
  }
  if (const std::string missing = fill(*api_, library_); !missing.empty()) {
    refusal_ = fmt::format("libcublasLt.so has no {}", missing);
    return;
  }
  cublasLtHandle_t handle = nullptr;
  const cublasStatus_t status = api_->create(&handle);
  if (status != CUBLAS_STATUS_SUCCESS) {
    refusal_ = fmt::format("cuBLASLt does not start: {}", api_->status_text(status));
    return;
  }
  handle_ = handle;
}

CublasLt::~CublasLt() {
  if (handle_ != nullptr) api_->destroy(static_cast<cublasLtHandle_t>(handle_));
  delete api_;
  // The library stays open: closing it under a live CUDA context is not safe.
}

std::string CublasLt::version() const {
  if (!refusal_.empty()) return "absent";
  const size_t version = api_->version();  // 130002 -> 13.0.2
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace ridgeline::cuda
