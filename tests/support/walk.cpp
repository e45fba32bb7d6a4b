#include "tests/support/walk.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <vector>

namespace ridgeline::test {
namespace {

constexpr const char *kCases = "RIDGELINE_TEST_CASES", *kRows = "RIDGELINE_TEST_ROWS";

std::vector<std::string> words_of(const char* variable) {
  std::vector<std::string> words;
  const char* text = std::getenv(variable);
  std::istringstream stream(text != nullptr ? text : "");
  for (std::string word; std::getline(stream, word, ',');) words.push_back(word);
  return words;
}

bool named(const std::string& name, const char* variable) {
  const auto words = words_of(variable);
  return words.empty() || std::any_of(words.begin(), words.end(), [&](const std::string& word) {
           return name.find(word) != name.npos;
         });
}

}  // namespace

bool wanted(const Case& c) { return named(c.name, kCases); }
bool wanted_row(const std::string& name) { return named(name, kRows); }
bool all_wanted() { return words_of(kCases).empty() && words_of(kRows).empty(); }

void walk(const Case& c, const Table& table, Runtime& runtime, Exercised& exercised) {
  SCOPED_TRACE(c.name);
  Arrays arrays = c.inputs();
  Reference reference;
  for (size_t op = 0; op < c.program.ops.size(); ++op) {
    for (const Impl& row : table) {
      if (row.target != runtime.device().kind || !row.covers || !wanted_row(row.name)) continue;
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
