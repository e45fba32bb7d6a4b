#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ridgeline/plan/program.h"

namespace ridgeline {

// One layer of a net that computes one sample: y = f(w x + b), or one timestep of a recurrent cell.
// Weights are fp32 in host memory, in the layouts of Linear and Rnn; biases may be null.
struct ChainLayer {
  std::optional<CellKind> cell;  // none: a linear layer
  int64_t in = 0, out = 0;       // out: hidden units of a cell
  std::optional<ActivationKind> activation;
  const float *w = nullptr, *b = nullptr;        // of a cell: w_ih and b_ih
  const float *w_hh = nullptr, *b_hh = nullptr;  // of a cell
  Value h, c;                                    // of a cell: its state before the timestep
};

// A program for one sample that is a plain sequence of layers.
struct LayerChain {
  std::vector<ChainLayer> layers;
  bool softmax = false;         // follows the last layer
  double scale = 1, shift = 0;  // of inputs that are bytes
};

// Returns the program's layer chain; nothing, with the reason in `why_not`, if it is not a chain.
// `weights` returns the host memory of a parameter.
std::optional<LayerChain> find_layer_chain(const Program& program,
                                           const std::function<const float*(const Value&)>& weights,
                                           std::string& why_not);

// A net on a device that answers for one sample at a time, from host memory to host memory.
class OneSampleNet {
 public:
  virtual ~OneSampleNet() = default;
  virtual std::string name() const = 0;
  // outputs[last layer's out] = the chain's result for inputs[first layer's in], before any
  // softmax.
  virtual void run(const float* inputs, float* outputs) = 0;
  // The state of all cells: h of each layer in order, followed by c for an lstm.
  virtual void save_state(float* state) = 0;
  virtual void restore_state(const float* state) = 0;
};

struct OneSampleOptions {
  // The net stays on the device between calls: its multiprocessors poll for the next one. They are
  // released after `idle_seconds` without a call, until the next; 0: never.
  bool resident = false;
  double idle_seconds = 1;
};

}  // namespace ridgeline
