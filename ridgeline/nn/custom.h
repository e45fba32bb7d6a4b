#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ridgeline/custom_layer.h"
#include "ridgeline/nn/config_table.h"
#include "ridgeline/nn/layer.h"

namespace ridgeline::nn {

// Wraps a custom layer, defined outside the library, for configs and programs.
class OutsideLayer final : public Layer {
 public:
  OutsideLayer(std::string type, std::map<std::string, double> settings,
               std::shared_ptr<const CustomLayer> layer)
      : type_(std::move(type)), settings_(std::move(settings)), layer_(std::move(layer)) {}

  std::string type() const override { return type_; }
  Shape output(const Shape& input) const override;
  std::vector<ParamSpec> params(const Shape& input) const override;
  Value forward(Builder& builder, LayerValues& values) const override;
  Value backward(Builder& builder, const LayerValues& values, const Value& dy,
                 bool needs_dx) const override;
  std::string to_toml() const override;

 private:
  std::string type_;
  std::map<std::string, double> settings_;
  std::shared_ptr<const CustomLayer> layer_;
};

using CustomLayerMaker =
    std::function<std::shared_ptr<const CustomLayer>(const std::map<std::string, double>&)>;

// Adds a layer type to the library's. Throws Error(usage) if the type exists.
// Thread-safe.
void add_layer_type(const std::string& type, CustomLayerMaker make);
std::vector<std::string> added_layer_types();
// Reads the layer that the table describes; null if no such type was added.
LayerPtr read_added_layer(const std::string& type, ConfigTable& table);

}  // namespace ridgeline::nn
