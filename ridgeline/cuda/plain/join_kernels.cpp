#include "ridgeline/cuda/kernel.h"
#include "ridgeline/cuda/plain/join.h"
#include "ridgeline/cuda/plain/kernels.h"

namespace ridgeline::cuda {
namespace {

static_assert(kMostInputs == int(kMostJoined));

std::string refuse(const Values& xs, const Value& y) {
  Values all = xs;
  all.push_back(y);
  if (y.shape.numel() == 0) return "an operand is empty";
  if (xs.size() > size_t(kMostInputs)) return "more inputs than a launch takes";
  return refuse_floats(all);
}

Cover covers_add(const RemainingOps& rest) {
  const auto* op = rest.get<Add>(0);
  return op == nullptr ? no_such_op(Add::kName) : cover_unless(refuse(op->xs, op->y), 1);
}

std::unique_ptr<Step> prepare_add(const Span& span, const Binding& binding) {
  const auto& op = span.get<Add>(0);
  return dispatch_device_float(op.y.dtype, [&](auto type) {
    using T = decltype(type);
    AddArgs<T> args{};
    for (size_t i = 0; i < op.xs.size(); ++i) args.xs[i] = binding.read(op.xs[i]).template as<T>();
    args.inputs = int(op.xs.size());
    args.scale = op.scale;
    args.y = binding.write(op.y).template as<T>();
    args.count = op.y.shape.numel();
    return launch_step(binding, describe(span.op(0)),
                       [args](cudaStream_t stream) { return launch_add<T>(args, stream); });
  });
}

Cover covers_multiply(const RemainingOps& rest) {
  const auto* op = rest.get<Multiply>(0);
  if (op == nullptr) return no_such_op(Multiply::kName);
  return cover_unless(refuse({op->a, op->b}, op->y), 1);
}

std::unique_ptr<Step> prepare_multiply(const Span& span, const Binding& binding) {
  const auto& op = span.get<Multiply>(0);
  return dispatch_device_float(op.y.dtype, [&](auto type) {
    using T = decltype(type);
    return launch_step(
        binding, describe(span.op(0)),
        [a = binding.read(op.a).as<T>(), b = binding.read(op.b).as<T>(),
         y = binding.write(op.y).as<T>(), count = op.y.shape.numel()](cudaStream_t stream) {
          return launch_multiply<T>(a, b, y, count, stream);
        });
  });
}

Cover covers_concat(const RemainingOps& rest) {
  const auto* op = rest.get<Concat>(0);
  return op == nullptr ? no_such_op(Concat::kName) : cover_unless(refuse(op->xs, op->y), 1);
}

std::unique_ptr<Step> prepare_concat(const Span& span, const Binding& binding) {
  const auto& op = span.get<Concat>(0);
  return dispatch_device_float(op.y.dtype, [&](auto type) {
    using T = decltype(type);
    ConcatArgs<T> args{};
    for (size_t i = 0; i < op.xs.size(); ++i) {
      args.xs[i] = binding.read(op.xs[i]).template as<T>();
      args.begin[i + 1] = args.begin[i] + op.width(i);
    }
    args.inputs = int(op.xs.size());
    args.y = binding.write(op.y).template as<T>();
    args.rows = op.rows;
    return launch_step(binding, describe(span.op(0)),
                       [args](cudaStream_t stream) { return launch_concat<T>(args, stream); });
  });
}

}  // namespace

KernelTable plain_join_kernels() {
  return concurrent({cuda_kernel("cuda.add.plain", covers_add, prepare_add),
                     cuda_kernel("cuda.multiply.plain", covers_multiply, prepare_multiply),
                     cuda_kernel("cuda.concat.plain", covers_concat, prepare_concat)});
}

}  // namespace ridgeline::cuda
