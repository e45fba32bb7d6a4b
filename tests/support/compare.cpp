#include "tests/support/compare.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace ridgeline::test {
namespace {

std::string where(const ValueInfo& info, const testing::AssertionResult& result) {
  return fmt::format("{} {} {}: {}", info.name, name(info.value.dtype), to_string(info.value.shape),
                     result.message());
}

// Root mean square of a - b where b is a number.
double rms(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    if (!std::isnan(b[i])) sum += (a[i] - b[i]) * (a[i] - b[i]);
  }
  return std::sqrt(sum / double(b.size()));
}

// Over many ops in a 16-bit type the worst-case bound is far larger than real errors. Such spans,
// including their fp32 weights, must therefore also be within a few times the error of a rerun of
// the reference kernels in the same types, value by value. Values with few elements are left to the
// bounds, because the rerun may be lucky there.
testing::AssertionResult like_the_rerun(const std::vector<double>& got,
                                        const std::vector<double>& want,
                                        const std::vector<double>& rerun, double roundoff) {
  constexpr size_t kMany = 64;
  constexpr double kFactor = 4;
  if (got.size() < kMany) return testing::AssertionSuccess();
  const double off = rms(got, want), model = rms(rerun, want);
  const double size = rms(std::vector<double>(want.size(), 0.0), want);
  if (off <= kFactor * model + roundoff * size) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "off by " << off << " (root mean square), a rerun by the "
                                     << "reference kernels in the same types by " << model;
}

}  // namespace

testing::AssertionResult within(const std::vector<double>& got, const std::vector<double>& want,
                                const std::vector<double>& bound) {
  size_t worst = 0, bad = 0;
  double ratio = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    if (std::isnan(want[i]) && std::isnan(got[i])) continue;
    if (got[i] == want[i]) continue;  // infinities too
    const double off = std::abs(got[i] - want[i]);
    if (off <= bound[i]) continue;  // false for NaN
    ++bad;
    const double here = std::isnan(off) ? INFINITY : off / bound[i];
    if (here >= ratio) {
      ratio = here;
      worst = i;
    }
  }
  if (bad == 0) return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << bad << " of " << want.size() << " elements out of bound; worst [" << worst
         << "]: " << got[worst] << " instead of " << want[worst] << ", " << ratio
         << " times the bound " << bound[worst];
}

testing::AssertionResult agrees(const Kernel& kernel, const Cover& cover, const Program& program,
                                size_t begin, const Arrays& start, Runtime& runtime,
                                const KernelTable& table, int64_t steps, const Formatted& given) {
  Bounds oracle(program, start.widened());
  std::set<ValueId> written;
  for (int64_t pass = 0; pass < steps; ++pass) {
    for (size_t op = begin; op < begin + cover.ops; ++op) {
      oracle.run(op);
      for (const Value& value : writes(program.ops[op])) written.insert(value.id);
    }
  }
  Arrays rerun = start;
  Reference reference;
  for (int64_t pass = 0; pass < steps; ++pass) {
    reference.run(program, begin, begin + cover.ops, rerun);
  }
  const KernelResult result =
      run_kernel(kernel, cover, program, begin, start, runtime, table, steps, given);
  if (!result.overruns.empty()) {
    return testing::AssertionFailure()
           << "wrote past the end of " << fmt::format("{}", fmt::join(result.overruns, ", "));
  }
  if (!result.format_faults.empty()) {
    return testing::AssertionFailure() << fmt::format("{}", fmt::join(result.format_faults, "; "));
  }
  for (const ValueInfo& info : program.values) {
    const ValueId id = info.value.id;
    const auto got = result.arrays.doubles(id);
    if (std::ranges::count(cover.skips, id) > 0) continue;
    if (!written.contains(id)) {
      const auto same = within(got, start.doubles(id), std::vector<double>(got.size(), 0.0));
      if (!same) return testing::AssertionFailure() << "changed " << where(info, same);
      continue;
    }
    const auto close = within(got, oracle.values().doubles(id), oracle.error(id));
    if (!close) return testing::AssertionFailure() << where(info, close);
    if (cover.ops > 1 && is_half(program.precision) && is_float(info.value.dtype)) {
      const auto alike = like_the_rerun(got, oracle.values().doubles(id), rerun.doubles(id),
                                        unit_roundoff(info.value.dtype));
      if (!alike) return testing::AssertionFailure() << where(info, alike);
    }
  }
  return testing::AssertionSuccess();
}

}  // namespace ridgeline::test
