#include <vector>

#include "ridgeline/cpu/reference/kernel.h"

namespace ridgeline::cpu {
namespace {

// Sums in fp64 at the start, so the wait has nothing to do. A single process is one rank.
std::unique_ptr<Step> prepare_start(const AllReduceStart& op, ReferenceBinding& binding) {
  std::vector<Doubles> grads, sums;
  for (const Value& grad : op.grads) grads.push_back(binding.reads(grad));
  for (const Value& sum : op.sums) sums.push_back(binding.writes(sum));
  const bool narrow =
      op.wire == DType::bf16 && !op.grads.empty() && op.grads.front().dtype == DType::fp32;
  return make_step([grads = std::move(grads), sums = std::move(sums), narrow,
                    token = binding.write(op.token).as<int64_t>(),
                    ranks = binding.runtime().ranks()]() mutable {
    const auto travelled = [&](double value) {
      return narrow ? double(float(round_to<Bf16>(value))) : value;
    };
    for (size_t k = 0; k < grads.size(); ++k) {
      grads[k].load();
      for (int64_t i = 0; i < grads[k].size(); ++i) sums[k][i] = travelled(grads[k][i]);
      if (ranks != nullptr) {
        ranks->all_reduce(sums[k].data(), sums[k].data(), sums[k].size(), DType::fp64, Reduce::sum,
                          DType::fp64);
      }
      for (int64_t i = 0; i < sums[k].size(); ++i) sums[k][i] = travelled(sums[k][i]);
      sums[k].store();
    }
    *token = 0;
  });
}

std::unique_ptr<Step> prepare_wait(const AllReduceWait&, ReferenceBinding&) {
  return make_step([] {});
}

}  // namespace

KernelTable all_reduce_reference() {
  return {reference_kernel(prepare_start), reference_kernel(prepare_wait)};
}

}  // namespace ridgeline::cpu
