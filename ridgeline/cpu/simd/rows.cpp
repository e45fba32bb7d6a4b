#include "ridgeline/cpu/simd/rows.h"

#include <iterator>
#include <utility>

#include "ridgeline/cpu/simd/row.h"
#include "ridgeline/cpu/simd/split_rows.h"

namespace ridgeline::cpu {

namespace simd {

Table split_rows(const SplitEngine& engine) { return recurrent_split_rows(engine); }

}  // namespace simd

// Longest spans first: without measurements the planner takes the first row that covers.
Table simd_rows() {
  Table table;
  if (const simd::SplitEngine* engine = simd::split_engine()) table = simd::split_rows(*engine);
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
