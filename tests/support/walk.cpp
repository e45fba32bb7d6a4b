#include "tests/support/walk.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <vector>

namespace ridgeline::test {
namespace {

constexpr const char *kCases = "RIDGELINE_TEST_CASES", *kKernels = "RIDGELINE_TEST_KERNELS";

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
bool wanted_kernel(const std::string& name) { return named(name, kKernels); }
bool all_wanted() { return words_of(kCases).empty() && words_of(kKernels).empty(); }

void walk(const Case& c, const KernelTable& table, Runtime& runtime, Exercised& exercised) {
  SCOPED_TRACE(c.name);
  Arrays arrays = c.inputs();
  Reference reference;
  for (size_t op = 0; op < c.program.ops.size(); ++op) {
    for (const Kernel& kernel : table) {
      if (kernel.target != runtime.device().kind || !kernel.covers || !wanted_kernel(kernel.name))
        continue;
      const Cover cover = kernel.covers({c.program, op, runtime});
      if (cover.ops == 0) {
        EXPECT_FALSE(cover.reason.empty()) << kernel.name << " refuses without a reason";
        continue;
      }
      ++exercised[kernel.name];
      EXPECT_TRUE(agrees(kernel, cover, c.program, op, arrays, runtime, table))
          << kernel.name << " at op " << op << ": " << describe(c.program.ops[op]);
      if (c.steps > 1 && cover.ops == c.program.ops.size()) {
        EXPECT_TRUE(agrees(kernel, cover, c.program, op, arrays, runtime, table, c.steps))
            << kernel.name << ", " << c.steps << " steps";
      }
    }
    reference.run(c.program, op, arrays);
  }
}

}  // namespace ridgeline::test
