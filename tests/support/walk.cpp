#include "tests/support/walk.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <vector>

namespace ridgeline::test {
namespace {

std::vector<std::string> wanted_words() {
  std::vector<std::string> words;
  const char* text = std::getenv("RIDGELINE_TEST_CASES");
  std::istringstream stream(text != nullptr ? text : "");
  for (std::string word; std::getline(stream, word, ',');) words.push_back(word);
  return words;
}

}  // namespace

bool wanted(const Case& c) {
  const auto words = wanted_words();
  return words.empty() || std::any_of(words.begin(), words.end(), [&](const std::string& word) {
           return c.name.find(word) != c.name.npos;
         });
}

bool all_wanted() { return wanted_words().empty(); }

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
