#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ridgeline/core/precision.h"
#include "ridgeline/ops/op.h"

namespace ridgeline {

// The source of a value's memory, and how long its contents matter.
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
  int64_t below = 1;  // integer values lie in [0, below); measurements fill in such values
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
  // The least memory traffic of a step: every external value's touched bytes once (gathered
  // samples, not whole sets; parameters read and written, copies of them written), with temporaries
  // on chip.
  double external_bytes() const;

  // The ops that read or write a value, in running order, and the last of them that reads it (-1:
  // none). Both need no walk over the program if every op was added with add(); in a deep model,
  // such a walk for each value would dominate planning.
  std::vector<size_t> uses(ValueId id) const;
  int64_t last_read(ValueId id) const;

 private:
  struct Uses {
    std::vector<uint32_t> ops;
    int64_t last_read = -1;
  };
  std::vector<Uses> uses_;  // by value, of the first `indexed_` ops
  size_t indexed_ = 0;  // other than ops.size() if ops were changed directly; then all are walked
};

// Returns a text that is equal for two spans exactly if they are the same work: op names,
// attributes, dtypes, shapes and how values connect, with values numbered by first appearance.
std::string signature(const Program& program, size_t begin, size_t end);
std::string signature(const Program& program);

// Returns whether ranks that run this program communicate, in the ops [begin, end) or in any op.
bool has_collectives(const Program& program, size_t begin, size_t end);
bool has_collectives(const Program& program);

}  // namespace ridgeline
