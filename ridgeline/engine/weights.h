#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "ridgeline/core/runtime.h"
#include "ridgeline/nn/lower.h"
#include "ridgeline/nn/model.h"
#include "ridgeline/plan/plan.h"

namespace ridgeline::engine {

// All state that a training step changes, on the host: the weights, then the optimizer's state.
struct Snapshot {
  struct Item {
    std::string name;
    HostTensor value;
  };
  std::vector<Item> items;

  // Returns the first floating-point item with a NaN or an infinity; null if there is none.
  const Item* first_not_finite() const;
};

bool all_finite(const Tensor& host);

// Rounds `from` to the type of `to`, element by element; both in host memory and of one shape.
void convert(const Tensor& from, const Tensor& to);

// A model's weights and, for training, the optimizer's state in device memory. All plans of a
// model use the same ones; plans that do not train use the copies for products, if there are
// any.
class Weights {
 public:
  // `lowered` defines the state; a program that does not train has none.
  Weights(Runtime& runtime, const nn::Model& model, const nn::Lowered& lowered);

  void bind(const nn::Lowered& lowered, Externals& externals) const;

  // Without the copies, which upload() computes again from the weights.
  Snapshot download() const;
  void upload(const Snapshot& snapshot);  // names, types and shapes as from download()
  void upload(const nn::Model& model);    // only the weights, rounded to the type kept
  void download_to(nn::Model& model) const;
  void clear_carried();  // zeroes recurrent state

 private:
  struct Item {
    std::string name;
    Value value;
    DeviceBuffer memory;
    bool carried = false;
  };
  const Item& find(const std::string& name) const;
  const Item* find_copy(const std::string& name) const;  // null: the weight has none
  void fill_copies(const Item& item, const Tensor& host);

  Runtime& runtime_;
  size_t params_ = 0;  // items_[0, params_) are the model's
  std::vector<Item> items_;
  std::vector<Item> copies_;                                    // by the name of their weight
  std::unordered_map<std::string, size_t> index_, copy_index_;  // of items_ and copies_, by name
};

}  // namespace ridgeline::engine
