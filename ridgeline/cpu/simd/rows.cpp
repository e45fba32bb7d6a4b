#include "ridgeline/cpu/simd/rows.h"

#include <iterator>
#include <utility>

#include "ridgeline/cpu/simd/row.h"

namespace ridgeline::cpu {

// Longest spans first: without measurements the planner takes the first row that covers.
Table simd_rows() {
  Table table;
  for (Table part : {simd::mlp_rows(), simd::linear_rows(), simd::softmax_rows(), simd::mse_rows(),
                     simd::elementwise_rows(), simd::dropout_rows(), simd::one_hot_conv_rows(),
                     simd::signal_rows(), simd::bf16_rows(), simd::update_rows(),
                     simd::recurrent_rows(), simd::conv_rows(), simd::all_reduce_rows()}) {
    table.insert(table.end(), std::make_move_iterator(part.begin()),
                 std::make_move_iterator(part.end()));
  }
  return table;
}

}  // namespace ridgeline::cpu
