// Convolutions on tensor cores in one span with the pool that follows, and the way back.
#include "ridgeline/cuda/conv/few.h"
#include "ridgeline/cuda/conv/window_grad_w.h"
#include "ridgeline/cuda/conv_rows.h"
#include "ridgeline/cuda/conv_spans.h"
#include "ridgeline/cuda/plain/loose_bind.h"

namespace ridgeline::cuda {
namespace {

// ---- forward ----

std::string refuse_pooled(const Rest& rest, const PooledConv& layer) {
  const Conv2d& conv = *layer.conv;
  const DType dtype = conv.x.dtype;
  std::string reason = refuse_tensor(rest, conv.shape, conv.n(),
                                     {conv.x, conv.w, unless_loose(conv.b, dtype), layer.pool->y});
  return reason.empty() ? refuse_layer(layer) : reason;
}

template <typename T>
PooledOutput<T> pooled_output(const PooledConv& layer, const Binding& binding) {
  PooledOutput<T> pool{true, layer.curve()};
  if (layer.activation != nullptr) pool.a = binding.write(layer.activation->y).as<T>();
  return pool;
}

Cover covers_conv_pool(const Rest& rest) {
  const auto found = find_convs(rest, false, 1);
  if (!found) return Cover::no("the next ops are no convolution and its pool");
  const Conv2d& conv = *found->first.conv;
  std::string reason = refuse_pooled(rest, found->first);
  const ImplicitShape shape = implicit_shape(conv.shape, conv.n());
  const size_t width = size_of(conv.x.dtype);
  if (reason.empty()) reason = refuse_implicit(shape, width, shared_memory(rest.runtime));
  Values inner{conv.y};
  if (reason.empty()) reason = keep_activation(rest, found->first, found->ops(), inner);
  if (!reason.empty()) return Cover::no(reason);
  Cover cover = cover_skipping(rest, inner, found->ops());
  cover.workspace = implicit_workspace(shape, width);
  return cover;
}

std::unique_ptr<Step> prepare_conv_pool(const Span& span, const Binding& binding) {
  const ConvSpan found = find_convs(span, binding.runtime(), false, 1);
  const Conv2d& conv = *found.first.conv;
  return dispatch_factor(conv.x.dtype, [&](auto type) {
    using T = decltype(type);
    const ImplicitArgs<T> args{implicit_shape(conv.shape, conv.n()),
                               binding.read(conv.x).as<T>(),
                               binding.read(conv.w).as<T>(),
                               loose_read<T>(binding, conv.b, conv.x.dtype),
                               binding.write(found.first.pool->y).as<T>(),
                               false};
    return launch_step(binding, describe(Op{conv}),
                       [args, pool = pooled_output<T>(found.first, binding),
                        workspace = binding.workspace()](cudaStream_t stream) {
                         return launch_conv2d_implicit<T>(args, pool, workspace, stream);
                       });
  });
}

Cover covers_few(const Rest& rest, bool gathers) {
  const auto found = find_convs(rest, gathers, 1);
  if (!found) return Cover::no("the next ops are no convolution and its pool");
  const Conv2d& conv = *found->first.conv;
  std::string reason = refuse_pooled(rest, found->first);
  if (reason.empty()) {
    reason = refuse_few(implicit_shape(conv.shape, conv.n()), size_of(conv.x.dtype),
                        shared_memory(rest.runtime));
  }
  Values inner{conv.y};
  if (reason.empty()) reason = keep_activation(rest, found->first, found->ops(), inner);
  if (!reason.empty()) return Cover::no(reason);
  if (gathers && rest.dead_after(conv.x, found->ops())) inner.push_back(conv.x);
  return cover_skipping(rest, inner, found->ops());
}

std::unique_ptr<Step> prepare_few(const Span& span, const Binding& binding, bool gathers) {
  const ConvSpan found = find_convs(span, binding.runtime(), gathers, 1);
  const Conv2d& conv = *found.first.conv;
  return dispatch_factor(conv.x.dtype, [&](auto type) {
    using T = decltype(type);
    FewArgs<T> args{implicit_shape(conv.shape, conv.n()),
                    source_of(found.front, conv, binding),
                    {},
                    binding.read(conv.w).as<T>(),
                    loose_read<T>(binding, conv.b, conv.x.dtype),
                    pooled_output<T>(found.first, binding),
                    binding.write(found.first.pool->y).as<T>()};
    const GatherArgs labels = labels_of(found.front, binding);
    if (gathers) {
      args.gathered = {binding.write(conv.x).as<T>(), labels.labels, labels.label,
                       int(labels.label_row)};
    }
    return launch_step(
        binding, describe(Op{conv}),
        [args, processors = cuda_runtime(binding.runtime()).processors()](cudaStream_t stream) {
          return launch_conv2d_pool_few<T>(args, processors, stream);
        });
  });
}

// ---- backward ----

// The gradients of a pool, of the activation it pools (or none) and of the convolution before.
struct PooledGrads {
  const MaxPoolGrad* pool = nullptr;
  const ActivationGrad* activation = nullptr;
  const Conv2dGradX* x = nullptr;  // absent in the lowest layer
  const Conv2dGradW* w = nullptr;

  size_t ops() const { return 2 + size_t(activation != nullptr) + size_t(x != nullptr); }
  const Value& dz() const { return activation != nullptr ? activation->dx : pool->dx; }
  Curve curve() const { return activation != nullptr ? curve_of(activation->kind) : Curve::none; }
};

std::optional<PooledGrads> find_grads(const Rest& rest) {
  PooledGrads found;
  found.pool = rest.get<MaxPoolGrad>(0);
  if (found.pool == nullptr) return {};
  size_t at = 1;
  if (const auto* activation = rest.get<ActivationGrad>(at)) {
    if (activation->dy.id != found.pool->dx.id || activation->saved.id != found.pool->x.id) {
      return {};
    }
    found.activation = activation;
    ++at;
  }
  if (const auto* grad = rest.get<Conv2dGradX>(at)) {
    if (grad->dy.id != found.dz().id) return {};
    found.x = grad;
    ++at;
  }
  found.w = rest.get<Conv2dGradW>(at);
  if (found.w == nullptr || found.w->dy.id != found.dz().id) return {};
  return found;
}

std::string refuse_grads(const Rest& rest, const PooledGrads& grads) {
  const Conv2dGradW& w = *grads.w;
  const DType dtype = w.x.dtype;
  std::string reason = refuse_tensor(
      rest, w.shape, w.n(),
      {w.x, w.dy, unless_loose(w.dw, dtype), unless_loose(w.db, dtype), grads.pool->dy,
       grads.x != nullptr ? grads.x->w : Value{}, grads.x != nullptr ? grads.x->dx : Value{}});
  if (!reason.empty()) return reason;
  if (grads.curve() == Curve::gelu) return "gelu keeps what it read, which the pool did not";
  if (!quads(grads.pool->shape)) return "takes pools of 2 x 2 with stride 2";
  const ImplicitShape shape = implicit_shape(w.shape, w.n());
  return refuse_implicit_grads(shape, grads.x != nullptr, size_of(dtype),
                               shared_memory(rest.runtime));
}

Cover covers_grads(const Rest& rest) {
  const auto found = find_grads(rest);
  if (!found) return Cover::no("the next ops are no gradients of a pool and its convolution");
  if (const std::string reason = refuse_grads(rest, *found); !reason.empty()) {
    return Cover::no(reason);
  }
  Values inner{found->pool->dx};
  if (found->activation != nullptr) inner.push_back(found->activation->dx);
  Cover cover = cover_skipping(rest, inner, found->ops());
  cover.workspace =
      implicit_grads_workspace(implicit_shape(found->w->shape, found->w->n()), found->x != nullptr,
                               size_of(found->w->x.dtype), cuda_runtime(rest.runtime).processors(),
                               shared_memory(rest.runtime));
  return cover;
}

// A second stream, for work that does not depend on what the first does next: a graph keeps the two
// as branches.
class Branch {
 public:
  Branch() {
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "a stream");
    check(cudaEventCreateWithFlags(&begin_, cudaEventDisableTiming), "an event");
    check(cudaEventCreateWithFlags(&end_, cudaEventDisableTiming), "an event");
  }
  ~Branch() {
    if (begin_ != nullptr) cudaEventDestroy(begin_);
    if (end_ != nullptr) cudaEventDestroy(end_);
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }
  Branch(const Branch&) = delete;
  Branch& operator=(const Branch&) = delete;

  // branch(second stream) beside trunk(stream), which goes on when both are done.
  template <typename F, typename G>
  cudaError_t run(cudaStream_t stream, F branch, G trunk) const {
    for (const cudaError_t error :
         {cudaEventRecord(begin_, stream), cudaStreamWaitEvent(stream_, begin_, 0), branch(stream_),
          trunk(stream), cudaEventRecord(end_, stream_), cudaStreamWaitEvent(stream, end_, 0)}) {
      if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
  }

 private:
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

std::unique_ptr<Step> prepare_grads(const Span& span, const Binding& binding) {
  const PooledGrads found = *find_grads(Rest{span.program, span.begin, binding.runtime()});
  const Conv2dGradW& op = *found.w;
  const DType dtype = op.x.dtype;
  return dispatch_factor(dtype, [&](auto type) {
    using T = decltype(type);
    const ImplicitShape shape = implicit_shape(op.shape, op.n());
    const OutputGrad<T> dz{binding.read(found.pool->dy).as<T>(),
                           binding.read(found.pool->x).as<T>(), found.curve()};
    ImplicitGradsArgs<T> args{shape, binding.read(op.x).as<T>(), dz,
                              loose_write<T>(binding, op.dw, dtype),
                              loose_write<T>(binding, op.db, dtype)};
    place_grads(args, binding);
    if (found.x == nullptr) {
      return launch_step(binding, describe(Op{op}), [args](cudaStream_t stream) {
        const cudaError_t error = launch_conv2d_grad_maps<T>(args, stream);
        return error != cudaSuccess ? error : launch_conv2d_grad_w_implicit<T>(args, stream);
      });
    }
    args.w = binding.read(found.x->w).as<T>(), args.dx = binding.write(found.x->dx).as<T>();
    return launch_step(
        binding, describe(Op{op}),
        [args, branch = std::make_shared<Branch>()](cudaStream_t stream) {
          const cudaError_t error = launch_conv2d_grad_maps<T>(args, stream);
          if (error != cudaSuccess) return error;
          return branch->run(
              stream,
              [&](cudaStream_t beside) { return launch_conv2d_grad_w_implicit<T>(args, beside); },
              [&](cudaStream_t trunk) { return launch_conv2d_grad_x_maps<T>(args, trunk); });
        });
  });
}

// ---- backward, the lowest layer ----

std::string refuse_windows(const Rest& rest, const PooledGrads& grads) {
  const Conv2dGradW& op = *grads.w;
  const Conv2dShape& s = op.shape;
  const DType dtype = op.x.dtype;
  if (grads.x != nullptr) return "takes no gradient of the input";
  std::string reason = refuse_floats({op.x, op.dy, unless_loose(op.dw, dtype),
                                      unless_loose(op.db, dtype), grads.pool->dy, grads.pool->x});
  if (reason.empty()) {
    reason = refuse_large({op.n(), s.in.numel(), s.out().numel(), s.weight().numel()});
  }
  if (reason.empty()) reason = refuse_window(s);
  if (!reason.empty()) return reason;
  if (grads.curve() == Curve::gelu) return "gelu keeps what it read, which the pool did not";
  if (!quads(grads.pool->shape)) return "takes pools of 2 x 2 with stride 2";
  return refuse_window_grad_w(implicit_shape(s, op.n()), size_of(dtype),
                              shared_memory(rest.runtime));
}

Cover covers_windows(const Rest& rest) {
  const auto found = find_grads(rest);
  if (!found) return Cover::no("the next ops are no gradients of a pool and its convolution");
  if (const std::string reason = refuse_windows(rest, *found); !reason.empty()) {
    return Cover::no(reason);
  }
  Values inner{found->pool->dx};
  if (found->activation != nullptr) inner.push_back(found->activation->dx);
  Cover cover = cover_skipping(rest, inner, found->ops());
  cover.workspace =
      window_grad_w_workspace(implicit_shape(found->w->shape, found->w->n()),
                              size_of(found->w->x.dtype), cuda_runtime(rest.runtime).processors());
  return cover;
}

std::unique_ptr<Step> prepare_windows(const Span& span, const Binding& binding) {
  const PooledGrads found = *find_grads(Rest{span.program, span.begin, binding.runtime()});
  const Conv2dGradW& op = *found.w;
  const DType dtype = op.x.dtype;
  return dispatch_device_float(dtype, [&](auto type) {
    using T = decltype(type);
    const WindowGradWArgs<T> args{
        implicit_shape(op.shape, op.n()),
        binding.read(op.x).as<T>(),
        {binding.read(found.pool->dy).as<T>(), binding.read(found.pool->x).as<T>(), found.curve()},
        loose_write<T>(binding, op.dw, dtype),
        loose_write<T>(binding, op.db, dtype)};
    return launch_step(
        binding, describe(Op{op}),
        [args, workspace = binding.workspace(),
         processors = cuda_runtime(binding.runtime()).processors()](cudaStream_t stream) {
          return launch_window_grad_w<T>(args, workspace, processors, stream);
        });
  });
}

}  // namespace

Table pooled_conv_rows() {
  Table table;
  for (const bool gathers : {true, false}) {
    table.push_back(cuda_row(
        fmt::format("cuda.{}conv2d_pool.few", gathers ? "gather_" : ""),
        [gathers](const Rest& rest) { return covers_few(rest, gathers); },
        [gathers](const Span& span, const Binding& binding) {
          return prepare_few(span, binding, gathers);
        }));
  }
  table.push_back(cuda_row("cuda.conv2d_pool.implicit", covers_conv_pool, prepare_conv_pool));
  table.push_back(cuda_row("cuda.pool_conv2d_grads.implicit", covers_grads, prepare_grads));
  table.push_back(cuda_row("cuda.pool_conv2d_grad_w.windows", covers_windows, prepare_windows));
  return table;
}

}  // namespace ridgeline::cuda
