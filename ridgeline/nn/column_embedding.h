#pragma once

#include <optional>
#include <vector>

#include "ridgeline/nn/config_table.h"
#include "ridgeline/nn/layer.h"

namespace ridgeline::nn {

// A learnt embedding of each categorical column of a table. Categories are one-hot features, so the
// product of a column's features with its weight [out, categories] is the embedding of its
// category; for a missing value, whose features are the frequencies of the categories, it is the
// mean embedding. Numbers pass unchanged: [width] -> [numbers + the sum of out], in the columns'
// order, also for each timestep of [timesteps, width].
class ColumnEmbeddingLayer final : public Layer {
 public:
  struct Column {
    int64_t at = 0;          // its first feature
    int64_t categories = 1;  // features, that of missing values included
    int64_t out = 1;

    bool operator==(const Column&) const = default;
  };

  // `columns` is empty until the data is known; with_columns() then sets them. `out` is the width
  // of every embedding; without it, usual_out() of each column.
  ColumnEmbeddingLayer(std::vector<Column> columns, std::optional<int64_t> out, const Init& init)
      : columns_(std::move(columns)), out_(out), init_(init) {}
  static LayerPtr read(ConfigTable& table);

  // The layer for a table with these columns; this layer's rule sets the `out` of each.
  bool knows_columns() const { return !columns_.empty(); }
  LayerPtr with_columns(std::vector<Column> columns) const;
  // min(50, 1.6 * categories^0.56), rounded: about 4 for 5 categories, 21 for 100.
  static int64_t usual_out(int64_t categories);

  std::string type() const override { return "column_embedding"; }
  Shape output(const Shape& input) const override;
  std::vector<ParamSpec> params(const Shape& input) const override;
  Value forward(Builder& builder, LayerValues& values) const override;
  Value backward(Builder& builder, const LayerValues& values, const Value& dy,
                 bool needs_dx) const override;
  std::string to_toml() const override;

 private:
  // A column, or the numbers between two of them.
  struct Segment {
    int64_t in_at, in, out_at, out;
    int column;  // -1: numbers
  };
  std::vector<Segment> segments(const Shape& input) const;

  std::vector<Column> columns_;  // ascending
  std::optional<int64_t> out_;
  Init init_;
};

}  // namespace ridgeline::nn
