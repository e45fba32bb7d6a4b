#pragma once

#include <optional>

#include "ridgeline/cuda/conv/implicit.h"
#include "ridgeline/cuda/conv/kernels.h"
#include "ridgeline/cuda/conv/source.h"
#include "ridgeline/cuda/plain/bind_mixed_operand.h"
#include "ridgeline/cuda/plain/gather.h"
#include "ridgeline/cuda/pool_spans.h"

// The spans that convolution kernels look for, and the code they share to bind them.
namespace ridgeline::cuda {

// A convolution, an activation (or none) and a pool, each reading the output of the one before.
struct PooledConv {
  const Conv2d* conv = nullptr;
  const Activation* activation = nullptr;
  const MaxPool* pool = nullptr;

  size_t ops() const { return activation != nullptr ? 3 : 2; }
  ActivationFn activation_fn() const {
    return activation != nullptr ? activation_of(activation->kind) : ActivationFn::none;
  }
};

// Why kernels of a layer with its pool cannot take it; "" if they can. They need square filters,
// one group, stride 1, no dilation, 2 x 2 pools and a non-decreasing activation.
std::string refuse_layer(const PooledConv& layer);

// A gather of bytes before the layers, optionally followed by a gather of labels.
struct Front {
  const Gather* bytes = nullptr;
  const Gather* labels = nullptr;

  size_t ops() const { return size_t(bytes != nullptr) + size_t(labels != nullptr); }
};

// The beginning of a span.
struct ConvSpan {
  Front front;
  PooledConv first, second;  // second: absent for kernels of one layer

  size_t ops() const {
    return front.ops() + first.ops() + (second.conv != nullptr ? second.ops() : 0);
  }
};

// `gathers`: the span begins with a gather; `layers`: one or two.
std::optional<ConvSpan> find_convs(const RemainingOps& rest, bool gathers, int layers);
ConvSpan find_convs(const Span& span, const Runtime& runtime, bool gathers, int layers);

// A cover that skips the values `inner`, or the reason why not: one of them is read later.
Cover cover_skipping(const RemainingOps& rest, const Values& inner, size_t ops);

// Leaves the input of the pool among the values to write if the pool's gradient reads it, and adds
// it to `inner` otherwise. Returns why that is not possible, or "".
std::string keep_activation(const RemainingOps& rest, const PooledConv& layer, size_t ops,
                            Values& inner);

// The images that the first layer reads.
ImageSource source_of(const Front& front, const Conv2d& conv, const Binding& binding);
// The arguments for gathering the labels; empty if there are none.
GatherArgs labels_of(const Front& front, const Binding& binding);

// Returns why kernels for square filters without dilation cannot take this shape; "" if they can.
std::string refuse_square(const Conv2dShape& shape);
// Returns why kernels that also need stride 1 and one group cannot; "" if they can.
std::string refuse_window(const Conv2dShape& shape);

// Why tensor-core kernels (conv/implicit.h) cannot take a convolution of these values in this run;
// "" if they can. `refuse`: one of the two functions above.
std::string refuse_tensor(const RemainingOps& rest, const Conv2dShape& shape, int64_t n,
                          const Values& values,
                          std::string (*refuse)(const Conv2dShape&) = refuse_window);
// Returns why they cannot take a layer with its pool; "" if they can.
std::string refuse_pooled(const RemainingOps& rest, const PooledConv& layer);
ImplicitShape implicit_shape(const Conv2dShape& shape, int64_t n);

template <typename T>
PooledOutput<T> pooled_output(const PooledConv& layer, const Binding& binding) {
  PooledOutput<T> pool{true, layer.activation_fn()};
  if (layer.activation != nullptr) pool.a = binding.write(layer.activation->y).as<T>();
  return pool;
}

// What the kernels of conv/ compute as one product: a convolution, alone or with its pool, or the
// gradient of its input, which is a convolution of the output's gradient with the flipped filters.
struct ConvProduct {
  Value x, w, b, y;  // b may be absent
  Conv2dShape conv;
  bool flipped = false;
  PooledConv layer = {};  // empty without a pool

  explicit ConvProduct(const Conv2d& op) : x(op.x), w(op.w), b(op.b), y(op.y), conv(op.shape) {}
  explicit ConvProduct(const Conv2dGradX& op)
      : x(op.dy), w(op.w), y(op.dx), conv(op.shape), flipped(true) {}
  explicit ConvProduct(const PooledConv& found) : ConvProduct(*found.conv) {
    y = found.pool->y, layer = found;
  }

  DType dtype() const { return x.dtype; }
  bool pooled() const { return layer.pool != nullptr; }
  ImplicitShape shape() const {
    const ImplicitShape forward = implicit_shape(conv, x.shape[0]);
    return flipped ? forward.flipped() : forward;
  }
  Values values() const { return {x, w, unless_mixed(b, dtype()), y}; }
  Values writes() const {
    return layer.activation != nullptr ? Values{y, layer.activation->y} : Values{y};
  }
  template <typename T>
  ImplicitArgs<T> args(const Binding& binding) const {
    return {shape(),
            binding.read(x).as<T>(),
            binding.read(w).as<T>(),
            read_mixed<T>(binding, b, dtype()),
            binding.write(y).as<T>(),
            flipped};
  }
  template <typename T>
  PooledOutput<T> pool(const Binding& binding) const {
    return pooled() ? pooled_output<T>(layer, binding) : PooledOutput<T>{};
  }
};

// A family of kernels for such products: why it refuses one ("" if it takes it; pools are checked
// separately), the workspace it needs in bytes, and its step.
struct ConvKernels {
  std::string (*refuse)(const RemainingOps&, const ConvProduct&);
  size_t (*workspace)(const Runtime&, const ConvProduct&);
  std::unique_ptr<Step> (*prepare)(const Binding&, const std::string& what, const ConvProduct&);
};

// "cuda.conv2d_pool.<how>", "cuda.conv2d.<how>", "cuda.conv2d_grad_x.<how>".
KernelTable product_kernels(const std::string& how, const ConvKernels& kernels);

// Sets the workspace and the device limits in the arguments of the gradients' launches.
template <typename T>
void place_grads(ImplicitGradsArgs<T>& args, const Binding& binding) {
  args.workspace = binding.workspace();
  args.sms = cuda_runtime(binding.runtime()).sms();
  args.shared_memory = shared_memory(binding.runtime());
}

// Calls f with the kernel's type for 16-bit and 32-bit floats.
template <typename F>
std::unique_ptr<Step> dispatch_factor(DType dtype, F f) {
  switch (dtype) {
    case DType::bf16:
      return f(__nv_bfloat16{});
    case DType::fp16:
      return f(__half{});
    default:
      return f(float{});
  }
}

}  // namespace ridgeline::cuda
