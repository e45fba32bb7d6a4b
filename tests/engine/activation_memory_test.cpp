#include "ridgeline/nn/activation_memory.h"

#include <gtest/gtest.h>

#include "ridgeline/engine/train/trainer.h"
#include "tests/engine/small_set.h"

namespace ridgeline::engine {
namespace {

TEST(ActivationMemory, IsWhatTheBackwardPassReads) {
  const testing::TempFolder folder;
  const Config config = testing::small_config(
      {"model.layers=[{type=\"linear\",out=10},{type=\"tanh\"},{type=\"linear\",out=4}]"});
  Machine machine(config.run);
  Trainer trainer(machine, config, testing::small_set());
  const auto kept = nn::activation_bytes(trainer.runner().lowered(), 3);
  // The gradient of tanh depends on its output, which the last layer also reads; the gradient of
  // the loss reads the output of the last layer.
  EXPECT_EQ(kept, (std::vector<double>{0, 16 * 10 * 4, 16 * 4 * 4}));
}

}  // namespace
}  // namespace ridgeline::engine
