#pragma once

#include <algorithm>
#include <vector>

#include "ridgeline/cpu/simd/kernel.h"

namespace ridgeline::cpu::simd {

// Linear layers with their activations (or none), each of which reads only the layer before it, and
// as the same number of rows: a layer of timesteps may precede one of whole samples.
struct Chain {
  struct Layer {
    const Linear* linear;
    const Activation* activation;  // or null
    const Value& y() const { return activation != nullptr ? activation->y : linear->y; }
  };
  std::vector<Layer> layers;
  std::vector<ValueId> inner;  // values that nothing else reads
  size_t ops;                  // the layers end before this one

  // Finds the layers from op `first` of the rest on.
  explicit Chain(const RemainingOps& rest, size_t first = 0) : ops(first) {
    for (;;) {
      const auto* linear = rest.get<Linear>(ops);
      if (linear == nullptr || !takes(linear->y.dtype) || linear->x.shape.numel() == 0 ||
          linear->y.shape.numel() == 0) {
        return;
      }
      if (!layers.empty()) {
        const Value& before = layers.back().y();
        if (linear->x.id != before.id || linear->n() != layers.front().linear->n()) return;
        if (!rest.dead_after(before, ops + 1)) return;
        inner.push_back(before.id);
      }
      const auto* f = rest.get<Activation>(ops + 1);
      if (f != nullptr && (f->x.id != linear->y.id || !rest.dead_after(linear->y, ops + 2))) {
        f = nullptr;
      }
      if (f != nullptr) inner.push_back(linear->y.id);
      layers.push_back({linear, f});
      ops += f != nullptr ? 2 : 1;
    }
  }
  int64_t widest() const {
    int64_t most = 0;
    for (const Layer& each : layers) most = std::max(most, each.linear->out());
    return most;
  }
};

// Checks whether the next op is the first of consecutive layers: planning does not walk a chain
// again from each of its layers.
inline bool begins_chain(const RemainingOps& rest) {
  const auto is_linear = [&](size_t back) {
    return rest.begin >= back &&
           std::holds_alternative<Linear>(rest.program.ops[rest.begin - back]);
  };
  return !is_linear(1) &&
         !(is_linear(2) && std::holds_alternative<Activation>(rest.program.ops[rest.begin - 1]));
}

}  // namespace ridgeline::cpu::simd
