#include "ridgeline/onnx/exporter.h"

#include <algorithm>

#include "ridgeline/core/dtype.h"

namespace ridgeline::onnx {
namespace {

constexpr int64_t kOldest = 7, kNewest = 21;

}  // namespace

Exporter::Exporter(const nn::Model& model, const ExportOptions& options)
    : model_(model), options_(options), graph_(options.opset, options.half_weights) {
  if (options.opset < kOldest || options.opset > kNewest) {
    throw_error(ErrorKind::usage, "--opset {}: opsets {} to {} are written", options.opset, kOldest,
                kNewest);
  }
}

const nn::Param* Exporter::find(const std::string& suffix) const {
  const std::string name = path() + "." + suffix;
  const auto found = std::ranges::find(model_.params(), name, &nn::Param::name);
  return found == model_.params().end() ? nullptr : &*found;
}

std::vector<float> Exporter::values(const std::string& suffix) const {
  const Tensor& from = find(suffix)->value.view();
  std::vector<float> made(size_t(from.numel()));
  if (from.dtype == DType::fp64) {
    std::ranges::transform(from.span<double>(), made.begin(), [](double v) { return float(v); });
  } else {
    std::ranges::copy(from.span<float>(), made.begin());
  }
  return made;
}

std::vector<int64_t> Exporter::dims(const std::string& suffix) const {
  const Shape& shape = find(suffix)->value.view().shape;
  return {shape.dims().begin(), shape.dims().end()};
}

std::string Exporter::weight(const std::string& suffix) {
  return graph_.weight(path() + "." + suffix, dims(suffix), values(suffix));
}

std::string Exporter::weight_or(const std::string& suffix, int64_t count, float number) {
  if (has(suffix)) return weight(suffix);
  return graph_.floats({count}, std::vector<float>(size_t(count), number));
}

std::vector<int64_t> Exporter::sample() const {
  return {shape_.dims().begin(), shape_.dims().end()};
}

void Exporter::reshape(const std::vector<int64_t>& wanted) {
  if (sample() == wanted) return;
  if (wanted.size() == 1) {
    x_ = graph_.node("Flatten", {x_}, {{"axis", int64_t{1}}});
  } else {
    std::vector<int64_t> all{-1};
    all.insert(all.end(), wanted.begin(), wanted.end());
    x_ = graph_.node("Reshape", {x_, graph_.ints(all)});
  }
  shape_ = Shape(wanted);
}

void Exporter::affine(const ExportOptions::Affine& affine) {
  const auto apply = [&](const char* op, const std::vector<double>& numbers) {
    if (numbers.empty()) return;
    const std::vector<float> narrow(numbers.begin(), numbers.end());
    const bool one = std::ranges::all_of(narrow, [&](float each) { return each == narrow[0]; });
    // A constant that changes nothing is left out.
    if (one && narrow[0] == (op == std::string("Mul") ? 1.0f : 0.0f)) return;
    const std::string constant = one ? graph_.scalar(numbers[0]) : graph_.floats(sample(), narrow);
    x_ = graph_.node(op, {x_, constant});
  };
  apply("Sub", affine.subtract);
  apply("Mul", affine.multiply);
  apply("Add", affine.add);
}

void Exporter::begin() {
  using Input = ExportOptions::Input;
  if (options_.preparation != nullptr) {
    const data::SequenceFeature* sequence = options_.preparation->sequence();
    return sequence != nullptr ? prepare_sequence(*sequence)
                               : prepare_fields(*options_.preparation);
  }
  shape_ = model_.input();
  x_ = "input";
  const int type = options_.input == Input::bytes   ? Proto::UINT8
                   : options_.input == Input::codes ? Proto::INT64
                                                    : Proto::FLOAT;
  graph_.input(x_, type, shape_.dims());
  if (options_.input == Input::codes) return;
  if (options_.input == Input::bytes) {
    x_ = graph_.node("Cast", {x_}, {{"to", int64_t{Proto::FLOAT}}});
  }
  affine(options_.before);
}

void Exporter::end() {
  using End = ExportOptions::End;
  const auto last = int64_t(shape_.rank());
  if (options_.end == End::softmax) x_ = graph_.node("Softmax", {x_}, {{"axis", last}});
  if (options_.end == End::sigmoid) x_ = graph_.node("Sigmoid", {x_});
  affine(options_.after);
  graph_.node("Identity", {x_}, {}, "output");
  graph_.output("output", shape_.dims());
}

std::string Exporter::run() {
  begin();
  const std::string input = x_;
  std::vector<std::string> made;  // by layer
  const auto value = [&](int layer) {
    return layer == nn::kGraphInput ? input : made[size_t(layer)];
  };
  for (layer_ = 0; layer_ < model_.layers().size(); ++layer_) {
    const nn::Layer& at = *model_.layers()[layer_];
    auto root = nn::ConfigTable::parse("layer = " + at.to_toml(), "layer");
    nn::ConfigTable table = root.table("layer");
    const std::vector<int>& inputs = model_.inputs_of(layer_);
    x_ = value(inputs[0]);
    shape_ = model_.output_of(inputs[0]);
    const Shape& wanted = model_.output_of(int(layer_));
    if (at.joins()) {
      std::vector<std::pair<std::string, Shape>> parts;
      for (const int each : inputs) parts.emplace_back(value(each), model_.output_of(each));
      join(table, at.type(), parts);
      shape_ = wanted;
    } else {
      layer(table, at.type());
    }
    // Nodes may produce another shape, such as [c, 1, 1] of a global pool.
    if (!(shape_ == wanted)) reshape({wanted.dims().begin(), wanted.dims().end()});
    made.push_back(x_);
  }
  end();
  return graph_.bytes();
}

// Our shapes are broadcast over the dimensions after them, [c] over [c, h, w]; ONNX's over those
// before them.
void Exporter::join(nn::ConfigTable& table, const std::string& type,
                    const std::vector<std::pair<std::string, Shape>>& parts) {
  int rank = 0;
  std::vector<std::string> names;
  for (const auto& [name, shape] : parts) rank = std::max(rank, shape.rank());
  for (const auto& [name, shape] : parts) {
    x_ = name;
    shape_ = shape;
    std::vector<int64_t> dims = sample();
    dims.resize(size_t(rank), 1);
    reshape(dims);
    names.push_back(x_);
  }
  if (type == "concat") {
    const int64_t axis = table.integer("axis", 0);
    x_ = graph_.node("Concat", names, {{"axis", axis < 0 ? axis + rank + 1 : axis + 1}});
    return;
  }
  if (type != "add" && type != "multiply" && type != "mean") {
    throw_error(ErrorKind::usage, "layer {} ({}): cannot be written as ONNX", path(), type);
  }
  x_ = names[0];
  for (size_t i = 1; i < names.size(); ++i) {
    x_ = graph_.node(type == "multiply" ? "Mul" : "Add", {x_, names[i]});
  }
  if (type == "mean") x_ = graph_.node("Mul", {x_, graph_.scalar(1.0 / double(names.size()))});
}

void Exporter::layer(nn::ConfigTable& table, const std::string& type) {
  if (activation(table, type) || normalisation(table, type)) return;
  if (type == "linear") return linear(table);
  if (type == "conv2d") return conv(table, 2);
  if (type == "conv1d") return conv(table, 1);
  if (type == "onehot_conv1d") return one_hot_conv();
  if (type == "maxpool2d" || type == "avgpool2d") return pool(table, type[0] == 'm', 2);
  if (type == "maxpool1d" || type == "avgpool1d") return pool(table, type[0] == 'm', 1);
  if (type == "rnn" || type == "gru" || type == "lstm") return recurrent(table, type);
  if (type == "dropout") return;
  if (type == "flatten") return reshape({shape_.numel()});
  if (type == "global_avgpool") {
    if (shape_.rank() == 2 && model_.input_of(layer_).rank() == 2) {
      x_ = graph_.node("GlobalAveragePool", {x_});
      shape_ = {shape_[0], 1};
    } else {
      reshape({shape_[0], shape_[1], shape_[2]});
      x_ = graph_.node("GlobalAveragePool", {x_});
      shape_ = {shape_[0], 1, 1};
    }
    return;
  }
  if (type == "embedding") {
    reshape({shape_.numel()});
    x_ = graph_.node("Gather", {weight("weight"), x_}, {{"axis", int64_t{0}}});
    shape_ = {shape_[0], dims("weight")[1]};
    return;
  }
  if (type == "select") {
    const int64_t at = table.integer("at", std::nullopt);
    if (!lengths_.empty() && at < 0) return select_by_length(at);
    x_ = graph_.node("Gather", {x_, graph_.index(at < 0 ? at + shape_[0] : at)},
                     {{"axis", int64_t{1}}});
    shape_ = {shape_[1]};
    return;
  }
  if (rearrange(table, type)) return;
  if (type == "reshape") {
    const Shape& wanted = model_.output_of(int(layer_));
    return reshape({wanted.dims().begin(), wanted.dims().end()});
  }
  throw_error(ErrorKind::usage, "layer {} ({}): cannot be written as ONNX", path(), type);
}

void Exporter::linear(nn::ConfigTable& table) {
  const int64_t out = table.integer("out", std::nullopt);
  if (!table.boolean("per_step", false)) {
    reshape({shape_.numel()});
    std::vector<std::string> inputs{x_, weight("weight")};
    // Before opset 11 the bias was required.
    if (has("bias") || graph_.opset() < 11) inputs.push_back(weight_or("bias", out, 0.0f));
    x_ = graph_.node("Gemm", inputs, {{"transB", int64_t{1}}});
    shape_ = {out};
    return;
  }
  const std::vector<float> rows = values("weight");
  const int64_t in = shape_[1];
  std::vector<float> columns(rows.size());
  for (int64_t o = 0; o < out; ++o) {
    for (int64_t i = 0; i < in; ++i) columns[size_t(i * out + o)] = rows[size_t(o * in + i)];
  }
  x_ = graph_.node("MatMul", {x_, graph_.weight(path() + ".weight", {in, out}, columns)});
  if (has("bias")) x_ = graph_.node("Add", {x_, weight("bias")});
  shape_ = {shape_[0], out};
}

std::string export_model(const nn::Model& model, const ExportOptions& options) {
  return Exporter(model, options).run();
}

}  // namespace ridgeline::onnx
