#include "ridgeline/nn/lower_prune.h"

#include <algorithm>

namespace ridgeline::nn {
namespace {

// Keeps the ops with stays[i], and their layers.
void keep_ops(Lowered& lowered, const std::vector<bool>& stays) {
  Program kept;
  kept.values = lowered.program.values;
  kept.precision = lowered.program.precision;
  kept.accumulate = lowered.program.accumulate;
  kept.repeats = lowered.program.repeats;
  std::vector<int> layers;
  for (size_t i = 0; i < stays.size(); ++i) {
    if (!stays[i]) continue;
    kept.add(lowered.program.ops[i]);
    layers.push_back(lowered.op_layer[i]);
  }
  lowered.program = std::move(kept);
  lowered.op_layer = std::move(layers);
}

}  // namespace

void drop_unread(Lowered& lowered, const std::vector<size_t>& recomputed) {
  std::vector<bool> stays(lowered.program.ops.size(), true);
  std::set<ValueId> read;
  for (size_t i = stays.size(); i-- > 0;) {
    const Op& op = lowered.program.ops[i];
    stays[i] = !std::ranges::binary_search(recomputed, i) ||
               std::ranges::any_of(writes(op), [&](const Value& y) { return read.contains(y.id); });
    if (!stays[i]) continue;
    for (const Value& x : reads(op)) read.insert(x.id);
  }
  keep_ops(lowered, stays);
}

void drop_unwanted(Lowered& lowered, const std::set<ValueId>& unwanted) {
  const auto is_unwanted = [&](const Op& op) {
    const Values written = writes(op);
    return !written.empty() && std::ranges::all_of(written, [&](const Value& value) {
      return !value || unwanted.contains(value.id);
    });
  };
  std::vector<bool> stays;
  for (const Op& op : lowered.program.ops) stays.push_back(!is_unwanted(op));
  keep_ops(lowered, stays);
}

}  // namespace ridgeline::nn
