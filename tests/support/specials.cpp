#include "tests/support/specials.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/support/compare.h"
#include "tests/support/oracle.h"

namespace ridgeline::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A number whose products with ordinary ones are finite, although its square hardly is; and one
// that is denormal in its type.
double large(DType dtype) { return dtype == DType::fp16 ? 200 : 1e18; }
double denormal(DType dtype) { return dtype == DType::fp16 ? 3e-7 : 2e-39; }

Value first_real(const Case& c) {
  for (const Value& value : reads(c.program.ops.front())) {
    if (value && is_float(value.dtype)) return value;
  }
  return {};
}

// The case's numbers with these alternately at every fifth index of the first float value.
Arrays with(const Case& c, const Value& value, std::initializer_list<double> specials) {
  Arrays arrays = c.inputs();
  size_t next = 0;
  for (int64_t i = value.shape.numel() / 3 % 5; i < value.shape.numel(); i += 5) {
    set_element(arrays[value], i, specials.begin()[next++ % specials.size()]);
  }
  return arrays;
}

template <typename F>
void each_cover(const Case& c, const KernelTable& table, Runtime& runtime, Exercised& exercised,
                F&& f) {
  for (const Kernel& kernel : table) {
    if (kernel.target != runtime.device().kind || !kernel.covers) continue;
    const Cover cover = offer(kernel, {c.program, 0, runtime});
    if (cover.ops == 0) continue;
    ++exercised[kernel.name];
    f(kernel, cover);
  }
}

}  // namespace

void expect_not_finite(const Case& c, const KernelTable& table, Runtime& runtime,
                       Exercised& exercised, Spread spread) {
  const Value value = first_real(c);
  if (!value) return;
  SCOPED_TRACE(c.name);
  const double most = large(value.dtype);
  for (const auto specials :
       {std::initializer_list<double>{-kInfinity}, {kInfinity, -kInfinity}, {most, -most}}) {
    SCOPED_TRACE(*specials.begin());
    const Arrays start = with(c, value, specials);
    each_cover(c, table, runtime, exercised, [&](const Kernel& kernel, const Cover& cover) {
      Arrays want = start;
      Reference().run(c.program, 0, cover.ops, want);
      const KernelResult got = run_kernel(kernel, cover, c.program, 0, start, runtime, table);
      int64_t lost = 0, made = 0, all = 0;
      for (size_t op = 0; op < cover.ops; ++op) {
        for (const Value& written : writes(c.program.ops[op])) {
          if (std::ranges::count(cover.skips, written.id) > 0) continue;
          const auto wanted = want.doubles(written.id), has = got.arrays.doubles(written.id);
          for (size_t i = 0; i < wanted.size(); ++i, ++all) {
            lost += !std::isfinite(wanted[i]) && std::isfinite(has[i]);
            made += std::isfinite(wanted[i]) && !std::isfinite(has[i]);
          }
        }
      }
      EXPECT_EQ(lost, 0) << kernel.name << " makes finite what is not (of " << all << ")";
      if (spread == Spread::none) {
        EXPECT_EQ(made, 0) << kernel.name << " loses finite numbers (of " << all << ")";
      }
    });
  }
}

void expect_small(const Case& c, const KernelTable& table, Runtime& runtime, Exercised& exercised) {
  const Value value = first_real(c);
  if (!value) return;
  SCOPED_TRACE(c.name);
  const double least = denormal(value.dtype);
  const Arrays start = with(c, value, {-0.0, least, 0.0, -least});
  each_cover(c, table, runtime, exercised, [&](const Kernel& kernel, const Cover& cover) {
    EXPECT_TRUE(agrees(kernel, cover, c.program, 0, start, runtime, table)) << kernel.name;
  });
}

}  // namespace ridgeline::test
