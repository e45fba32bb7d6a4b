#include "ridgeline/nn/column_embedding.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "ridgeline/nn/builder.h"

namespace ridgeline::nn {
namespace {

constexpr int64_t kMostOut = 4096, kMostCategories = int64_t{1} << 20;

int64_t rows_of(const Shape& input) { return input.rank() == 2 ? input[0] : 1; }

Value embedding_rows(Value value, int64_t width) {
  value.shape = {value.shape.numel() / width, width};
  return value;
}

// Returns the features [at, at + count) of each row of x, which has `width` of them.
Value slice(Builder& builder, const Value& x, int64_t rows, int64_t width, int64_t at,
            int64_t count, std::string name) {
  const Value part = builder.temp(std::move(name), {x.shape[0], rows * count});
  Pad op{};
  op.x = x;
  op.y = part;
  op.in = {rows, width, 1};
  op.out = {rows, count, 1};
  op.before = {0, -at, 0};
  builder.add(op);
  return part;
}

// Concatenates the parts of each row. One op joins a limited number, so there may be several ops.
Value join(Builder& builder, Values parts, int64_t rows, const std::string& name) {
  for (int level = 0; parts.size() > 1; ++level) {
    Values joined;
    for (size_t at = 0; at < parts.size(); at += kMostJoined) {
      const size_t end = std::min(parts.size(), at + kMostJoined);
      Values some(parts.begin() + ptrdiff_t(at), parts.begin() + ptrdiff_t(end));
      int64_t width = 0;
      for (const Value& part : some) width += part.shape[1];
      const bool last = parts.size() <= kMostJoined;
      const Value y = builder.temp(last ? name : fmt::format("{}.{}.{}", name, level, at),
                                   {parts.front().shape[0], width});
      builder.add(Concat{std::move(some), y, parts.front().shape[0] * rows});
      joined.push_back(y);
    }
    parts = std::move(joined);
  }
  return parts.front();
}

}  // namespace

LayerPtr ColumnEmbeddingLayer::read(ConfigTable& table) {
  std::vector<Column> columns;
  for (ConfigTable& each : table.tables("columns")) {
    Column column;
    column.at = each.integer("at", std::nullopt, {0, kMostCategories});
    column.categories = each.integer("categories", std::nullopt, {1, kMostCategories});
    column.out = each.integer("out", usual_out(column.categories), {1, kMostOut});
    each.finish();
    const int64_t end = columns.empty() ? 0 : columns.back().at + columns.back().categories;
    if (column.at < end) table.fail("columns", "overlap, or are not in their order");
    columns.push_back(column);
  }
  std::optional<int64_t> out;
  if (table.has("out")) out = table.integer("out", std::nullopt, {1, kMostOut});
  if (out && !columns.empty()) table.fail("out", "is that of each column, where columns are given");
  // The default is that of PyTorch's nn.Embedding.
  const Init init = table.has("init") ? read_init(table, "init") : Init{InitKind::normal, 1.0, {}};
  return std::make_shared<ColumnEmbeddingLayer>(std::move(columns), out, init);
}

int64_t ColumnEmbeddingLayer::usual_out(int64_t categories) {
  constexpr double kMostUsual = 50;
  return int64_t(std::min(kMostUsual, std::round(1.6 * std::pow(double(categories), 0.56))));
}

LayerPtr ColumnEmbeddingLayer::with_columns(std::vector<Column> columns) const {
  for (Column& column : columns) column.out = out_.value_or(usual_out(column.categories));
  return std::make_shared<ColumnEmbeddingLayer>(std::move(columns), std::nullopt, init_);
}

std::vector<ColumnEmbeddingLayer::Segment> ColumnEmbeddingLayer::segments(
    const Shape& input) const {
  if (columns_.empty()) {
    throw_error(ErrorKind::usage,
                "the columns are not known: they come from a table of one's own (data.train), or "
                "from columns = [{{ at = 3, categories = 5, out = 4 }}]");
  }
  if (input.rank() < 1 || input.rank() > 2) {
    throw_error(ErrorKind::usage, "columns are features [width] or [timesteps, width], not {}",
                to_string(input));
  }
  const int64_t width = input[input.rank() - 1];
  std::vector<Segment> all;
  int64_t at = 0, out = 0;
  const auto add = [&](int64_t in_width, int64_t out_width, int column) {
    if (in_width == 0) return;
    all.push_back({at, in_width, out, out_width, column});
    at += in_width;
    out += out_width;
  };
  for (size_t i = 0; i < columns_.size(); ++i) {
    const Column& column = columns_[i];
    if (column.at + column.categories > width) {
      throw_error(ErrorKind::usage, "column {} takes the features {} to {}, but there are {}", i,
                  column.at, column.at + column.categories - 1, width);
    }
    add(column.at - at, column.at - at, -1);
    add(column.categories, column.out, int(i));
  }
  add(width - at, width - at, -1);
  return all;
}

Shape ColumnEmbeddingLayer::output(const Shape& input) const {
  const std::vector<Segment> all = segments(input);
  return input.with(input.rank() - 1, all.back().out_at + all.back().out);
}

std::vector<ParamSpec> ColumnEmbeddingLayer::params(const Shape&) const {
  std::vector<ParamSpec> params;
  for (size_t i = 0; i < columns_.size(); ++i) {
    const auto& [at, categories, out] = columns_[i];
    params.push_back({fmt::format("weight{}", i), {out, categories}, init_, Fans{categories, out}});
  }
  return params;
}

Value ColumnEmbeddingLayer::forward(Builder& builder, LayerValues& values) const {
  const int64_t rows = rows_of(values.input), width = values.input[values.input.rank() - 1];
  const int64_t n = values.x.shape[0];
  Values parts;
  values.saved.resize(columns_.size());
  for (const Segment& segment : segments(values.input)) {
    const std::string name = fmt::format("x{}.{}", values.layer, segment.in_at);
    const Value part = slice(builder, values.x, rows, width, segment.in_at, segment.in, name);
    if (segment.column < 0) {
      parts.push_back(part);
      continue;
    }
    const auto column = size_t(segment.column);
    values.saved[column] = part;
    const Value y = builder.temp(name + ".embedding", {n, rows * segment.out});
    builder.add(Linear{embedding_rows(part, segment.in), values.params[column], Value{},
                       embedding_rows(y, segment.out)});
    parts.push_back(y);
  }
  return join(builder, std::move(parts), rows, fmt::format("x{}", values.layer + 1));
}

Value ColumnEmbeddingLayer::backward(Builder& builder, const LayerValues& values, const Value& dy,
                                     bool needs_dx) const {
  const std::vector<Segment> all = segments(values.input);
  const int64_t rows = rows_of(values.input), width = all.back().out_at + all.back().out;
  Values parts;
  for (const Segment& segment : all) {
    if (segment.column < 0 && !needs_dx) continue;
    const std::string name = fmt::format("dx{}.{}", values.layer + 1, segment.out_at);
    const Value part = slice(builder, dy, rows, width, segment.out_at, segment.out, name);
    if (segment.column < 0) {
      parts.push_back(part);
      continue;
    }
    const auto column = size_t(segment.column);
    const Value& x = values.saved[column];
    if (needs_dx) {
      const Value dx = builder.like(fmt::format("dx{}.{}", values.layer, segment.in_at), x);
      builder.add(LinearGradX{embedding_rows(part, segment.out), values.params[column],
                              embedding_rows(dx, segment.in)});
      parts.push_back(dx);
    }
    builder.add(LinearGradW{embedding_rows(x, segment.in), embedding_rows(part, segment.out),
                            values.grads[column], Value{}});
  }
  if (!needs_dx) return {};
  return join(builder, std::move(parts), rows, fmt::format("dx{}", values.layer));
}

std::string ColumnEmbeddingLayer::to_toml() const {
  std::string text = "{ type = \"column_embedding\"";
  if (out_) text += fmt::format(", out = {}", *out_);
  if (!columns_.empty()) {
    text += ", columns = [";
    for (const Column& column : columns_) {
      text += fmt::format("{}{{ at = {}, categories = {}, out = {} }}",
                          &column == columns_.data() ? "" : ", ", column.at, column.categories,
                          column.out);
    }
    text += "]";
  }
  return text + fmt::format(", init = {} }}", nn::to_toml(init_));
}

}  // namespace ridgeline::nn
