#include "ridgeline/cpu/reference/kernel.h"

namespace ridgeline::cpu {
namespace {

std::unique_ptr<Step> prepare_dropout(const Dropout& op, ReferenceBinding& binding) {
  const int64_t n = op.x.shape[0];
  const int64_t row = n > 0 ? op.x.shape.numel() / n : 0;
  return make_step([mask = op.mask, first = uint64_t(op.mask.sample_offset * row),
                    step = binding.read(op.step), tick = binding.read(op.tick),
                    x = binding.reads(op.x), y = binding.writes(op.y)]() mutable {
    x.load();
    const uint64_t now = uint64_t(*step.as<int64_t>() + *tick.as<int32_t>());
    for (int64_t i = 0; i < y.size(); ++i) {
      const bool keep =
          DropoutMask::keep(mask.seed, mask.layer, now, first + uint64_t(i), float(mask.p));
      y[i] = keep ? x[i] / (1.0 - mask.p) : 0.0;
    }
    y.store();
  });
}

}  // namespace

KernelTable dropout_reference() { return {reference_kernel(prepare_dropout)}; }

}  // namespace ridgeline::cpu
