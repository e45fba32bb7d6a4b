// The backward pass of a convolution and the pool that follows it.
#include "ridgeline/cuda/conv/kernels.h"
#include "ridgeline/cuda/conv/pool_sparse_grad_w.h"
#include "ridgeline/cuda/conv/spans.h"
#include "ridgeline/cuda/conv/wgmma.h"
#include "ridgeline/cuda/graph_order.h"
#include "ridgeline/cuda/plain/bind_mixed_operand.h"
#include "ridgeline/plan/pooled_grads.h"

namespace ridgeline::cuda {
namespace {

ActivationFn pooled_activation(const PooledGrads& grads) {
  return grads.activation != nullptr ? activation_of(grads.activation->kind) : ActivationFn::none;
}

std::string refuse_grads(const RemainingOps& rest, const PooledGrads& grads) {
  const Conv2dGradW& w = *grads.w;
  const DType dtype = w.x.dtype;
  std::string reason = refuse_tensor(
      rest, w.shape, w.n(),
      {w.x, w.dy, unless_mixed(w.dw, dtype), unless_mixed(w.db, dtype), grads.pool->dy,
       grads.x != nullptr ? grads.x->w : Value{}, grads.x != nullptr ? grads.x->dx : Value{}});
  if (!reason.empty()) return reason;
  if (grads.activation != nullptr && !saves_output(grads.activation->kind))
    return "the activation's gradient takes its input, which the pool did not keep";
  if (!quads(grads.pool->shape)) return "takes pools of 2 x 2 with stride 2";
  const ImplicitShape shape = implicit_shape(w.shape, w.n());
  return refuse_implicit_grads(shape, grads.x != nullptr, size_of(dtype),
                               shared_memory(rest.runtime));
}

// Which instructions a layer's kernels use: mma.sync, or wgmma for dx, and in half precision for dw
// as well.
enum class Products { mma, wgmma };

std::string refuse_warpgroups(const RemainingOps& rest, const PooledGrads& grads) {
  if (grads.x == nullptr) return "takes layers with a gradient of the input";
  const ImplicitShape shape = implicit_shape(grads.w->shape, grads.w->n());
  const size_t width = size_of(grads.w->x.dtype), memory = shared_memory(rest.runtime);
  if (width == 2) return refuse_grads_wgmma(shape, memory);
  return refuse_pooled_grad_x_wgmma(shape, width, memory);
}

size_t stream_workspace(const PooledGrads& grads, const Runtime& runtime) {
  const ImplicitShape shape = implicit_shape(grads.w->shape, grads.w->n());
  const StreamShape stream(shape, cuda_runtime(runtime).sms(), shared_memory(runtime));
  return StreamWorkspace(shape, stream).total;
}

// The bytes of the workspace: the maps and sums of conv/implicit.h, then, for wgmma, the packed
// filters.
struct GradsBytes {
  GradBytes maps;
  size_t packed_filters = 0;

  GradsBytes(const PooledGrads& grads, const Runtime& runtime, Products products) {
    const ImplicitShape shape = implicit_shape(grads.w->shape, grads.w->n());
    const size_t width = size_of(grads.w->x.dtype), memory = shared_memory(runtime);
    maps =
        implicit_grads_bytes(shape, grads.x != nullptr, width, cuda_runtime(runtime).sms(), memory);
    if (products == Products::mma) return;
    maps.total = (maps.total + 1023) / 1024 * 1024;
    packed_filters = conv2d_wgmma_workspace(shape.flipped(), width, false, memory);
  }
  size_t all() const { return maps.total + packed_filters; }
};

Cover covers_grads(const RemainingOps& rest, Products products) {
  const auto found = find_pooled_grads(rest);
  if (!found) return Cover::no("the next ops are no gradients of a pool and its convolution");
  std::string reason = refuse_grads(rest, *found);
  if (reason.empty() && products == Products::wgmma) reason = refuse_warpgroups(rest, *found);
  if (!reason.empty()) return Cover::no(reason);
  Cover cover = cover_pooled_grads(rest, *found);
  const bool streams = products == Products::wgmma && size_of(found->w->x.dtype) == 2;
  cover.workspace = streams ? stream_workspace(*found, rest.runtime)
                            : GradsBytes(*found, rest.runtime, products).all();
  return cover;
}

template <typename T>
ImplicitGradsArgs<T> grads_args(const PooledGrads& found, const Binding& binding) {
  const Conv2dGradW& op = *found.w;
  const OutputGrad<T> dz{binding.read(found.pool->dy).as<T>(), binding.read(found.pool->x).as<T>(),
                         pooled_activation(found)};
  ImplicitGradsArgs<T> args{implicit_shape(op.shape, op.n()), binding.read(op.x).as<T>(), dz,
                            write_mixed<T>(binding, op.dw, op.x.dtype),
                            write_mixed<T>(binding, op.db, op.x.dtype)};
  place_grads(args, binding);
  if (found.x != nullptr) {
    args.w = binding.read(found.x->w).as<T>(), args.dx = binding.write(found.x->dx).as<T>();
  }
  return args;
}

// tf32: dx leaves the gradient before the pool for dw's kernel, which also needs x channels-last.
std::unique_ptr<Step> mapped_step(const Binding& binding, const PooledGrads& found,
                                  const ImplicitGradsArgs<float>& args, size_t packed_at) {
  const size_t memory = args.shared_memory;
  const GradMapBytes at = grad_map_bytes(args.shape, args.sms, memory);
  std::byte* packed_filters = static_cast<std::byte*>(args.workspace) + packed_at;
  const ImplicitArgs<float> flipped{args.shape.flipped(), nullptr, args.w, {}, nullptr, true, true};
  const size_t end =
      packed_at + conv2d_wgmma_workspace(flipped.shape, sizeof(float), false, memory);
  ImplicitGradsArgs<float> x_only = args;
  x_only.dy = {}, x_only.w = nullptr;
  std::vector<StepPart> parts;
  parts.push_back({{found.x->w}, {}, {{packed_at, end, true}}, false, [=](cudaStream_t stream) {
                     return launch_conv2d_wgmma_pack_filters<float>(flipped, false, memory,
                                                                    packed_filters, stream);
                   }});
  parts.push_back(
      {{found.w->x}, {}, {{at.x, at.packed_filters, true}}, true, [=](cudaStream_t stream) {
         return launch_conv2d_grad_maps<float>(x_only, stream);
       }});
  parts.push_back({{found.pool->dy, found.pool->x},
                   {found.x->dx},
                   {{packed_at, end, false}, {0, at.x, true}, {at.sums, at.partial, true}},
                   false,
                   [=](cudaStream_t stream) {
                     return launch_pooled_grad_x_wgmma(args, packed_filters, stream);
                   }});
  parts.push_back(
      {{},
       {found.w->dw, found.w->db},
       {{0, at.partial, false}, {at.partial, at.total, true}},
       false,
       [=](cudaStream_t stream) { return launch_conv2d_grad_w_implicit<float>(args, stream); }});
  return launch_parts(binding, describe(Op{*found.w}), std::move(parts));
}

// Halves: dx comes first, because the layers below wait for it; dw then reads the gradient that dx
// leaves.
template <typename T>
std::unique_ptr<Step> stream_step(const Binding& binding, const PooledGrads& found,
                                  const ImplicitGradsArgs<T>& args) {
  const StreamWorkspace at(args.shape, StreamShape(args.shape, args.sms, args.shared_memory));
  const auto launched = [args](auto launch) {
    return [=](cudaStream_t stream) { return launch(args, stream); };
  };
  std::vector<StepPart> parts;
  parts.push_back({{found.x->w},
                   {},
                   {{at.packed_filters, at.x, true}},
                   false,
                   launched(launch_stream_pack_filters<T>)});
  parts.push_back({{found.w->x}, {}, {{at.x, at.dz, true}}, true, launched(launch_stream_x<T>)});
  parts.push_back({{found.pool->dy, found.pool->x},
                   {found.x->dx},
                   {{at.packed_filters, at.x, false}, {at.dz, at.partial, true}},
                   false,
                   launched(launch_stream_grad_x<T>)});
  parts.push_back({{},
                   {found.w->dw, found.w->db},
                   {{at.x, at.partial, false}, {at.partial, at.total, true}},
                   false,
                   launched(launch_stream_grad_w<T>)});
  return launch_parts(binding, describe(Op{*found.w}), std::move(parts));
}

std::unique_ptr<Step> prepare_grads(const Span& span, const Binding& binding, Products products) {
  const PooledGrads found =
      *find_pooled_grads(RemainingOps{span.program, span.begin, binding.runtime()});
  const Conv2dGradW& op = *found.w;
  return dispatch_factor(op.x.dtype, [&](auto type) {
    using T = decltype(type);
    const ImplicitGradsArgs<T> args = grads_args<T>(found, binding);
    if constexpr (sizeof(T) == 2) {
      if (products == Products::wgmma) return stream_step<T>(binding, found, args);
    }
    const GradBytes bytes = GradsBytes(found, binding.runtime(), products).maps;
    if constexpr (sizeof(T) == 4) {
      if (products == Products::wgmma) return mapped_step(binding, found, args, bytes.total);
    }
    const auto launched = [args](auto launch) {
      return [=](cudaStream_t stream) { return launch(args, stream); };
    };
    Values made{op.x, found.pool->dy, found.pool->x};
    if (found.x != nullptr) made.push_back(found.x->w);
    std::vector<StepPart> parts;
    parts.push_back(
        {made, {}, {{0, bytes.maps, true}}, false, launched(launch_conv2d_grad_maps<T>)});
    if (found.x != nullptr) {  // first, because the layers below wait for it
      parts.push_back({{},
                       {found.x->dx},
                       {{0, bytes.maps, false}},
                       false,
                       launched(launch_conv2d_grad_x_maps<T>)});
    }
    // Without maps the kernels read the values directly.
    parts.push_back({bytes.maps > 0 ? Values{} : made,
                     {op.dw, op.db},
                     {{0, bytes.maps, false}, {bytes.maps, bytes.total, true}},
                     false,
                     launched(launch_conv2d_grad_w_implicit<T>)});
    return launch_parts(binding, describe(Op{op}), std::move(parts));
  });
}

// ---- the backward pass of the lowest layer ----

std::string refuse_pool_sparse(const RemainingOps& rest, const PooledGrads& grads) {
  const Conv2dGradW& op = *grads.w;
  const Conv2dShape& s = op.shape;
  const DType dtype = op.x.dtype;
  if (grads.x != nullptr) return "takes no gradient of the input";
  std::string reason = refuse_floats({op.x, op.dy, unless_mixed(op.dw, dtype),
                                      unless_mixed(op.db, dtype), grads.pool->dy, grads.pool->x});
  if (reason.empty()) {
    reason = refuse_large({op.n(), s.in.numel(), s.out().numel(), s.weight().numel()});
  }
  if (reason.empty()) reason = refuse_window(s);
  if (!reason.empty()) return reason;
  if (grads.activation != nullptr && !saves_output(grads.activation->kind))
    return "the activation's gradient takes its input, which the pool did not keep";
  if (!quads(grads.pool->shape)) return "takes pools of 2 x 2 with stride 2";
  return refuse_pool_sparse_grad_w(implicit_shape(s, op.n()), size_of(dtype),
                                   shared_memory(rest.runtime));
}

Cover covers_pool_sparse(const RemainingOps& rest) {
  const auto found = find_pooled_grads(rest);
  if (!found) return Cover::no("the next ops are no gradients of a pool and its convolution");
  if (const std::string reason = refuse_pool_sparse(rest, *found); !reason.empty()) {
    return Cover::no(reason);
  }
  Cover cover = cover_pooled_grads(rest, *found);
  cover.workspace =
      pool_sparse_grad_w_workspace(implicit_shape(found->w->shape, found->w->n()),
                                   size_of(found->w->x.dtype), cuda_runtime(rest.runtime).sms());
  return cover;
}

std::unique_ptr<Step> prepare_pool_sparse(const Span& span, const Binding& binding) {
  const PooledGrads found =
      *find_pooled_grads(RemainingOps{span.program, span.begin, binding.runtime()});
  const Conv2dGradW& op = *found.w;
  const DType dtype = op.x.dtype;
  return dispatch_device_float(dtype, [&](auto type) {
    using T = decltype(type);
    const PoolSparseGradWArgs<T> args{
        implicit_shape(op.shape, op.n()),
        binding.read(op.x).as<T>(),
        {binding.read(found.pool->dy).as<T>(), binding.read(found.pool->x).as<T>(),
         pooled_activation(found)},
        write_mixed<T>(binding, op.dw, dtype),
        write_mixed<T>(binding, op.db, dtype)};
    const int sms = cuda_runtime(binding.runtime()).sms();
    const size_t bytes = pool_sparse_grad_w_workspace(args.shape, sizeof(T), sms);
    const auto launched = [args, sms, workspace = binding.workspace()](auto launch) {
      return [=](cudaStream_t stream) { return launch(args, workspace, sms, stream); };
    };
    return launch_in_order(
        binding, describe(Op{op}), bytes,
        {{op.x, found.pool->dy, found.pool->x},
         {},
         {},
         false,
         launched(launch_pool_sparse_grad_w<T>)},
        {{}, {op.dw, op.db}, {}, false, launched(launch_pool_sparse_grad_w_sum<T>)});
  });
}

}  // namespace

KernelTable conv_grads_kernels() {
  return concurrent({cuda_kernel("cuda.pool_conv2d_grads.wgmma", covers_grads, prepare_grads,
                                 Products::wgmma, kWgmma),
                     cuda_kernel("cuda.pool_conv2d_grads.implicit", covers_grads, prepare_grads,
                                 Products::mma, kMma),
                     cuda_kernel("cuda.pool_conv2d_grad_w.pool_sparse", covers_pool_sparse,
                                 prepare_pool_sparse)});
}

}  // namespace ridgeline::cuda
