#include "ridgeline/nn/activation_memory.h"

#include <algorithm>
#include <set>

namespace ridgeline::nn {

std::vector<double> activation_bytes(const Lowered& lowered, size_t layers) {
  const Program& program = lowered.program;
  std::vector<double> kept(layers);
  const auto loss = std::ranges::find_if(program.ops, [&](const Op& op) {
    const Values written = writes(op);
    return std::ranges::any_of(written,
                               [&](const Value& value) { return value.id == lowered.loss.id; });
  });
  const auto end = size_t(loss - program.ops.begin());
  std::set<ValueId> counted;
  for (size_t i = 0; i < std::min(end, program.ops.size()); ++i) {
    const int layer = lowered.op_layer[i];
    if (layer < 0) continue;
    for (const Value& value : writes(program.ops[i])) {
      if (program.info(value.id).role != Role::temp) continue;
      if (program.last_read(value.id) <= int64_t(end)) continue;
      if (counted.insert(value.id).second) {
        kept[size_t(layer)] += size_of(program.info(value.id).value);
      }
    }
  }
  return kept;
}

}  // namespace ridgeline::nn
