#include "ridgeline/cuda/ladder/rnn_rung_kernels.h"

#include "ridgeline/cuda/recurrent/loop_kernels.h"

namespace ridgeline::cuda {

KernelTable rnn_rung_kernels() {
  using recurrent::loop_backward_kernel;
  using recurrent::loop_forward_kernel;
  // Best first: each lacks a technique that the one before it has.
  KernelTable table{
      loop_forward_kernel("transposed", {.each_input = true, .transposed = true}),
      loop_forward_kernel("fused", {.each_input = true}),
      loop_forward_kernel("streams", {.apart = true, .each_input = true, .streams = true}),
      loop_forward_kernel("one_product", {.apart = true, .each_input = true}),
      loop_forward_kernel("gate_products",
                          {.gate_products = true, .apart = true, .each_input = true}),
      loop_backward_kernel("gate_products", {.gate_products = true})};
  for (Kernel& kernel : table) kernel.traits.demonstration = true;
  return table;
}

}  // namespace ridgeline::cuda
