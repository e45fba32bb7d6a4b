#include "tests/support/pairs.h"

#include <algorithm>
#include <functional>

#include "tests/support/oracle.h"

namespace ridgeline::test {
namespace {

using Visit = std::function<void(const Kernel&, const Cover&)>;

void each_cover(const Program& program, size_t op, const KernelTable& table, Runtime& runtime,
                const Visit& visit) {
  for (const Kernel& kernel : table) {
    if (kernel.target != runtime.device().kind || !kernel.covers) continue;
    const Cover cover = offer(kernel, {program, op, runtime});
    if (cover.ops > 0) visit(kernel, cover);
  }
}

bool holds(const Formatted& held, ValueId id) {
  return std::ranges::any_of(held, [&](const auto& each) { return each.first.first == id; });
}

// The kernels after `first` that read what it has written, up to the end of the case.
void follow(const Case& c, const Kernel& first, const Cover& cover, size_t begin,
            const Arrays& before, const KernelTable& table, Runtime& runtime, Handed& handed) {
  KernelResult made = run_kernel(first, cover, c.program, begin, before, runtime, table);
  Reference reference;
  for (size_t op = begin + cover.ops; op < c.program.ops.size() && !made.formatted.empty(); ++op) {
    each_cover(c.program, op, table, runtime, [&](const Kernel& kernel, const Cover& next) {
      const bool takes = std::ranges::any_of(
          next.reads, [&](const FormatUse& use) { return holds(made.formatted, use.value); });
      if (!takes || !(wanted_kernel(kernel.name) || wanted_kernel(first.name))) return;
      handed.given_by.insert(first.name);
      handed.taken_by.insert(kernel.name);
      EXPECT_TRUE(
          agrees(kernel, next, c.program, op, made.arrays, runtime, table, 1, made.formatted))
          << first.name << " at op " << begin << ", then " << kernel.name << " at op " << op << ": "
          << describe(c.program.ops[op]);
    });
    reference.run(c.program, op, made.arrays);
    for (const Value& value : writes(c.program.ops[op])) {
      std::erase_if(made.formatted, [&](const auto& each) { return each.first.first == value.id; });
    }
  }
}

}  // namespace

void walk_pairs(const Case& c, const KernelTable& table, Runtime& runtime, Handed& handed) {
  SCOPED_TRACE(c.name);
  Arrays arrays = c.inputs();
  Reference reference;
  for (size_t op = 0; op < c.program.ops.size(); ++op) {
    each_cover(c.program, op, table, runtime, [&](const Kernel& kernel, const Cover& cover) {
      if (!cover.writes.empty()) follow(c, kernel, cover, op, arrays, table, runtime, handed);
    });
    reference.run(c.program, op, arrays);
  }
}

void find_formatted(const Case& c, const KernelTable& table, Runtime& runtime, Handed& found) {
  for (size_t op = 0; op < c.program.ops.size(); ++op) {
    each_cover(c.program, op, table, runtime, [&](const Kernel& kernel, const Cover& cover) {
      if (!cover.writes.empty()) found.given_by.insert(kernel.name);
      if (!cover.reads.empty()) found.taken_by.insert(kernel.name);
    });
  }
}

}  // namespace ridgeline::test
