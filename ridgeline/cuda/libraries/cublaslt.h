#pragma once

#include <string>

namespace ridgeline::cuda {

// NVIDIA's cuBLASLt, opened when it is first needed: the tool starts on machines without it, and
// kernels that need it are then refused with the reason.
class CublasLt {
 public:
  CublasLt();
  ~CublasLt();
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  const std::string& refusal() const { return refusal_; }  // why it cannot be used; "" if it can
  std::string version() const;                             // "13.0.2", or "absent"

  struct Api;                               // cublaslt_api.h
  const Api& api() const { return *api_; }  // only if refusal() is empty
  void* handle() const { return handle_; }  // a cublasLtHandle_t

 private:
  std::string refusal_;
  Api* api_ = nullptr;
  void* handle_ = nullptr;
};

}  // namespace ridgeline::cuda
