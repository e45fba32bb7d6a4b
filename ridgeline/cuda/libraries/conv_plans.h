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

// A pass over n images, and what follows it element by element: bias, addend, relu. x, w and y
// stand for what has their shape: the gradient that is written takes the place of its value.
struct ConvProblem {
  ConvPass pass = ConvPass::forward;
  Conv2dShape shape;
  int64_t n = 0;
  DType dtype = DType::fp32;    // of what is read
  DType written = DType::fp32;  // of what is written
  std::optional<DType> bias;    // added to y before it is rounded
  bool addend = false;          // another tensor of the same shape and type is added
  bool relu = false;            // of the sum, before it is rounded
  bool relu_first = false;      // of what comes before the addend instead
  bool channels_last = false;   // of images and filters alike
  bool exact = true;            // fp32 factors stay as they are: no tf32
  bool repeats = true;          // the same bits every time: no atomics
};

std::string to_string(const ConvProblem& problem);

// Where a pass finds its operands, as in ConvProblem.
struct ConvOperands {
  const void* x = nullptr;
  const void* w = nullptr;
  const void* y = nullptr;
  const void* bias = nullptr;
  const void* addend = nullptr;
};

// cuDNN's ways to compute a problem, in the order of its own expectation; as far as results are
// sums of products (no transforms), which repeat bit for bit unless the problem says otherwise.
// Each is built when first asked for: some are compiled then.
class ConvPlans {
 public:
  ConvPlans(const Cudnn& library, const ConvProblem& problem);
  ~ConvPlans();

  // Bytes of workspace, aligned to kAlignment, of the number-th way; nothing when there are fewer.
  std::optional<size_t> workspace(int number);
  static constexpr size_t kAlignment = 256;

  // A call of the number-th way on these operands.
  using Call = std::function<void(cudaStream_t)>;
  Call call(int number, const ConvOperands& operands, void* workspace, const std::string& what);

 private:
  struct Parts;
  std::shared_ptr<Parts> parts_;
};

}  // namespace ridgeline::cuda
