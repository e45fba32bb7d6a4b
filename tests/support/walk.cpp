#include "tests/support/walk.h"

#include <gtest/gtest.h>

namespace ridgeline::test {

void walk(const Case& c, const Table& table, Runtime& runtime, Exercised& exercised) {
  SCOPED_TRACE(c.name);
  Arrays arrays = c.inputs();
  Reference reference;
  for (size_t op = 0; op < c.program.ops.size(); ++op) {
    for (const Impl& row : table) {
      if (row.target != runtime.device().kind || !row.covers) continue;
      const Cover cover = row.covers({c.program, op, runtime});
      if (cover.ops == 0) {
        EXPECT_FALSE(cover.reason.empty()) << row.name << " refuses without a reason";
        continue;
      }
      ++exercised[row.name];
      EXPECT_TRUE(agrees(row, cover, c.program, op, arrays, runtime, table))
          << row.name << " at op " << op << ": " << describe(c.program.ops[op]);
      if (c.steps > 1 && cover.ops == c.program.ops.size()) {
        EXPECT_TRUE(agrees(row, cover, c.program, op, arrays, runtime, table, c.steps))
            << row.name << ", " << c.steps << " steps";
      }
    }
    reference.run(c.program, op, arrays);
  }
}

}  // namespace ridgeline::test
