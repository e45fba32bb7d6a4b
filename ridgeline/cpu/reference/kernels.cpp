#include "ridgeline/cpu/reference/kernels.h"

#include "ridgeline/cpu/reference/kernel.h"

namespace ridgeline::cpu {

KernelTable reference_kernels() {
  KernelTable table;
  for (const auto family :
       {gather_reference, linear_reference, conv_reference, one_hot_conv_reference, pool_reference,
        norm_reference, group_norm_reference, activation_reference, dropout_reference,
        softmax_reference, mse_reference, elementwise_loss_reference, update_reference,
        recurrent_reference, sequence_reference, join_reference, rearrange_reference,
        unary_reference, all_reduce_reference}) {
    for (Kernel& kernel : family()) table.push_back(std::move(kernel));
  }
  return table;
}

}  // namespace ridgeline::cpu
