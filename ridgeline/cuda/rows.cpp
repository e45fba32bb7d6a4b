#include "ridgeline/cuda/rows.h"

#include "ridgeline/cuda/gemm_rows.h"
#include "ridgeline/cuda/mlp_rows.h"
#include "ridgeline/cuda/plain/rows.h"
#include "ridgeline/cuda/profile.h"
#include "ridgeline/cuda/vendor/rows.h"

namespace ridgeline::cuda {

Table rows() {
  Table table;
  for (const auto family : {mlp_train_rows, plain_batch_rows, gemm_rows, cublaslt_rows,
                            plain_linear_rows, plain_loss_rows, plain_update_rows}) {
    for (Impl& row : family()) table.push_back(with_range(std::move(row)));
  }
  return table;
}

}  // namespace ridgeline::cuda
