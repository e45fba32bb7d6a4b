#include "ridgeline/cuda/plain/loss_rows.cuh"

namespace ridgeline::cuda {
namespace {

// n / sum_r w[label[r]], which makes a weighted mean of the rows. row_factor_kernel stores it
// before the partial sums in the workspace.
struct RowFactor {
  double value;
  double unused;  // keeps the partial sums aligned
};

__global__ void row_factor_kernel(const int32_t* label, const double* weights, int64_t n,
                                  RowFactor* factor) {
  __shared__ double parts[kThreads / 32];
  double sum = 0;
  for (int64_t r = threadIdx.x; r < n; r += kThreads) sum += weights[label[r]];
  sum = lanes_sum<32>(sum);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int warp = 1; warp < kThreads / 32; ++warp) sum += parts[warp];
  factor->value = double(n) / sum;
}

struct WeightedXentRow {
  static constexpr bool kTakesLargest = true;

  template <int kLanes, typename T>
  static __device__ double loss(const LossArgs<T>& args, int64_t row, int lane,
                                Largest<Accumulated<T>> best) {
    using A = Accumulated<T>;
    const T* x = args.x + row * args.classes;
    const A sum = row_exp_sum<kLanes>(x, args.classes, lane, best.value);
    const int32_t label = args.label[row];
    const double factor =
        (args.row_factor != nullptr ? *args.row_factor : 1.0) * double(row_weight(args, row));
    const A scale = A(double(gradient_scale(args)) * factor);
    const A share = A(args.smoothing / double(args.classes)), hit = A(1 - args.smoothing);
    const auto target = [&](int64_t c) {
      const A weight = args.weights != nullptr ? A(args.weights[c]) : A(1);
      return c == label ? hit * weight + share * weight : share * weight;
    };
    A targets = A(0);
    for (int64_t c = lane; c < args.classes; c += kLanes) targets += target(c);
    targets = lanes_sum<kLanes>(targets);
    A loss = A(0);
    for (int64_t c = lane; c < args.classes; c += kLanes) {
      const A t = target(c), off = A(x[c]) - best.value;
      if (t != A(0)) loss += t * (log(sum) - off);
      if (args.dx == nullptr) continue;
      args.dx[row * args.classes + c] = T(scale * (exp(off) / sum * targets - t));
    }
    return factor * double(lanes_sum<kLanes>(loss));
  }
};

template <typename A>
__device__ A sign_of(A d) {
  return d > A(0) ? A(1) : d < A(0) ? A(-1) : d;  // 0 for 0; NaN stays NaN
}

// The loss of one element; `slope` becomes its derivative by x.
template <typename A>
__device__ A element_loss(ElementLossFn fn, A x, A target, A weight, A delta, A& slope) {
  const A d = x - target, size = abs(d);
  switch (fn) {
    case ElementLossFn::mae:
      slope = sign_of(d);
      return size;
    case ElementLossFn::huber:
      slope = size > delta ? delta * sign_of(d) : d;
      return size > delta ? delta * (size - A(0.5) * delta) : A(0.5) * d * d;
    case ElementLossFn::bce_with_logits: {
      const A positive = log1p(exp(-abs(x))) + (x < A(0) ? -x : A(0));
      const A part = A(1) + (weight - A(1)) * target;
      slope = (A(1) - target) - part / (A(1) + exp(x));
      return (A(1) - target) * x + part * positive;
    }
    case ElementLossFn::quantile:
      slope = (d < A(0) ? weight : A(1) - weight) * sign_of(d);
      return (d < A(0) ? weight : A(1) - weight) * size;
  }
  return size;
}

struct ElementwiseRow {
  static constexpr bool kTakesLargest = false;

  template <int kLanes, typename T>
  static __device__ double loss(const LossArgs<T>& args, int64_t row, int lane,
                                Largest<Accumulated<T>>) {
    using A = Accumulated<T>;
    const A weight_of_row = row_weight(args, row), delta = A(args.delta);
    const A scale = gradient_scale(args) * weight_of_row;
    const int64_t shared = args.target != nullptr ? args.classes / args.target_columns : 1;
    A sum = A(0);
    for (int64_t c = lane; c < args.classes; c += kLanes) {
      const int64_t i = row * args.classes + c;
      const A target = args.target != nullptr
                           ? A(args.target[row * args.target_columns + c / shared])
                           : (c == args.label[row] ? A(1) : A(0));
      const A weight = args.weights != nullptr ? A(args.weights[c % args.weight_count]) : A(1);
      A slope;
      sum += element_loss(args.fn, A(args.x[i]), target, weight, delta, slope);
      if (args.dx != nullptr) args.dx[i] = T(scale * slope);
    }
    return double(weight_of_row) * double(lanes_sum<kLanes>(sum));
  }
};

}  // namespace

size_t weighted_xent_workspace(int64_t n) { return sizeof(RowFactor) + loss_workspace(n); }

template <typename T>
cudaError_t launch_weighted_xent(const LossArgs<T>& args, void* workspace, cudaStream_t stream) {
  auto* factor = static_cast<RowFactor*>(workspace);
  LossArgs<T> own = args;
  if (args.weights != nullptr) {
    row_factor_kernel<<<1, kThreads, 0, stream>>>(args.label, args.weights, args.n, factor);
    own.row_factor = &factor->value;
  }
  return launch_loss<WeightedXentRow>(own, factor + 1, stream);
}

template <typename T>
cudaError_t launch_elementwise_loss(const LossArgs<T>& args, void* workspace, cudaStream_t stream) {
  return launch_loss<ElementwiseRow>(args, workspace, stream);
}

#define RIDGELINE_LAUNCH_WEIGHTED_LOSS(T)                                             \
  template cudaError_t launch_weighted_xent(const LossArgs<T>&, void*, cudaStream_t); \
  template cudaError_t launch_elementwise_loss(const LossArgs<T>&, void*, cudaStream_t);
RIDGELINE_CUDA_FOR_FLOATS(RIDGELINE_LAUNCH_WEIGHTED_LOSS)

}  // namespace ridgeline::cuda
