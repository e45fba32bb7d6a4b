#include "tests/support/padding.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/support/oracle.h"
#include "tests/support/run_kernel.h"

namespace ridgeline::test {
namespace {

// The padding of [B, T, features].
void fill_padding(const Tensor& values, const Tensor& lengths, double with) {
  const int64_t steps = values.shape[1];
  const int64_t features = values.numel() / (values.shape[0] * steps);
  for (int64_t b = 0; b < values.shape[0]; ++b) {
    const int64_t end = (b + 1) * steps * features;
    for (int64_t i = (b * steps + lengths.as<int32_t>()[b]) * features; i < end; ++i) {
      set_element(values, i, with);
    }
  }
}

// Whether element i of [D, B, H] belongs to a sample without timesteps.
bool without_steps(const Shape& state, const Tensor& lengths, int64_t i) {
  return lengths.as<int32_t>()[i / state[2] % state[1]] == 0;
}

// The states [D, B, H] of samples without timesteps; there may be none.
void fill_states(const Arrays& arrays, const Value& value, const Tensor& lengths, double with) {
  if (!value) return;
  const Tensor& states = arrays[value];
  for (int64_t i = 0; i < states.numel(); ++i) {
    if (without_steps(states.shape, lengths, i)) set_element(states, i, with);
  }
}

// Fills the padding of the operands of the case's recurrent ops: inputs, gradients of outputs,
// states.
void fill_all_padding(const Case& c, const Arrays& arrays, double with) {
  for (const Op& op : c.program.ops) {
    if (const auto* rnn = std::get_if<Rnn>(&op); rnn != nullptr && rnn->lengths) {
      const Tensor& lengths = arrays[rnn->lengths];
      fill_padding(arrays[rnn->x], lengths, with);
      for (const Value& v : {rnn->h0, rnn->c0}) fill_states(arrays, v, lengths, with);
    }
    if (const auto* grad = std::get_if<RnnGrad>(&op); grad != nullptr && grad->lengths) {
      const Tensor& lengths = arrays[grad->lengths];
      fill_padding(arrays[grad->dy], lengths, with);
      for (const Value& v : {grad->h0, grad->c0, grad->dhT, grad->dcT}) {
        fill_states(arrays, v, lengths, with);
      }
    }
  }
}

// The lengths of the samples whose states a value holds, if it is a state that an op passes on: the
// state of a sample without timesteps is the given one.
Value lengths_of_state(const Op& op, const Value& value) {
  const auto is_one_of = [&](const Values& all) {
    return std::ranges::any_of(all, [&](const Value& v) { return v && v.id == value.id; });
  };
  if (const auto* rnn = std::get_if<Rnn>(&op); rnn != nullptr && is_one_of({rnn->hT, rnn->cT})) {
    return rnn->lengths;
  }
  const auto* grad = std::get_if<RnnGrad>(&op);
  return grad != nullptr && is_one_of({grad->dh0, grad->dc0}) ? grad->lengths : Value{};
}

// How many numbers of a value that an op writes differ. A NaN counts as different: kernels never
// produce one from a case's inputs.
int64_t differences(const Op& op, const Value& value, const Arrays& want, const Arrays& got) {
  const Value lengths = lengths_of_state(op, value);
  const std::vector<double> a = want.doubles(value.id), b = got.doubles(value.id);
  int64_t count = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (lengths && without_steps(value.shape, want[lengths], int64_t(i))) {
      continue;
    }
    if (!(a[i] == b[i])) ++count;
  }
  return count;
}

}  // namespace

bool has_padding(const Case& c) {
  return std::ranges::any_of(c.program.ops, [](const Op& op) {
    const auto* rnn = std::get_if<Rnn>(&op);
    const auto* grad = std::get_if<RnnGrad>(&op);
    return (rnn != nullptr && rnn->lengths) || (grad != nullptr && grad->lengths);
  });
}

void expect_no_padding(const Case& c, const KernelTable& table, Runtime& runtime,
                       Exercised& exercised) {
  SCOPED_TRACE(c.name);
  Arrays clean = c.inputs();
  fill_all_padding(c, clean, 0);
  const std::vector<Op>& ops = c.program.ops;
  for (size_t op = 0; op < ops.size(); ++op) {
    std::vector<Arrays> dirty;
    for (const double with :
         {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
      fill_all_padding(c, dirty.emplace_back(clean), with);
    }
    for (const Kernel& kernel : table) {
      if (kernel.target != runtime.device().kind || !kernel.covers || !wanted_kernel(kernel.name))
        continue;
      const Cover cover = offer(kernel, {c.program, op, runtime});
      if (cover.ops == 0) continue;
      ++exercised[kernel.name];
      const KernelResult want = run_kernel(kernel, cover, c.program, op, clean, runtime, table);
      for (const Arrays& inputs : dirty) {
        const KernelResult got = run_kernel(kernel, cover, c.program, op, inputs, runtime, table);
        for (size_t i = op; i < op + cover.ops; ++i) {
          for (const Value& value : writes(ops[i])) {
            if (!value || std::ranges::count(cover.skips, value.id) > 0) continue;
            EXPECT_EQ(differences(ops[i], value, want.arrays, got.arrays), 0)
                << kernel.name << ": " << c.program.info(value.id).name;
          }
        }
      }
    }
    if (op + 1 < ops.size()) Reference().run(c.program, op, clean);
  }
}

}  // namespace ridgeline::test
