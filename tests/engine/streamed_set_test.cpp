#include "ridgeline/engine/train/streamed_set.h"

#include <gtest/gtest.h>

#include "ridgeline/engine/train/trainer.h"
#include "tests/engine/small_set.h"

namespace ridgeline::engine {
namespace {

using testing::small_config;
using testing::small_set;

// The weights after all steps, one number after the other.
std::vector<float> trained(const std::vector<std::string>& sets, bool resident) {
  std::vector<std::string> all = sets;
  all.push_back(resident ? "data.resident=true" : "data.resident=false");
  const Config config = small_config(all);
  Machine machine(config.run);
  Trainer trainer(machine, config, small_set());
  EXPECT_EQ(trainer.streams_data(), !resident);
  while (trainer.step() < trainer.total_steps()) trainer.advance(5);
  std::vector<float> weights;
  for (const nn::Param& param : trainer.model().params()) {
    const auto values = param.value.span<const float>();
    weights.insert(weights.end(), values.begin(), values.end());
  }
  return weights;
}

// 203 samples in batches of 16: windows of several steps, a partial batch, four epochs.
TEST(StreamedSet, TrainsToTheSameBitsAsAResidentOne) {
  EXPECT_EQ(trained({}, false), trained({}, true));
}

TEST(StreamedSet, MovesAndMirrorsImagesAsGathersDo) {
  const std::vector<std::string> moved{"data.augment.shift=2", "data.augment.flip=true"};
  const auto streamed = trained(moved, false);
  EXPECT_EQ(streamed, trained(moved, true));
  EXPECT_NE(streamed, trained({}, true));
}

TEST(StreamedSet, IsForSetsThatDoNotFit) {
  const auto set = small_set();
  Machine cpu(small_config().run);
  EXPECT_FALSE(better_streamed(cpu.runtime(), set->train, std::nullopt));
  EXPECT_TRUE(better_streamed(cpu.runtime(), set->train, false));
}

}  // namespace
}  // namespace ridgeline::engine
