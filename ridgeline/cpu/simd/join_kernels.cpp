#include <algorithm>
#include <vector>

#include "ridgeline/cpu/simd/join.h"
#include "ridgeline/cpu/simd/kernel.h"

namespace ridgeline::cpu::simd {
namespace {

template <typename T>
std::vector<const T*> read_all(const Values& values, const Binding& binding) {
  std::vector<const T*> all;
  for (const Value& value : values) all.push_back(binding.read(value).template as<T>());
  return all;
}

std::unique_ptr<Step> prepare_add(const Span& span, const Binding& binding) {
  const auto& op = span.get<Add>(0);
  return with_type(op.y.dtype, [&](auto zero) -> std::unique_ptr<Step> {
    using T = decltype(zero);
    return make_step([xs = read_all<T>(op.xs, binding), scale = T(op.scale),
                      count = op.y.shape.numel(), y = binding.write(op.y).as<T>(),
                      &pool = cpu_runtime(binding.runtime()).pool()] {
      pool.share(count, kGroup<T>, kLeastElements, [&](Range part) {
        join_functions<T>().add(xs.data(), int64_t(xs.size()), scale, y, part);
      });
    });
  });
}

std::unique_ptr<Step> prepare_multiply(const Span& span, const Binding& binding) {
  const auto& op = span.get<Multiply>(0);
  return with_type(op.y.dtype, [&](auto zero) -> std::unique_ptr<Step> {
    using T = decltype(zero);
    return make_step([a = binding.read(op.a).as<T>(), b = binding.read(op.b).as<T>(),
                      y = binding.write(op.y).as<T>(), count = op.y.shape.numel(),
                      &pool = cpu_runtime(binding.runtime()).pool()] {
      pool.share(count, kGroup<T>, kLeastElements,
                 [&](Range part) { join_functions<T>().multiply(a, b, y, part); });
    });
  });
}

std::unique_ptr<Step> prepare_concat(const Span& span, const Binding& binding) {
  const auto& op = span.get<Concat>(0);
  return with_type(op.y.dtype, [&](auto zero) -> std::unique_ptr<Step> {
    using T = decltype(zero);
    std::vector<int64_t> widths;
    for (size_t i = 0; i < op.xs.size(); ++i) widths.push_back(op.width(i));
    return make_step([xs = read_all<T>(op.xs, binding), widths, rows = op.rows,
                      whole = op.y.shape.numel() / op.rows, y = binding.write(op.y).as<T>(),
                      &pool = cpu_runtime(binding.runtime()).pool()] {
      pool.share(rows, 1, kLeastElements / whole + 1, [&](Range part) {
        for (int64_t r = part.begin; r < part.end; ++r) {
          T* to = y + r * whole;
          for (size_t i = 0; i < xs.size(); ++i) {
            to = std::copy_n(xs[i] + r * widths[i], widths[i], to);
          }
        }
      });
    });
  });
}

}  // namespace

KernelTable join_kernels() {
  return computing_in(kFloatAndDouble, {one_op_kernel(&Add::y, prepare_add),
                                        one_op_kernel(&Multiply::y, prepare_multiply),
                                        one_op_kernel(&Concat::y, prepare_concat)});
}

}  // namespace ridgeline::cpu::simd
