#include "tests/support/nans.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "tests/support/oracle.h"

namespace ridgeline::test {
namespace {

Arrays with_nan(const Case& c) {
  Arrays arrays = c.inputs();
  for (const Value& value : reads(c.program.ops.front())) {
    if (!value || !is_float(value.dtype)) continue;
    set_element(arrays[value], value.shape.numel() / 2, std::numeric_limits<double>::quiet_NaN());
    break;
  }
  return arrays;
}

}  // namespace

void expect_nans(const Case& c, const KernelTable& table, Runtime& runtime, Exercised& exercised) {
  SCOPED_TRACE(c.name);
  const auto is_real = [](const Value& value) { return value && is_float(value.dtype); };
  if (std::ranges::none_of(reads(c.program.ops.front()), is_real)) return;
  const Arrays start = with_nan(c);
  for (const Kernel& kernel : table) {
    if (kernel.target != runtime.device().kind || !kernel.covers) continue;
    const Cover cover = offer(kernel, {c.program, 0, runtime});
    if (cover.ops == 0) continue;
    ++exercised[kernel.name];
    Arrays want = start;
    Reference().run(c.program, 0, cover.ops, want);
    const KernelResult got = run_kernel(kernel, cover, c.program, 0, start, runtime, table);
    int64_t expected = 0, missing = 0;
    for (size_t op = 0; op < cover.ops; ++op) {
      for (const Value& value : writes(c.program.ops[op])) {
        if (std::ranges::count(cover.skips, value.id) > 0) continue;
        const auto wanted = want.doubles(value.id), made = got.arrays.doubles(value.id);
        for (size_t i = 0; i < wanted.size(); ++i) {
          expected += std::isnan(wanted[i]);
          missing += std::isnan(wanted[i]) && !std::isnan(made[i]);
        }
      }
    }
    EXPECT_GT(expected, 0) << kernel.name << ": the reference lost the NaN itself";
    EXPECT_EQ(missing, 0) << kernel.name << " loses NaNs (of " << expected << ")";
  }
}

std::vector<Case> layer_cases(DType dtype) {
  std::vector<Case> all;
  for (const ActivationKind kind : kActivations) {
    for (const auto& [n, in, out] : {std::array<int64_t, 3>{5, 7, 3}, {64, 72, 136}}) {
      CaseBuilder c(fmt::format("linear of {} and {}", n, name(kind)), dtype);
      const Value z = c.temp("z", {n, out});
      c.add(Linear{c.in("x", {n, in}), c.param("w", {out, in}), c.param("b", {out}), z});
      c.add(Activation{kind, z, c.out("y", {n, out})});
      all.push_back(c.done());
    }
  }
  for (Case& c : recurrent_op_cases(dtype)) {
    const auto* rnn = std::get_if<Rnn>(&c.program.ops.front());
    if (rnn != nullptr && !rnn->lengths) all.push_back(std::move(c));
  }
  return all;
}

}  // namespace ridgeline::test
