#include "ridgeline/plan/kernel_aliases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "ridgeline/plan/kernel_patterns.h"
#include "ridgeline/registry.h"

namespace ridgeline {
namespace {

struct Pair {
  const char *former, *current;
};

TEST(KernelAliases, FormerNamesBecomeTodays) {
  constexpr Pair kPairs[] = {
      {"cpu.conv1d.toom", "cpu.conv1d.winograd1d"},
      {"cuda.conv2d_grad_w.toom", "cuda.conv2d_grad_w.winograd1d"},
      {"cuda.conv2d_pool.strips", "cuda.conv2d_pool.register_tiled"},
      {"cuda.mlp_step.digits", "cuda.mlp_step.int8_split"},
      {"cuda.mlp_step.bytes", "cuda.mlp_step.fp16_split_u8"},
      {"cuda.mlp_train.mirrored", "cuda.mlp_train.cluster_replicated"},
      {"cuda.mlp_train.spread", "cuda.mlp_train.grid_sharded"},
      {"cuda.mlp_train.streamed", "cuda.mlp_train.weight_streaming"},
      {"cpu.turn.simd", "cpu.channel_rows.simd"},
      {"cuda.turn_signal.plain", "cuda.transpose_signal.plain"},
      {"cuda.gather_conv2d_pool.few", "cuda.gather_conv2d_pool.small_cin"},
      {"cuda.conv2d_pool_twice.tensor.0", "cuda.conv2d_pool_x2.fused_conv2.0"},
      {"cuda.gather_conv2d_pool_twice.tensor.12", "cuda.gather_conv2d_pool_x2.fused_conv2.12"},
      {"cuda.gather_conv_net.whole", "cuda.gather_conv_net.fused_lenet"},
      {"cuda.pool_conv2d_grad_w.windows", "cuda.pool_conv2d_grad_w.pool_sparse"},
      {"cpu.pool_conv2d_grads.windows", "cpu.pool_conv2d_grads.pool_sparse"},
      {"cuda.relu_pool.threes", "cuda.relu_pool.pool3"},
      {"cpu.rnn.items", "cpu.rnn.batch_parallel"},
      {"cpu.rnn_grads.items", "cpu.rnn_grads.batch_parallel"},
      {"cpu.one_hot_norm_relu_pool.rows", "cpu.one_hot_norm_relu_pool.row_wise"},
      {"cuda.norm_relu_pool.rows", "cuda.norm_relu_pool.row_wise"},
      {"cuda.rnn.persistent_streamed", "cuda.rnn.persistent_weight_streaming"},
      {"cpu.select_step.reference", "cpu.select_timestep.reference"},
      {"cuda.select_step_grad.plain", "cuda.select_timestep_grad.plain"}};
  for (const auto& [former, current] : kPairs) {
    EXPECT_EQ(current_kernel_name(former), current);
    EXPECT_EQ(current_kernel_name(current), current) << "is no longer a former name";
  }
}

TEST(KernelAliases, OtherNamesStayAsTheyAre) {
  for (const char* name : {"", "cpu.linear.simd", "cpu.conv2d_pool.direct", "cuda.rnn.persistent",
                           "cuda.mlp_infer.rows",  // was removed
                           "cuda.linear.tensor.3", "toom", "cpu.conv1d.toom.2"}) {
    EXPECT_EQ(current_kernel_name(name), name);
  }
  const std::vector<std::string> names{"cpu.gather.simd", "cpu.rnn.items"};
  EXPECT_EQ(current_kernel_names(names),
            (std::vector<std::string>{"cpu.gather.simd", "cpu.rnn.batch_parallel"}));
}

// If a current kernel had a former name of another, it could not be selected by its name.
TEST(KernelAliases, NoKernelOfTodayHasAFormerName) {
  for (const Kernel& kernel : all_kernels()) {
    EXPECT_EQ(current_kernel_name(kernel.name), kernel.name);
  }
}

// On the CPU, where the kernels of every build can be looked up.
TEST(KernelAliases, TodaysNamesAreThoseOfKernels) {
  std::set<std::string> names;
  for (const Kernel& kernel : all_kernels()) names.insert(kernel.name);
  for (const char* former :
       {"cpu.conv2d.toom", "cpu.conv2d_pool.toom", "cpu.conv2d_activation.toom", "cpu.conv1d.toom",
        "cpu.turn.simd", "cpu.pool_conv2d_grads.windows", "cpu.rnn.items", "cpu.rnn_grads.items",
        "cpu.one_hot_norm_relu_pool.rows", "cpu.select_step.reference",
        "cpu.select_step_grad.reference"}) {
    EXPECT_TRUE(names.contains(current_kernel_name(former))) << current_kernel_name(former);
  }
}

TEST(KernelAliases, PatternsMayHoldFormerNames) {
  EXPECT_TRUE(fits_any("cpu.conv2d.winograd1d", {"*.toom"}));
  EXPECT_TRUE(fits_any("cpu.conv2d.winograd1d", {"cpu.conv2d.toom"}));
  EXPECT_TRUE(fits_any("cuda.pool_conv2d_grad_w.pool_sparse", {"*.windows"}));
  EXPECT_TRUE(fits_any("cuda.gather_conv2d_pool.small_cin", {"cuda.*conv2d_pool.few"}));
  EXPECT_TRUE(fits_any("cuda.conv2d_pool_x2.fused_conv2.1", {"cuda.*conv2d_pool_twice.tensor.*"}));
  EXPECT_TRUE(fits_any("cuda.select_timestep_grad.plain", {"cuda.select_step"}));
  EXPECT_TRUE(fits_any("cpu.conv2d.winograd1d", {"*.winograd1d"}));
  EXPECT_FALSE(fits_any("cpu.conv2d.direct", {"*.toom"}));
}

}  // namespace
}  // namespace ridgeline
