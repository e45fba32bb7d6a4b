#include "ridgeline/cpu/reference/rows.h"

#include "ridgeline/cpu/reference/row.h"

namespace ridgeline::cpu {

Table reference_rows() {
  Table table;
  for (const auto family :
       {gather_reference, linear_reference, conv_reference, one_hot_conv_reference, pool_reference,
        norm_reference, activation_reference, dropout_reference, softmax_reference, mse_reference,
        update_reference, recurrent_reference, sequence_reference, all_reduce_reference}) {
    for (Impl& row : family()) table.push_back(std::move(row));
  }
  return table;
}

}  // namespace ridgeline::cpu
