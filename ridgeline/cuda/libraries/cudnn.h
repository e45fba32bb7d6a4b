#pragma once

#include <map>
#include <memory>
#include <string>

namespace ridgeline::cuda {

class ConvPlans;
struct ConvProblem;

// NVIDIA's library of convolutions and recurrent layers, opened when first wanted and started when
// first used, which takes longer. A build without its headers, or a machine without the library,
// has a refusal and nothing else.
class Cudnn {
 public:
  Cudnn();
  ~Cudnn();
  Cudnn(const Cudnn&) = delete;
  Cudnn& operator=(const Cudnn&) = delete;

  const std::string& refusal() const { return refusal_; }  // why it cannot be used; "" when it can
  std::string version() const;                             // "9.19.0", or "absent"

  struct Api;                                               // cudnn_api.h
  const Api& api() const { return *api_; }                  // only without refusal
  void* handle() const;                                     // a cudnnHandle_t; throws Error(device)
  ConvPlans& conv_plans(const ConvProblem& problem) const;  // made once for each problem

 private:
  std::string refusal_;
  Api* api_ = nullptr;
  mutable void* handle_ = nullptr;
  mutable std::map<std::string, std::shared_ptr<ConvPlans>> conv_plans_;
};

}  // namespace ridgeline::cuda
