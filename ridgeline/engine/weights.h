#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "ridgeline/core/runtime.h"
#include "ridgeline/nn/lower.h"
#include "ridgeline/nn/model.h"
#include "ridgeline/plan/plan.h"

namespace ridgeline::engine {

// Everything a training step changes, on the host: the weights, then the optimizer's state.
struct Snapshot {
  struct Item {
    std::string name;
    HostTensor value;
  };
  std::vector<Item> items;

  // The first floating-point item that has a NaN or an infinity; null when there is none.
  const Item* first_not_finite() const;
};

bool all_finite(const Tensor& host);

// `from` rounded to the type of `to`, element by element; both in host memory and of one shape.
void convert(const Tensor& from, const Tensor& to);

// A model's weights and, for training, the optimizer's state in a device's memory. All plans of a
// model work on the same ones; those that do not train take the copies that products read, where
// there are any.
class Weights {
 public:
  // `lowered` says which state there is; a program that does not train has none.
  Weights(Runtime& runtime, const nn::Model& model, const nn::Lowered& lowered);

  void bind(const nn::Lowered& lowered, Externals& externals) const;

  // Without the copies: those follow from the weights, and upload() fills them again.
  Snapshot download() const;
  void upload(const Snapshot& snapshot);  // names, types and shapes as download() gives them
  void upload(const nn::Model& model);    // the weights alone, rounded to the type they are kept in
  void download_to(nn::Model& model) const;
  void clear_carried();  // recurrent state becomes zero again

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
