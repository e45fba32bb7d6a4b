#include "ridgeline/engine/infer/infer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "ridgeline/engine/train/train.h"
#include "tests/dist/thread_ranks.h"
#include "tests/engine/small_set.h"

namespace ridgeline::engine {
namespace {

using dist::testing::on_ranks;
using testing::slurp;

// A trained model, its test images as raw bytes, and the labels that one process gives them.
class InferOverRanks : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto set = testing::small_set();
    TrainOptions train_options;
    train_options.out = temp_ / "run";
    train_options.progress = Progress::Style::none;
    train_options.set = set;
    train(testing::small_config({"train.epochs=3"}), train_options);
    const auto bytes = set->test.inputs.span<const char>();
    raw_ = temp_ / "images.raw";
    std::ofstream(raw_, std::ios::binary).write(bytes.data(), std::streamsize(bytes.size()));
    options_.model.run.tune = false;
    options_.model.run.device = "cpu";
    options_.model.run.threads = 1;
    options_.batch = 4;  // 38 chunks, the last of 2
    infer(temp_ / "run", raw_, temp_ / "one.csv", options_);
    want_ = slurp(temp_ / "one.csv");
  }

  InferReport on(int ranks, const std::string& output) {
    InferReport report;
    on_ranks(ranks, [&](dist::RankCommunicator& communicator) {
      const InferReport mine = infer(temp_ / "run", raw_, temp_ / output, options_, &communicator);
      if (communicator.is_root()) report = mine;
      communicator.barrier();
    });
    return report;
  }

  testing::TempFolder temp_;
  std::filesystem::path raw_;
  InferOptions options_;
  std::string want_;
};

TEST_F(InferOverRanks, EveryTransportGivesWhatOneProcessGives) {
  for (const char* transport : {"credits", "interleaved", "nonblocking", "blocking", "scatter"}) {
    options_.transport = transport;
    for (const int ranks : {2, 3}) {
      const InferReport report = on(ranks, "many.csv");
      EXPECT_EQ(slurp(temp_ / "many.csv"), want_) << transport << ' ' << ranks;
      ASSERT_EQ(report.ranks.size(), size_t(ranks));
      EXPECT_EQ(report.samples, 150);
      int64_t samples = 0;
      for (int r = 0; r < ranks; ++r) {
        const RankTimes& rank = report.ranks[size_t(r)];
        EXPECT_EQ(rank.rank, r);
        for (const DeviceTimes& device : rank.devices) {
          samples += device.samples;
          EXPECT_GE(device.memory_ready, rank.start);
          EXPECT_GE(device.engine_ready, device.memory_ready);
          if (device.samples == 0) continue;
          EXPECT_GE(device.last_in, device.first_in);
          EXPECT_GE(device.compute_end, device.compute_start);
          // Round-robin means evenly, but for the last round.
          if (options_.transport != "credits") {
            EXPECT_GE(device.samples, 150 / ranks - 4);
          }
        }
      }
      EXPECT_EQ(samples, 150);
    }
  }
}

TEST_F(InferOverRanks, ShardedInputGivesTheSame) {
  options_.sharded_input = true;
  for (const int ranks : {2, 3}) {
    const InferReport report = on(ranks, "parts.csv");
    EXPECT_EQ(slurp(temp_ / "parts.csv"), want_) << ranks;
    EXPECT_EQ(report.samples, 150);
    EXPECT_FALSE(std::filesystem::exists(temp_ / "parts.csv.rank1"));
  }
}

TEST_F(InferOverRanks, SeveralDevicesOfARank) {
  options_.model.run.device = "cpu,cpu";
  options_.trace = true;
  const InferReport report = on(2, "devices.csv");
  EXPECT_EQ(slurp(temp_ / "devices.csv"), want_);
  ASSERT_EQ(report.ranks.size(), 2u);
  EXPECT_EQ(report.ranks[1].devices.size(), 2u);
  int64_t computed = 0, arrived = 0;
  for (const RankTimes& rank : report.ranks) {
    for (const ChunkSpan& span : rank.spans) {
      computed += span.device >= 0;
      arrived += span.device == -2;
    }
  }
  EXPECT_EQ(computed, 38);
  EXPECT_EQ(arrived, report.ranks[1].devices[0].chunks + report.ranks[1].devices[1].chunks);
}

TEST_F(InferOverRanks, LabelsAlone) {
  options_.outputs = false;
  on(2, "labels.csv");
  std::istringstream lines(slurp(temp_ / "labels.csv")), full(want_);
  int64_t count = 0;
  for (std::string line, whole; std::getline(lines, line); ++count) {
    ASSERT_TRUE(std::getline(full, whole));
    EXPECT_EQ(line, whole.substr(0, whole.find(',', whole.find(',') + 1)));
  }
  EXPECT_EQ(count, 151);
}

}  // namespace
}  // namespace ridgeline::engine
