#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ridgeline/core/precision.h"
#include "ridgeline/ops/op.h"

namespace ridgeline {

// Where a value's memory comes from and how long its contents matter.
enum class Role : uint8_t {
  temp,    // written and read within one step; lives in the plan's arena
  input,   // read only, given from outside (a resident set, the learning rates)
  param,   // a weight: given from outside, read and updated
  copy,    // a weight in a narrower type, for products: given from outside, rewritten by updates
  state,   // optimizer state and counters: given from outside, read and updated
  output,  // given from outside, written (loss, probabilities)
};

struct ValueInfo {
  std::string name;  // "0.weight", "x1", "loss"
  Value value;
  Role role = Role::temp;
  int64_t below = 1;  // integer values lie in [0, below): what a measurement may fill in
};

// A training step or an inference call: ops in running order over numbered values. Step-to-step
// changes (learning rate, batch position, random offset) are values too, so the list never changes.
struct Program {
  std::vector<ValueInfo> values;
  std::vector<Op> ops;
  Precision precision = Precision::fp32;
  Precision accumulate = Precision::fp32;  // or fp16: what products of linear layers in fp16 sum in
  int64_t repeats = 1;  // how many steps one launch may make; the extent of lr, loss and correct

  Value add_value(std::string name, DType dtype, const Shape& shape, Role role = Role::temp,
                  int64_t below = 1);
  void add(Op op);
  const ValueInfo& info(ValueId id) const { return values[size_t(id)]; }

  double flops() const;
  // The least that must cross memory in a step: every external value's touched bytes once (gathered
  // samples, not whole sets; parameters read and written, copies of them written), temporaries on
  // chip.
  double external_bytes() const;

  // The ops that read or write a value, in running order, and the last of them that reads it (-1:
  // none does). Both are known without a walk over the program when every op came by add(); in a
  // deep model such a walk for each value is what planning would spend its time on.
  std::vector<size_t> uses(ValueId id) const;
  int64_t last_read(ValueId id) const;

 private:
  struct Uses {
    std::vector<uint32_t> ops;
    int64_t last_read = -1;
  };
  std::vector<Uses> uses_;  // by value, of the first `indexed_` ops
  size_t indexed_ = 0;      // other than ops.size(): ops were changed by hand, and are walked over
};

// Text that is equal for two spans exactly when they are the same work: op names, attributes,
// dtypes, shapes and how values connect, with values numbered by first appearance.
std::string signature(const Program& program, size_t begin, size_t end);
std::string signature(const Program& program);

// Whether ranks that run this program talk to one another, in the ops [begin, end) or in any.
bool has_collectives(const Program& program, size_t begin, size_t end);
bool has_collectives(const Program& program);

}  // namespace ridgeline
