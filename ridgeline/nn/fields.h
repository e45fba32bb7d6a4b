#pragma once

#include <string>
#include <vector>

#include "ridgeline/nn/config_table.h"
#include "ridgeline/nn/layer.h"

namespace ridgeline::nn {

// Some fields of the data, out of the net's input, which has the numbers of all of them side by
// side: so a net has several inputs. [width] -> [their numbers], at each timestep of
// [timesteps, width] as well; one field of more dimensions has its own shape.
class FieldsLayer final : public Layer {
 public:
  struct Part {
    int64_t at = 0, width = 1;  // of the input's numbers

    bool operator==(const Part&) const = default;
  };

  // No parts: they are not known before the data is, and with_parts() says them.
  FieldsLayer(std::vector<std::string> names, std::vector<Part> parts, std::vector<int64_t> shape)
      : names_(std::move(names)), parts_(std::move(parts)), shape_(std::move(shape)) {}
  static LayerPtr read(ConfigTable& table);

  const std::vector<std::string>& names() const { return names_; }
  bool knows_parts() const { return !parts_.empty(); }
  // `shape` is that of the only field; empty: a row of numbers.
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
