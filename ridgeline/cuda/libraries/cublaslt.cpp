#include "ridgeline/cuda/libraries/cublaslt.h"

#include <fmt/format.h>

#include "ridgeline/core/shared_library.h"
#include "ridgeline/cuda/libraries/cublaslt_api.h"

namespace ridgeline::cuda {
namespace {

// The API we use is the same in both versions. The second path of each version is where the toolkit
// installs it, for when the loader's search path does not include that folder.
std::string fill(CublasLt::Api& api) {
  SharedLibrary library("libcublasLt.so",
                        {"libcublasLt.so.13", "/usr/local/cuda/lib64/libcublasLt.so.13",
                         "libcublasLt.so.12", "/usr/local/cuda/lib64/libcublasLt.so.12"});
  library.find(api.create, "cublasLtCreate");
  library.find(api.destroy, "cublasLtDestroy");
  library.find(api.version, "cublasLtGetVersion");
  library.find(api.status_text, "cublasLtGetStatusString");
  library.find(api.matmul, "cublasLtMatmul");
  library.find(api.heuristic, "cublasLtMatmulAlgoGetHeuristic");
  library.find(api.desc_create, "cublasLtMatmulDescCreate");
  library.find(api.desc_destroy, "cublasLtMatmulDescDestroy");
  library.find(api.desc_set, "cublasLtMatmulDescSetAttribute");
  library.find(api.layout_create, "cublasLtMatrixLayoutCreate");
  library.find(api.layout_destroy, "cublasLtMatrixLayoutDestroy");
  library.find(api.preference_create, "cublasLtMatmulPreferenceCreate");
  library.find(api.preference_destroy, "cublasLtMatmulPreferenceDestroy");
  library.find(api.preference_set, "cublasLtMatmulPreferenceSetAttribute");
  return library.refusal();
}

}  // namespace

CublasLt::CublasLt() : api_(new Api) {
  refusal_ = fill(*api_);
  if (!refusal_.empty()) return;
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
}

std::string CublasLt::version() const {
  if (!refusal_.empty()) return "absent";
  const size_t version = api_->version();  // 130002 -> 13.0.2
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace ridgeline::cuda
