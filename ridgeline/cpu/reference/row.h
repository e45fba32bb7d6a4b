#pragma once

#include "ridgeline/cpu/reference/doubles.h"
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

// Each family's rows, one file a family.
Table gather_reference();
Table linear_reference();
Table activation_reference();
Table dropout_reference();
Table softmax_reference();
Table mse_reference();
Table update_reference();

}  // namespace ridgeline::cpu
