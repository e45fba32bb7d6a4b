#include "ridgeline/cuda/kernels.h"

#include <utility>

#include "ridgeline/cuda/all_reduce_kernels.h"
#include "ridgeline/cuda/channels_last/kernels.h"
#include "ridgeline/cuda/conv/kernels.h"
#include "ridgeline/cuda/conv1d/kernels.h"
#include "ridgeline/cuda/gemm/kernels.h"
#include "ridgeline/cuda/generate/kernels.h"
#include "ridgeline/cuda/graph_order.h"
#include "ridgeline/cuda/half_product/kernels.h"
#include "ridgeline/cuda/ladder/constant_conv_kernels.h"
#include "ridgeline/cuda/ladder/kernels.h"
#include "ridgeline/cuda/ladder/rnn_rung_kernels.h"
#include "ridgeline/cuda/mlp_step/fp16_split_u8_kernels.h"
#include "ridgeline/cuda/mlp_step/int8_split_kernels.h"
#include "ridgeline/cuda/mlp_step/kernels.h"
#include "ridgeline/cuda/mlp_train/kernels.h"
#include "ridgeline/cuda/norm/kernels.h"
#include "ridgeline/cuda/plain/kernels.h"
#include "ridgeline/cuda/population/kernels.h"
#include "ridgeline/cuda/profile.h"
#include "ridgeline/cuda/recurrent/kernels.h"
#include "ridgeline/cuda/tile/head_kernels.h"
#include "ridgeline/cuda/tile/kernels.h"
#include "ridgeline/cuda/vendor/kernels.h"

namespace ridgeline::cuda {
namespace {

KernelTable exact_cudnn_rnn_kernels() { return cudnn_rnn_kernels(false); }

}  // namespace

KernelTable kernels() {
  KernelTable table;
  // One family per line. The first trains a population of runs in one launch. Without measurements
  // a single run takes it too, so that it computes the same bits.
  // clang-format off
  for (const auto family : {population_kernels,
                            mlp_train_kernels,
                            mlp_fp16_split_u8_kernels,
                            mlp_int8_split_kernels,
                            mlp_step_kernels,
                            generated_kernels,
                            head_kernels,
                            head_grads_kernels,
                            signal_chain_kernels,
                            signal_kernels,
                            signal_training_kernels,
                            conv_kernels,
                            fp32_grad_w_kernels,
                            conv_grads_kernels,
                            wgmma_conv_kernels,
                            pooled_conv_kernels,
                            implicit_conv_kernels,
                            plain_batch_kernels,
                            gemm_kernels,
                            cublaslt_kernels,
                            cudnn_kernels,
                            channels_last_conv_kernels,
                            channels_last_implicit_kernels,
                            channels_last_unrolled_kernels,
                            linear_split_kernels,
                            tile_kernels,
                            half_product_kernels,
                            plain_linear_kernels,
                            ladder_kernels,
                            unrolled_conv_kernels,
                            plain_conv_kernels,
                            plain_pool_kernels,
                            norm_kernels,
                            plain_group_norm_kernels,
                            plain_join_kernels,
                            channels_last_norm_kernels,
                            channels_last_image_kernels,
                            plain_rearrange_kernels,
                            plain_loss_kernels,
                            plain_update_kernels,
                            all_reduce_kernels,
                            rnn_stack_kernels,
                            rnn_classifier_kernels,
                            rnn_batch_parallel_kernels,
                            rnn_persistent_kernels,
                            exact_cudnn_rnn_kernels,
                            rnn_loop_kernels,
                            rnn_split_k_kernels,
                            rnn_product_kernels,
                            plain_sequence_kernels,
                            plain_text_kernels,
                            fp32_conv_kernels,
                            // Only ladders use these.
                            constant_conv_kernels,
                            rnn_rung_kernels}) {
    // clang-format on
    for (Kernel& kernel : family()) {
      table.push_back(with_range(in_graph_order(std::move(kernel))));
    }
  }
  return table;
}

KernelTable peer_kernels() { return cudnn_rnn_kernels(true); }

}  // namespace ridgeline::cuda
