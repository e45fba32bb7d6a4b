#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "ridgeline/plan/kernel.h"

namespace ridgeline::cpu::simd {

// Who computes a linear or recurrent layer.
enum class NetTeam { caller, all_threads };

// Returns the floats of the packed weights of an op.
int64_t net_infer_weights(const Op& op);
// Returns the bytes of memory of an op besides its values.
size_t net_infer_state(const Op& op);
// Prepares the ops of a span, each of which covers_net_infer has accepted.
std::unique_ptr<Step> prepare_net_infer(const Span& span, const Binding& binding, NetTeam team);

}  // namespace ridgeline::cpu::simd
