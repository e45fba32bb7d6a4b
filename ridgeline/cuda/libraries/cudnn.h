#pragma once

#include <map>
#include <memory>
#include <string>

namespace ridgeline::cuda {

class ConvPlans;
struct ConvProblem;

// NVIDIA's cuDNN, opened when it is first needed and initialised when it is first used, which takes
// longer. In a build without its headers, or on a machine without the library, it only has a
// refusal.
class Cudnn {
 public:
  Cudnn();
  ~Cudnn();
  Cudnn(const Cudnn&) = delete;
  Cudnn& operator=(const Cudnn&) = delete;

  const std::string& refusal() const { return refusal_; }  // why it cannot be used; "" if it can
  std::string version() const;                             // "9.19.0", or "absent"

  struct Api;                                               // cudnn_api.h
  const Api& api() const { return *api_; }                  // only if refusal() is empty
  void* handle() const;                                     // a cudnnHandle_t; throws Error(device)
  ConvPlans& conv_plans(const ConvProblem& problem) const;  // made once per problem

 private:
  std::string refusal_;
  Api* api_ = nullptr;
  mutable void* handle_ = nullptr;
  mutable std::map<std::string, std::shared_ptr<ConvPlans>> conv_plans_;
};

}  // namespace ridgeline::cuda
