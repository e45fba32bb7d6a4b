#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace ridgeline::cuda {

// The functions of LossFn (ops/loss.h), in the same order; nvcc cannot compile that header.
enum class ElementLossFn : int { mae, huber, bce_with_logits, quantile };

// A loss over the rows of x[n, classes], its gradient, or both from one read of x.
template <typename T>
struct LossArgs {
  const T* x = nullptr;
  const int32_t* label = nullptr;  // [n], or
  const T* target = nullptr;       // [n, classes], mean square error only
  T* dx = nullptr;                 // null if no gradient is wanted
  const int32_t* tick = nullptr;
  double* loss = nullptr;      // [repeats]; null if only the gradient is wanted
  int32_t* correct = nullptr;  // [repeats] or null
  int64_t n = 0, classes = 0;
  double loss_scale = 1, grad_scale = 1;
  const double* grad_factor = nullptr;  // [1], multiplies the gradient as well; or null
  // Weights of the classes, or of the columns of an element-wise loss, which repeat; may be null.
  const double* weights = nullptr;
  int64_t weight_count = 1;
  // One for each `timesteps` rows, a factor of their losses and gradients; may be null.
  const T* sample_weights = nullptr;
  int64_t timesteps = 1;
  double smoothing = 0;                // for cross-entropy
  const double* row_factor = nullptr;  // set by the launch
  ElementLossFn fn = ElementLossFn::mae;
  double delta = 1;            // for huber
  int64_t target_columns = 0;  // of `target`, in an element-wise loss
};

// Scratch for the sums of several blocks.
size_t loss_workspace(int64_t n);
size_t weighted_xent_workspace(int64_t n);

// loss[tick] = loss_scale * sum_r (logsumexp(x[r]) - x[r, label[r]]);
// dx = grad_scale * (softmax(x) - onehot)
template <typename T>
cudaError_t launch_softmax_xent(const LossArgs<T>& args, void* workspace, cudaStream_t stream);

// Cross-entropy with class and sample weights and label smoothing; see SoftmaxXent of ops/loss.h.
template <typename T>
cudaError_t launch_weighted_xent(const LossArgs<T>& args, void* workspace, cudaStream_t stream);

// ElementwiseLoss from ops/loss.h.
template <typename T>
cudaError_t launch_elementwise_loss(const LossArgs<T>& args, void* workspace, cudaStream_t stream);

// loss[tick] = loss_scale * sum (x - target)^2;  dx = 2 * grad_scale * (x - target)
template <typename T>
cudaError_t launch_mse(const LossArgs<T>& args, void* workspace, cudaStream_t stream);

// y[r] = softmax(x[r]). Out is T, or float if T is a half type.
template <typename T, typename Out>
cudaError_t launch_softmax(const T* x, Out* y, int64_t n, int64_t classes, cudaStream_t stream);

// y[r] = the first index of the maximum of x[r]
template <typename T>
cudaError_t launch_argmax(const T* x, int32_t* y, int64_t n, int64_t classes, cudaStream_t stream);

}  // namespace ridgeline::cuda
