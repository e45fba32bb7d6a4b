#pragma once

#include <string>
#include <vector>

namespace ridgeline::engine {

// Names of the kernels of each plan of a run; kept in checkpoints. A tail is the plan of a last,
// smaller batch; it is empty if there is no such plan, or none yet.
struct KernelNames {
  std::vector<std::string> train, tail, evaluate, evaluate_tail;
  std::vector<std::string> validate{}, validate_tail{};  // of the validation set

  bool operator==(const KernelNames&) const = default;
};

}  // namespace ridgeline::engine
