#pragma once

#include <string>
#include <vector>

namespace ridgeline::engine {

// Names of the kernels that each plan of a run is made of; kept in checkpoints. A tail is the plan
// of a last, smaller batch; where there is none, or no such plan was made yet, it has no names.
struct KernelNames {
  std::vector<std::string> train, tail, evaluate, evaluate_tail;
  std::vector<std::string> validate{}, validate_tail{};  // of the validation set

  bool operator==(const KernelNames&) const = default;
};

}  // namespace ridgeline::engine
