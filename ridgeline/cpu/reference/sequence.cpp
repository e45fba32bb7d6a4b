#include <algorithm>
#include <cstring>

#include "ridgeline/cpu/reference/kernel.h"

namespace ridgeline::cpu {
namespace {

std::unique_ptr<Step> prepare_embedding(const Embedding& op, ReferenceBinding& binding) {
  return make_step([token = binding.read(op.token), width = op.width(), w = binding.reads(op.w),
                    y = binding.writes(op.y)]() mutable {
    w.load();
    for (int64_t i = 0; i < token.numel(); ++i) {
      std::copy_n(w.data() + token.as<int32_t>()[i] * width, width, y.data() + i * width);
    }
    y.store();
  });
}

std::unique_ptr<Step> prepare_embedding_grad(const EmbeddingGrad& op, ReferenceBinding& binding) {
  return make_step([token = binding.read(op.token), width = op.width(), dy = binding.reads(op.dy),
                    dw = binding.writes(op.dw)]() mutable {
    dy.load();
    std::fill_n(dw.data(), dw.size(), 0.0);
    for (int64_t i = 0; i < token.numel(); ++i) {
      const int64_t row = token.as<int32_t>()[i] * width;
      for (int64_t j = 0; j < width; ++j) dw[row + j] += dy[i * width + j];
    }
    dw.store();
  });
}

// Returns the timestep of sample b that `at` selects.
int64_t selected(const Tensor& lengths, int64_t steps, int64_t at, int64_t b) {
  const int64_t length = lengths.data != nullptr ? lengths.as<int32_t>()[b] : steps;
  return at >= 0 ? at : std::max<int64_t>(0, length + at);
}

std::unique_ptr<Step> prepare_select(const SelectTimestep& op, ReferenceBinding& binding) {
  return make_step([steps = op.steps, at = op.at, batch = op.batch(), width = op.features(),
                    lengths = binding.read(op.lengths), x = binding.reads(op.x),
                    y = binding.writes(op.y)]() mutable {
    x.load();
    for (int64_t b = 0; b < batch; ++b) {
      const int64_t t = selected(lengths, steps, at, b);
      std::copy_n(x.data() + (b * steps + t) * width, width, y.data() + b * width);
    }
    y.store();
  });
}

std::unique_ptr<Step> prepare_select_grad(const SelectTimestepGrad& op, ReferenceBinding& binding) {
  return make_step([steps = op.steps, at = op.at, batch = op.batch(), width = op.features(),
                    lengths = binding.read(op.lengths), dy = binding.reads(op.dy),
                    dx = binding.writes(op.dx)]() mutable {
    dy.load();
    std::fill_n(dx.data(), dx.size(), 0.0);
    for (int64_t b = 0; b < batch; ++b) {
      const int64_t t = selected(lengths, steps, at, b);
      std::copy_n(dy.data() + b * width, width, dx.data() + (b * steps + t) * width);
    }
    dx.store();
  });
}

std::unique_ptr<Step> prepare_copy(const Copy& op, ReferenceBinding& binding) {
  return make_step([from = binding.read(op.from), to = binding.write(op.to)] {
    std::memmove(to.data, from.data, from.bytes());
  });
}

}  // namespace

KernelTable sequence_reference() {
  return {reference_kernel(prepare_embedding), reference_kernel(prepare_embedding_grad),
          reference_kernel(prepare_select), reference_kernel(prepare_select_grad),
          reference_kernel(prepare_copy)};
}

}  // namespace ridgeline::cpu
