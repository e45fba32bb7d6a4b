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

// How often a kernel is tried; 0: wherever it can be.
int64_t most_times() {
  const char* text = std::getenv("RIDGELINE_TEST_TIMES");
  return text != nullptr ? std::atoll(text) : 0;
}

}  // namespace

bool wanted(const Case& c) { return named(c.name, kCases); }
bool wanted_kernel(const std::string& name) { return named(name, kKernels); }
bool all_wanted() { return words_of(kCases).empty() && words_of(kKernels).empty(); }

void walk(const Case& c, const KernelTable& table, Runtime& runtime, Exercised& exercised) {
  SCOPED_TRACE(c.name);
  const int64_t most = most_times();
  const auto left_out = [&](const Kernel& kernel) {
    if (kernel.target != runtime.device().kind || !kernel.covers) return true;
    if (!kernel.traits.runs_on(runtime.architecture())) return true;
    return !wanted_kernel(kernel.name) || (most > 0 && exercised[kernel.name] >= most);
  };
  const auto covers_any = [&](const Kernel& kernel) {
    for (size_t op = 0; op < c.program.ops.size(); ++op) {
      if (kernel.covers({c.program, op, runtime}).ops > 0) return true;
    }
    return false;
  };
  if (most > 0 && std::ranges::none_of(table, [&](const Kernel& kernel) {
        return !left_out(kernel) && covers_any(kernel);
      })) {
    return;  // the reference need not compute it either
  }
  Arrays arrays = c.inputs();
  Reference reference;
  for (size_t op = 0; op < c.program.ops.size(); ++op) {
    for (const Kernel& kernel : table) {
      if (left_out(kernel)) continue;
      const Cover cover = kernel.covers({c.program, op, runtime});
      EXPECT_TRUE(cover.ops == 0 || kernel.traits.takes(c.program.precision))
          << kernel.name << " covers what its traits exclude";
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

void expect_exercised(const KernelTable& table, Precision precision, const Runtime& runtime,
                      const Exercised& exercised, const std::function<bool(Library)>& lacks) {
  if (!all_wanted()) return;
  for (const Kernel& kernel : table) {
    const Traits& traits = kernel.traits;
    if (kernel.converts || kernel.target != runtime.device().kind || traits.further_proposal ||
        !traits.precisions.has(precision) || !traits.runs_on(runtime.architecture()) ||
        lacks(traits.library)) {
      continue;
    }
    EXPECT_TRUE(exercised.contains(kernel.name))
        << kernel.name << ": no case exercises it in " << name(precision);
  }
}

}  // namespace ridgeline::test
