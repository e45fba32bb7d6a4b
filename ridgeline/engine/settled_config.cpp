#include <fmt/format.h>

#include <algorithm>

#include "ridgeline/core/text.h"
#include "ridgeline/core/text_format.h"
#include "ridgeline/engine/user_data.h"
#include "ridgeline/nn/column_embedding.h"
#include "ridgeline/nn/fields.h"

// What a config leaves to the data: positions of fields and columns, the loss and the batch.
namespace ridgeline::engine {
namespace {

// Returns the categorical columns among the features that a preparation makes.
std::vector<nn::ColumnEmbeddingLayer::Column> category_columns(
    const data::Preparation& preparation) {
  std::vector<nn::ColumnEmbeddingLayer::Column> columns;
  int64_t at = 0;
  for (const data::Feature& feature : preparation.features()) {
    const int64_t width = data::width_of(feature);
    if (std::holds_alternative<data::CategoryFeature>(feature)) columns.push_back({at, width, 1});
    at += width;
  }
  return columns;
}

// Returns the position of a field's numbers in the input, and its own shape if it has more than one
// dimension.
std::pair<nn::FieldsLayer::Part, std::vector<int64_t>> find_field(
    const data::Preparation& preparation, const std::string& name) {
  int64_t at = 0;
  std::vector<std::string> known;
  for (const data::Feature& feature : preparation.features()) {
    const int64_t width = data::width_of(feature);
    if (data::field_of(feature) == name) {
      const auto* number = std::get_if<data::NumberFeature>(&feature);
      std::vector<int64_t> shape;
      if (number != nullptr && number->shape.rank() > 1 && number->width() == number->elements()) {
        shape.assign(number->shape.dims().begin(), number->shape.dims().end());
      }
      return {{at, width}, shape};
    }
    known.push_back(data::field_of(feature));
    at += width;
  }
  const std::vector<std::string_view> views(known.begin(), known.end());
  const std::string near = nearest(name, views);
  throw_error(ErrorKind::usage, "a layer 'fields' names {}, which is no feature of the data{}",
              quote(name), near.empty() ? "" : fmt::format("; did you mean '{}'?", near));
}

// Sets the positions of the fields in layers that read fields.
void settle_fields(nn::Graph& graph, const data::Preparation* preparation) {
  if (preparation == nullptr) return;
  std::vector<nn::GraphLayer> layers = graph.layers();
  std::vector<std::string> toml = graph.toml();
  bool changed = false;
  for (nn::GraphLayer& each : layers) {
    const auto* layer = dynamic_cast<const nn::FieldsLayer*>(each.layer.get());
    if (layer == nullptr || layer->knows_parts()) continue;
    std::vector<nn::FieldsLayer::Part> parts;
    std::vector<int64_t> shape;
    for (const std::string& name : layer->names()) {
      auto [part, field] = find_field(*preparation, name);
      parts.push_back(part);
      if (layer->names().size() == 1 && !preparation->windows()) shape = field;
    }
    const std::string before = each.layer->to_toml();
    each.layer = layer->with_parts(std::move(parts), std::move(shape));
    // The text of a layer begins with its name and inputs, and may be part of a block.
    for (std::string& text : toml) {
      const size_t found = text.find(before.substr(2));
      if (found != std::string::npos) {
        text.replace(found, before.size() - 2, each.layer->to_toml().substr(2));
      }
    }
    changed = true;
  }
  if (changed) graph = nn::Graph(std::move(layers), std::move(toml), graph.heads());
}

// Sets the columns of the table in a column_embedding that is the first layer.
void settle_columns(nn::Graph& graph, const data::Preparation* preparation) {
  // A layer of a block is written with its block; the user sets its columns.
  if (graph.empty() || graph.layers().front().path != "0") return;
  const auto* layer = dynamic_cast<const nn::ColumnEmbeddingLayer*>(graph[0].get());
  if (layer == nullptr || layer->knows_columns() || preparation == nullptr) return;
  auto columns = category_columns(*preparation);
  if (columns.empty()) {
    throw_error(ErrorKind::usage,
                "layer 0 (column_embedding): no field of the data holds categories; leave it out, "
                "or name fields by data.columns = [{{ name = \"...\", category = true }}]");
  }
  std::vector<nn::GraphLayer> layers = graph.layers();
  std::vector<std::string> toml = graph.toml();
  layers.front().layer = layer->with_columns(std::move(columns));
  toml.front() = layers.front().layer->to_toml();
  graph = nn::Graph(std::move(layers), std::move(toml), graph.heads());
}

}  // namespace

Config settled(Config config, const data::DataSet& set) {
  settle_columns(config.layers, set.preparation.get());
  settle_fields(config.layers, set.preparation.get());
  if (!config.train.loss_named) {
    const bool labels = set.preparation && set.preparation->target() &&
                        set.preparation->target()->kind == data::TargetKind::labels;
    config.train.loss = {!set.train.has_values() ? nn::LossKind::cross_entropy
                         : labels                ? nn::LossKind::binary_cross_entropy
                                                 : nn::LossKind::mse};
    config.train.loss_named = true;
  }
  if (!config.train.batch_named && set.train.streams == 0) {
    config.train.batch = std::clamp<int64_t>(set.train.size(), 1, config.train.batch);
    config.train.batch_named = true;
  }
  return config;
}

}  // namespace ridgeline::engine
