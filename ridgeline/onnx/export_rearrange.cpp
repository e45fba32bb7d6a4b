// Layers that move the numbers of a sample to other positions.
#include "ridgeline/onnx/exporter.h"

namespace ridgeline::onnx {
namespace {}  // namespace

// Axes include the batch.
std::string Exporter::slice(const std::string& x, int64_t axis, int64_t begin, int64_t end) {
  if (graph_.opset() < 10) {
    return graph_.node("Slice", {x},
                       {{"axes", Ints{axis}}, {"starts", Ints{begin}}, {"ends", Ints{end}}});
  }
  return graph_.node("Slice", {x, graph_.ints({begin}), graph_.ints({end}), graph_.ints({axis})});
}

void Exporter::transpose(const Ints& axes) {
  Ints perm{0};
  for (const int64_t axis : axes) perm.push_back(axis + 1);
  x_ = graph_.node("Transpose", {x_}, {{"perm", perm}});
}

// The layer's shapes give the padding on each side of every axis.
void Exporter::pad() {
  const nn::Layer& layer = *model_.layers()[layer_];
  auto root = nn::ConfigTable::parse("layer = " + layer.to_toml(), "layer");
  nn::ConfigTable table = root.table("layer");
  const double value = table.number("value", 0.0);
  const std::vector<double> given = table.numbers("padding", {});
  const int rank = shape_.rank();
  Ints before(size_t(rank) + 1, 0), after(size_t(rank) + 1, 0);
  for (int axis = 0; axis < rank; ++axis) {
    const size_t pair = 2 * size_t(rank - 1 - axis);
    const bool all = given.size() == 1 && (axis > 0 || rank == 1);
    const bool has = pair + 1 < given.size();
    before[size_t(axis) + 1] = int64_t(all ? given[0] : has ? given[pair] : 0.0);
    after[size_t(axis) + 1] = int64_t(all ? given[0] : has ? given[pair + 1] : 0.0);
  }
  Ints pads = before;
  pads.insert(pads.end(), after.begin(), after.end());
  if (graph_.opset() < 11) {
    x_ = graph_.node("Pad", {x_}, {{"pads", pads}, {"value", value}});
  } else {
    x_ = graph_.node("Pad", {x_, graph_.ints(pads), graph_.scalar(value)});
  }
}

void Exporter::upsample(nn::ConfigTable& table) {
  const Ints factor = table.integers("factor", 2, std::nullopt);
  const bool nearest = table.text("mode", "nearest") == "nearest";
  std::vector<float> scales{1, 1};
  if (shape_.rank() == 3) scales.push_back(float(factor[0]));
  scales.push_back(float(factor[1]));
  const std::string constant = graph_.floats({int64_t(scales.size())}, scales);
  const std::string mode = nearest ? "nearest" : "linear";
  if (graph_.opset() < 11) {
    if (!nearest || graph_.opset() < 9) {
      throw_error(ErrorKind::usage,
                  "layer {} (upsample): opset {} has no such operator; write --opset 11 or newer",
                  path(), graph_.opset());
    }
    x_ = graph_.node(graph_.opset() < 10 ? "Upsample" : "Resize", {x_, constant}, {{"mode", mode}});
    return;
  }
  Attributes attributes{{"mode", mode}};
  attributes.emplace_back("coordinate_transformation_mode",
                          std::string(nearest ? "asymmetric" : "half_pixel"));
  if (nearest) attributes.emplace_back("nearest_mode", std::string("floor"));
  // Opset 11 requires a region of interest, which these modes do not use.
  const std::string region = graph_.opset() < 13 ? graph_.floats({0}, {}) : "";
  x_ = graph_.node("Resize", {x_, region, constant}, attributes);
}

void Exporter::fields(nn::ConfigTable& table) {
  std::vector<std::string> parts;
  for (nn::ConfigTable& part : table.tables("parts")) {
    const int64_t at = part.integer("at", std::nullopt),
                  width = part.integer("width", std::nullopt);
    parts.push_back(slice(x_, shape_.rank(), at, at + width));
  }
  const auto last = int64_t(shape_.rank());
  x_ = parts.size() == 1 ? parts[0] : graph_.node("Concat", parts, {{"axis", last}});
}

// Multiplies the features of categories by their weights and leaves numbers unchanged, in the order
// of the columns.
void Exporter::column_embedding(nn::ConfigTable& table) {
  const int64_t axis = shape_.rank(), width = shape_[shape_.rank() - 1];
  std::vector<std::string> parts;
  int64_t done = 0;
  const auto numbers = [&](int64_t end) {
    if (end > done) parts.push_back(slice(x_, axis, done, end));
    done = end;
  };
  size_t column = 0;
  for (nn::ConfigTable& each : table.tables("columns")) {
    const int64_t at = each.integer("at", std::nullopt);
    const int64_t count = each.integer("categories", std::nullopt);
    numbers(at);
    const std::string suffix = fmt::format("weight{}", column++);
    const std::vector<float> rows = values(suffix);  // [out, categories]
    const int64_t out = dims(suffix)[0];
    std::vector<float> columns(rows.size());
    for (int64_t o = 0; o < out; ++o) {
      for (int64_t c = 0; c < count; ++c)
        columns[size_t(c * out + o)] = rows[size_t(o * count + c)];
    }
    parts.push_back(
        graph_.node("MatMul", {slice(x_, axis, at, at + count),
                               graph_.weight(path() + "." + suffix, {count, out}, columns)}));
    done = at + count;
  }
  numbers(width);
  x_ = parts.size() == 1 ? parts[0] : graph_.node("Concat", parts, {{"axis", axis}});
}

bool Exporter::rearrange(nn::ConfigTable& table, const std::string& type) {
  if (type == "transpose") {
    const std::vector<double> axes = table.numbers("axes", {});
    transpose({axes.begin(), axes.end()});
  } else if (type == "slice") {
    int64_t axis = table.integer("axis", 0);
    if (axis < 0) axis += shape_.rank();
    const int64_t extent = shape_[int(axis)];
    int64_t begin = table.integer("start", 0), end = extent;
    if (table.has("end")) end = table.integer("end", std::nullopt);
    x_ = slice(x_, axis + 1, begin < 0 ? begin + extent : begin, end < 0 ? end + extent : end);
  } else if (type == "pad") {
    pad();
  } else if (type == "upsample") {
    upsample(table);
  } else if (type == "fields") {
    fields(table);
  } else if (type == "column_embedding") {
    column_embedding(table);
  } else if (type == "softmax") {
    x_ = graph_.node("Softmax", {x_}, {{"axis", int64_t(shape_.rank())}});
  } else if (type == "output_sigmoid") {
    x_ = graph_.node("Sigmoid", {x_});
  } else {
    return false;
  }
  // The layer's output, except for a reshape that may follow.
  const Shape& wanted = model_.output_of(int(layer_));
  if (type == "fields") {
    int64_t last = 1;
    const int rank = shape_.rank();
    last = wanted.numel() / (shape_.numel() / shape_[rank - 1]);
    shape_ = shape_.with(rank - 1, last);
  } else {
    shape_ = wanted;
  }
  return true;
}

}  // namespace ridgeline::onnx
