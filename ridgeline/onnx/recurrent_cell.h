#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ridgeline/onnx/graph.h"

namespace ridgeline::onnx {

// One timestep, as the body of a loop computes it.
struct TimestepBody {
  struct State {
    std::string before, after;  // values of the body
    int64_t width;
  };
  const Graph* body;
  std::map<std::string, ConstantPtr>
      constants;  // those of the body, and what it reads that is known
  std::string x;  // [N, features]
  int64_t features;
  std::vector<State> states;            // [N, width]
  std::vector<std::string> per_step{};  // values that the loop stacks over its timesteps
};

// The node RNN, GRU or LSTM that computes the same, with one direction.
struct RecurrentCell {
  std::string op;
  std::map<std::string, Attribute> attributes;
  ConstantPtr w, r, bias;
  size_t hidden = 0, memory = 0;  // which states are h and, for LSTM, c
};

// Evaluates the body as expressions of x and the states and compares these with the equations of
// the three operators, so that neither names nor the order of sums, products and slices matter.
// Returns none if it computes something else, or if a value of `per_step` is not the new h.
std::optional<RecurrentCell> recognise_cell(const TimestepBody& timestep);

}  // namespace ridgeline::onnx
