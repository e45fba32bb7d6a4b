#include "ridgeline/cuda/rows.h"

#include <algorithm>
#include <array>

#include "ridgeline/cuda/all_reduce_rows.h"
#include "ridgeline/cuda/conv/rows.h"
#include "ridgeline/cuda/conv1d/rows.h"
#include "ridgeline/cuda/gemm/rows.h"
#include "ridgeline/cuda/generate/rows.h"
#include "ridgeline/cuda/graph_order.h"
#include "ridgeline/cuda/mlp_step/byte_rows.h"
#include "ridgeline/cuda/mlp_step/digit_rows.h"
#include "ridgeline/cuda/mlp_step/rows.h"
#include "ridgeline/cuda/mlp_train/rows.h"
#include "ridgeline/cuda/plain/rows.h"
#include "ridgeline/cuda/profile.h"
#include "ridgeline/cuda/recurrent/rows.h"
#include "ridgeline/cuda/tile/head_rows.h"
#include "ridgeline/cuda/tile/rows.h"
#include "ridgeline/cuda/vendor/rows.h"

namespace ridgeline::cuda {
namespace {

Table exact_cudnn_rnn_rows() { return cudnn_rnn_rows(false); }

// Rows whose work uses nothing but what the program names and their workspace: in a graph they run
// beside others. The rest run alone.
constexpr auto kBeside = std::to_array<Table (*)()>(
    {head_grads_rows,    conv_rows,           conv_grads_rows, wgmma_conv_rows, pooled_conv_rows,
     implicit_conv_rows, plain_batch_rows,    gemm_rows,       cublaslt_rows,   plain_linear_rows,
     unrolled_conv_rows, plain_conv_rows,     plain_pool_rows, norm_rows,       plain_loss_rows,
     plain_update_rows,  plain_sequence_rows, plain_text_rows, fp32_conv_rows,  fp32_grad_w_rows,
     linear_split_rows});

}  // namespace

Table rows() {
  Table table;
  for (const auto family : {mlp_train_rows,      mlp_byte_rows,
                            mlp_digit_rows,      mlp_step_rows,
                            generated_rows,      head_rows,
                            head_grads_rows,     signal_chain_rows,
                            signal_rows,         signal_training_rows,
                            conv_rows,           fp32_grad_w_rows,
                            constant_conv_rows,  conv_grads_rows,
                            wgmma_conv_rows,     pooled_conv_rows,
                            implicit_conv_rows,  plain_batch_rows,
                            gemm_rows,           cublaslt_rows,
                            cudnn_rows,          linear_split_rows,
                            tile_rows,           plain_linear_rows,
                            unrolled_conv_rows,  plain_conv_rows,
                            plain_pool_rows,     norm_rows,
                            plain_loss_rows,     plain_update_rows,
                            all_reduce_rows,     rnn_stack_rows,
                            rnn_persistent_rows, exact_cudnn_rnn_rows,
                            rnn_loop_rows,       rnn_product_rows,
                            plain_sequence_rows, plain_text_rows,
                            fp32_conv_rows}) {
    const bool alone = std::ranges::find(kBeside, family) == kBeside.end();
    for (Impl& row : family()) {
      table.push_back(with_range(in_graph_order(std::move(row), alone)));
    }
  }
  return table;
}

Table peer_rows() { return cudnn_rnn_rows(true); }

}  // namespace ridgeline::cuda
