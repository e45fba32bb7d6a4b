#pragma once

#include "ridgeline/cpu/reference/doubles.h"
#include "ridgeline/cpu/runtime.h"
#include "ridgeline/plan/impl.h"

namespace ridgeline::cpu {

// The row "cpu.<op>.reference" of one op: prepare(op, binding) makes its step.
template <typename T>
Impl reference_row(std::unique_ptr<Step> (*prepare)(const T& op, const Binding& binding)) {
  Impl row;
  row.name = fmt::format("cpu.{}.reference", T::kName);
  row.traits.fallback = true;
  row.covers = [](const Rest& rest) {
    return rest.get<T>(0) != nullptr ? Cover::of(1)
                                     : Cover::no(fmt::format("the next op is no {}", T::kName));
  };
  row.prepare = [prepare](const Span& span, const Binding& binding) {
    return prepare(span.get<T>(0), binding);
  };
  return row;
}

// Calls f(i) for i in [0, count), spread over the pool.
template <typename F>
void for_each(ThreadPool& pool, int64_t count, F f) {
  pool.run([&](int thread) {
    const Range part = split(count, thread, pool.size());
    for (int64_t i = part.begin; i < part.end; ++i) f(i);
  });
}

// A number that is a value of the program, or another where it is absent.
inline double first_or(const Tensor& tensor, double otherwise) {
  return tensor.data != nullptr ? *tensor.as<double>() : otherwise;
}

// Each family's rows, one file a family.
Table gather_reference();
Table linear_reference();
Table conv_reference();
Table one_hot_conv_reference();
Table pool_reference();
Table norm_reference();
Table activation_reference();
Table dropout_reference();
Table softmax_reference();
Table mse_reference();
Table update_reference();
Table recurrent_reference();
Table sequence_reference();
Table all_reduce_reference();

}  // namespace ridgeline::cpu
