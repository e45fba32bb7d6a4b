#include "ridgeline/cpu/simd/kernels.h"

#include <iterator>
#include <utility>

#include "ridgeline/cpu/simd/kernel.h"
#include "ridgeline/cpu/simd/split_kernels.h"

namespace ridgeline::cpu {

namespace simd {

KernelTable split_kernels(const SplitEngine& engine) {
  KernelTable table = mlp_split_kernels(engine);
  for (Kernel& kernel : recurrent_split_kernels(engine)) table.push_back(std::move(kernel));
  return table;
}

}  // namespace simd

// The longest spans come first: without measurements the planner takes the first kernel that
// covers.
KernelTable simd_kernels() {
  KernelTable table;
  if (const simd::SplitEngine* engine = simd::split_engine()) table = simd::split_kernels(*engine);
  for (KernelTable part : {simd::mlp_kernels(),
                           simd::linear_kernels(),
                           simd::softmax_kernels(),
                           simd::weighted_xent_kernels(),
                           simd::elementwise_loss_kernels(),
                           simd::group_norm_kernels(),
                           simd::batch_norm_kernels(),
                           simd::elementwise_kernels(),
                           simd::join_kernels(),
                           simd::rearrange_kernels(),
                           simd::unary_kernels(),
                           simd::gather_augment_kernels(),
                           simd::embedding_kernels(),
                           simd::dropout_kernels(),
                           simd::one_hot_conv_kernels(),
                           simd::signal_kernels(),
                           simd::bf16_kernels(),
                           simd::update_kernels(),
                           simd::recurrent_kernels(),
                           simd::conv_kernels(),
                           simd::all_reduce_kernels()}) {
    table.insert(table.end(), std::make_move_iterator(part.begin()),
                 std::make_move_iterator(part.end()));
  }
  return table;
}

}  // namespace ridgeline::cpu
