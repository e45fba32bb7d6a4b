#include "ridgeline/cuda/rows.h"

#include "ridgeline/cuda/conv_rows.h"
#include "ridgeline/cuda/gemm_rows.h"
#include "ridgeline/cuda/mlp_rows.h"
#include "ridgeline/cuda/plain/rows.h"
#include "ridgeline/cuda/vendor/rows.h"

namespace ridgeline::cuda {

Table rows() {
  Table table;
  for (const auto family :
       {mlp_train_rows, conv_rows, implicit_conv_rows, plain_batch_rows, gemm_rows, cublaslt_rows,
        cudnn_rows, plain_linear_rows, unrolled_conv_rows, plain_conv_rows, plain_image_rows,
        plain_loss_rows, plain_update_rows}) {
    for (Impl& row : family()) table.push_back(std::move(row));
  }
  return table;
}

}  // namespace ridgeline::cuda
