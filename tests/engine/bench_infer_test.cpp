#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "ridgeline/engine/bench/infer.h"
#include "ridgeline/engine/machine.h"

namespace ridgeline::engine {
namespace {

// A small network over texts: its samples need no files.
Config text_config() {
  return parse_config(R"([data]
name = "ag-news"
[data.text]
length = 30
[model]
layers = [
  { type = "onehot_conv1d", symbols = 70, out = 16, kernel = 3 },
  { type = "relu" },
  { type = "maxpool1d", kernel = 2 },
  { type = "conv1d", out = 8, kernel = 3 },
  { type = "relu" },
  { type = "flatten" },
  { type = "linear", out = 4 },
]
[train]
batch = 8
)",
                      "text.toml", {"run.tune=false", "run.device=\"cpu\"", "run.threads=2"});
}

TEST(BenchInfer, EveryOpHasItsTimeAlone) {
  const InferBenchLine line = bench_infer(text_config(), {}, 5, 0.02, true);
  std::vector<std::string> kinds;
  for (const OpTime& time : line.ops) {
    kinds.push_back(time.op.substr(0, time.op.find(' ')));
    EXPECT_FALSE(time.ours.kernel.empty() && time.library.kernel.empty()) << time.op;
    if (!time.ours.kernel.empty()) {
      EXPECT_GT(time.ours.seconds, 0) << time.op;
      EXPECT_FALSE(time.ours.vendor) << time.ours.kernel;
    }
    EXPECT_EQ(time.library.vendor, !time.library.kernel.empty()) << time.op;
  }
  EXPECT_EQ(kinds, (std::vector<std::string>{"gather", "one_hot_conv1d", "activation", "max_pool",
                                             "conv2d", "activation", "linear", "softmax"}));
  const auto json = nlohmann::json::parse(infer_bench_json({line}, text_config(), "texts"));
  EXPECT_EQ(json[0]["ops"].size(), line.ops.size());
  EXPECT_EQ(json[0]["ops"][4]["op"], line.ops[4].op);
}

TEST(BenchInfer, OpsAreTimedOnlyWhereAskedFor) {
  EXPECT_TRUE(bench_infer(text_config(), {}, 3, 0.01).ops.empty());
}

}  // namespace
}  // namespace ridgeline::engine
