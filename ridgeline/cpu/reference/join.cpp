#include <algorithm>

#include "ridgeline/cpu/reference/kernel.h"

namespace ridgeline::cpu {
namespace {

std::vector<Doubles> read_all(const Values& values, ReferenceBinding& binding) {
  std::vector<Doubles> all;
  for (const Value& value : values) all.push_back(binding.reads(value));
  return all;
}

std::unique_ptr<Step> prepare_add(const Add& op, ReferenceBinding& binding) {
  return make_step(
      [scale = op.scale, xs = read_all(op.xs, binding), y = binding.writes(op.y)]() mutable {
        for (Doubles& x : xs) x.load();
        for (int64_t i = 0; i < y.size(); ++i) {
          double sum = 0;
          for (const Doubles& x : xs) sum += x[i];
          y[i] = scale * sum;
        }
        y.store();
      });
}

std::unique_ptr<Step> prepare_multiply(const Multiply& op, ReferenceBinding& binding) {
  return make_step(
      [a = binding.reads(op.a), b = binding.reads(op.b), y = binding.writes(op.y)]() mutable {
        for (Doubles* operand : {&a, &b}) operand->load();
        for (int64_t i = 0; i < y.size(); ++i) y[i] = a[i] * b[i];
        y.store();
      });
}

std::unique_ptr<Step> prepare_concat(const Concat& op, ReferenceBinding& binding) {
  return make_step(
      [rows = op.rows, xs = read_all(op.xs, binding), y = binding.writes(op.y)]() mutable {
        for (Doubles& x : xs) x.load();
        const int64_t whole = y.size() / rows;
        for (int64_t r = 0; r < rows; ++r) {
          double* to = y.data() + r * whole;
          for (Doubles& x : xs) {
            const int64_t width = x.size() / rows;
            to = std::copy_n(x.data() + r * width, width, to);
          }
        }
        y.store();
      });
}

}  // namespace

KernelTable join_reference() {
  return {reference_kernel(prepare_add), reference_kernel(prepare_multiply),
          reference_kernel(prepare_concat)};
}

}  // namespace ridgeline::cpu
