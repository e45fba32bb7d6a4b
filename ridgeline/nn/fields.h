#pragma once

#include <string>
#include <vector>

#include "ridgeline/nn/config_table.h"
#include "ridgeline/nn/layer.h"

namespace ridgeline::nn {

// Selects fields of the data from the net's input, which holds the numbers of all fields side by
// side; a net can thus have several inputs. [width] -> [their numbers], also at each timestep of
// [timesteps, width]; a single field of several dimensions keeps its own shape.
class FieldsLayer final : public Layer {
 public:
  struct Part {
    int64_t at = 0, width = 1;  // position in the input's numbers

    bool operator==(const Part&) const = default;
  };

  // `parts` is empty until the data is known; with_parts() then sets them.
  FieldsLayer(std::vector<std::string> names, std::vector<Part> parts, std::vector<int64_t> shape)
      : names_(std::move(names)), parts_(std::move(parts)), shape_(std::move(shape)) {}
  static LayerPtr read(ConfigTable& table);

  const std::vector<std::string>& names() const { return names_; }
  bool knows_parts() const { return !parts_.empty(); }
  // `shape` is that of a single field; empty for a row of numbers.
  LayerPtr with_parts(std::vector<Part> parts, std::vector<int64_t> shape) const;

  std::string type() const override { return "fields"; }
  Shape output(const Shape& input) const override;
  Value forward(Builder& builder, LayerValues& values) const override;
  Value backward(Builder& builder, const LayerValues& values, const Value& dy,
                 bool needs_dx) const override;
  std::string to_toml() const override;

 private:
  int64_t width() const;

  std::vector<std::string> names_;
  std::vector<Part> parts_;  // in the order of the names
  std::vector<int64_t> shape_;
};

}  // namespace ridgeline::nn
