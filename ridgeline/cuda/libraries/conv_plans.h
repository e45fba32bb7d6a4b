#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "ridgeline/core/dtype.h"
#include "ridgeline/cuda/libraries/cudnn.h"
#include "ridgeline/ops/conv.h"

namespace ridgeline::cuda {

enum class ConvPass { forward, grad_x, grad_w };

// A pass over n images, and the element-wise ops that follow it: bias, addend, relu. x, w and y
// stand for tensors of their shapes: in a gradient pass, the gradient that is written takes the
// place of its value.
struct ConvProblem {
  ConvPass pass = ConvPass::forward;
  Conv2dShape shape;
  int64_t n = 0;
  DType dtype = DType::fp32;    // of the tensors that are read
  DType written = DType::fp32;  // of the tensor that is written
  std::optional<DType> bias;    // added to y before it is rounded
  bool addend = false;          // adds another tensor of the same shape and type
  bool relu = false;            // applies relu to the sum, before it is rounded
  bool relu_first = false;      // applies relu before the addend is added instead
  bool channels_last = false;   // for images and filters alike
  bool exact = true;            // fp32 factors are used in full: no tf32
  bool repeats = true;          // the same bits every time: no atomics
};

std::string to_string(const ConvProblem& problem);

// The operands of a pass, as in ConvProblem.
struct ConvOperands {
  const void* x = nullptr;
  const void* w = nullptr;
  const void* y = nullptr;
  const void* bias = nullptr;
  const void* addend = nullptr;
};

// cuDNN's engines for a problem, in the order in which its heuristics rank them. Only those are
// included whose results are sums of products (no transforms) and repeat bit for bit, unless the
// problem allows otherwise. Each is built when it is first used, which compiles some of them.
class ConvPlans {
 public:
  ConvPlans(const Cudnn& library, const ConvProblem& problem);
  ~ConvPlans();

  // The workspace of engine `number` in bytes, aligned to kAlignment; nothing if there are fewer
  // engines.
  std::optional<size_t> workspace(int number);
  static constexpr size_t kAlignment = 256;

  // A call of engine `number` on these operands.
  using Call = std::function<void(cudaStream_t)>;
  Call call(int number, const ConvOperands& operands, void* workspace, const std::string& what);

 private:
  struct Parts;
  std::shared_ptr<Parts> parts_;
};

}  // namespace ridgeline::cuda
