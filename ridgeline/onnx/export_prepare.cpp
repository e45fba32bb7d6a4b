// Exports what a model does to its data before the first layer.
#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

#include "ridgeline/core/text_format.h"
#include "ridgeline/onnx/exporter.h"

namespace ridgeline::onnx {
namespace {

std::vector<float> narrow(const std::vector<double>& numbers) {
  return {numbers.begin(), numbers.end()};
}

Ints dims_of(const Shape& shape) { return {shape.dims().begin(), shape.dims().end()}; }

bool is_plain(const data::NumberFeature& number) {
  return !number.clip && !number.log && number.fill.empty();
}

}  // namespace

// Scales floats whose last dimension, `axis`, has the elements of a sample or of a timestep of it.
std::string Exporter::prepare_numbers(std::string x, const data::NumberFeature& number,
                                      int64_t axis) {
  if (!is_plain(number) && graph_.opset() < 9) {
    throw_error(ErrorKind::usage,
                "--opset {}: logarithms, clipping and missing values of field {} need 9 or newer",
                graph_.opset(), quote(number.field));
  }
  const Ints elements{number.elements()};
  const auto apply = [&](const char* op, const std::vector<double>& numbers) {
    x = graph_.node(op, {x, graph_.floats(elements, narrow(numbers))});
  };
  std::string missing;
  if (!number.fill.empty()) {
    const std::string is_nan = graph_.node("IsNaN", {x});
    missing = graph_.node("Cast", {is_nan}, {{"to", int64_t{Proto::FLOAT}}});
    x = graph_.node("Where", {is_nan, graph_.floats(elements, narrow(number.fill)), x});
  }
  if (number.clip) {
    x = graph_.node("Max", {x, graph_.scalar(number.clip->first)});
    x = graph_.node("Min", {x, graph_.scalar(number.clip->second)});
  }
  if (number.log) {  // in double, so that small numbers keep their digits when 1 is added
    const std::string sign = graph_.node("Sign", {x});
    x = graph_.node("Cast", {graph_.node("Abs", {x})}, {{"to", int64_t{Proto::DOUBLE}}});
    const std::string one =
        graph_.node("Cast", {graph_.scalar(1.0)}, {{"to", int64_t{Proto::DOUBLE}}});
    x = graph_.node("Log", {graph_.node("Add", {x, one})});
    x = graph_.node("Mul", {sign, graph_.node("Cast", {x}, {{"to", int64_t{Proto::FLOAT}}})});
  }
  apply("Sub", number.shift);
  apply("Mul", number.scale);
  if (number.missing != data::MissingRule::indicator) return x;
  return graph_.node("Concat", {x, missing}, {{"axis", axis}});
}

// Words become rows of a table: one-hot, the frequencies for what is missing, and NaN for what the
// model refuses.
std::string Exporter::prepare_words(const std::string& x, const data::CategoryFeature& category) {
  constexpr std::array<const char*, 12> kMissing{"",     "NA",   "N/A",  "n/a",  "NaN",  "nan",
                                                 "-nan", "null", "NULL", "None", "<NA>", "?"};
  const auto count = int64_t(category.categories.size()), width = category.width();
  std::vector<std::string> words = category.categories;
  Ints codes;
  for (int64_t i = 0; i < count; ++i) codes.push_back(i);
  for (const char* word : kMissing) {
    if (std::ranges::find(category.categories, word) != category.categories.end()) continue;
    words.emplace_back(word);
    codes.push_back(count);
  }
  std::vector<float> table(size_t((count + 2) * width), 0.0f);
  for (int64_t i = 0; i < count; ++i) table[size_t(i * width + i)] = 1.0f;
  const bool missing = category.missing != data::MissingRule::refuse;
  const bool unseen = category.unseen == data::UnseenRule::missing;
  for (const auto& [row, known] : {std::pair(count, missing), std::pair(count + 1, unseen)}) {
    const auto at = table.begin() + row * width;
    std::fill_n(at, width, std::numeric_limits<float>::quiet_NaN());
    if (!known) continue;
    std::fill_n(at, width, 1.0f);  // the indicator, where there is one
    std::ranges::copy(category.fill, at);
  }
  const std::string code = graph_.ml_node(
      "LabelEncoder", {x},
      {{"keys_strings", words}, {"values_int64s", codes}, {"default_int64", count + 1}});
  return graph_.node("Gather", {graph_.floats({count + 2, width}, table), code},
                     {{"axis", int64_t{0}}});
}

// One array of numbers, or, where there are words among the fields, an input for each field.
void Exporter::prepare_fields(const data::Preparation& preparation) {
  const auto& windows = preparation.windows();
  const Ints front = windows ? Ints{windows->window} : Ints{};
  const auto shaped = [&](const std::string& x, int64_t last) {
    Ints wanted{-1};
    wanted.insert(wanted.end(), front.begin(), front.end());
    wanted.push_back(last);
    return graph_.node("Reshape", {x, graph_.ints(wanted)});
  };
  const auto axis = int64_t(front.size()) + 1;
  const bool words = std::ranges::any_of(preparation.features(), [](const data::Feature& feature) {
    return std::holds_alternative<data::CategoryFeature>(feature);
  });
  std::string all;
  if (!words) {
    int64_t elements = 0;
    for (const data::Feature& feature : preparation.features()) {
      elements += std::get<data::NumberFeature>(feature).elements();
    }
    Ints dims = front;
    const bool one = preparation.features().size() == 1;
    const Shape own = std::get<data::NumberFeature>(preparation.features().front()).shape;
    if (one && own.rank() > 0) {
      dims.insert(dims.end(), own.dims().begin(), own.dims().end());
    } else {
      dims.push_back(elements);
    }
    graph_.input("input", Proto::FLOAT, dims);
    all = own.rank() > 1 && one ? shaped("input", elements) : "input";
  }
  std::vector<std::string> parts;
  int64_t at = 0;
  for (const data::Feature& feature : preparation.features()) {
    if (const auto* category = std::get_if<data::CategoryFeature>(&feature)) {
      Ints dims = front;
      dims.push_back(1);
      const std::string name = graph_.input(category->field, Proto::STRING, dims);
      parts.push_back(shaped(prepare_words(name, *category), category->width()));
      continue;
    }
    const auto& number = std::get<data::NumberFeature>(feature);
    std::string x = all;
    if (words) {
      Ints dims = front;
      const Ints own = number.shape.rank() > 0 ? dims_of(number.shape) : Ints{1};
      dims.insert(dims.end(), own.begin(), own.end());
      x = graph_.input(number.field, Proto::FLOAT, dims);
      if (own.size() > 1) x = shaped(x, number.elements());
    } else if (preparation.features().size() > 1) {
      x = slice(all, axis, at, at + number.elements());
      at += number.elements();
    }
    parts.push_back(prepare_numbers(x, number, axis));
  }
  x_ = parts.size() == 1 ? parts[0] : graph_.node("Concat", parts, {{"axis", axis}});
  Ints made = front;
  made.push_back(preparation.width());
  shape_ = Shape(made);
  reshape(dims_of(model_.input()));
}

// Timesteps, and how many of them each sample has. Numbers behind these are zeros for the layers.
void Exporter::prepare_sequence(const data::SequenceFeature& sequence) {
  const bool tokens = sequence.tokens > 0;
  Ints dims{sequence.length};
  const Shape& own = sequence.timestep.shape;
  if (!tokens) {
    dims.insert(dims.end(), own.dims().begin(), own.dims().end());
    if (own.rank() == 0) dims.push_back(1);
  }
  x_ = graph_.input("input", tokens ? int(Proto::INT64) : int(Proto::FLOAT), dims);
  lengths_ = graph_.input("lengths", Proto::INT32, {});
  const std::string count =
      graph_.node("Reshape", {graph_.node("Cast", {lengths_}, {{"to", int64_t{Proto::FLOAT}}}),
                              graph_.ints(tokens ? Ints{-1, 1} : Ints{-1, 1, 1})});
  std::vector<float> places(size_t(sequence.length), 0.0f);
  std::iota(places.begin(), places.end(), 0.0f);
  const std::string place =
      graph_.floats(tokens ? Ints{sequence.length} : Ints{sequence.length, 1}, places);
  const std::string there = graph_.node("Cast", {graph_.node("Less", {place, count})},
                                        {{"to", int64_t{tokens ? Proto::INT64 : Proto::FLOAT}}});
  if (!tokens) {
    if (own.rank() > 1) {
      x_ = graph_.node("Reshape", {x_, graph_.ints({-1, sequence.length, own.numel()})});
    }
    x_ = prepare_numbers(x_, sequence.timestep, 2);
  }
  x_ = graph_.node("Mul", {x_, there});
  shape_ = tokens ? Shape{sequence.length} : Shape{sequence.length, sequence.timestep.width()};
  reshape(dims_of(model_.input()));
}

// The timestep `at`, counted from the end of each sample where it is negative.
void Exporter::select_by_length(int64_t at) {
  const int64_t steps = shape_[0];
  const std::string count = graph_.node(
      "Reshape",
      {graph_.node("Cast", {lengths_}, {{"to", int64_t{Proto::FLOAT}}}), graph_.ints({-1, 1, 1})});
  // No further back than the first timestep: relu(length + at).
  const std::string wanted =
      graph_.node("Relu", {graph_.node("Add", {count, graph_.scalar(double(at))})});
  std::vector<float> places(size_t(steps), 0.0f);
  std::iota(places.begin(), places.end(), 0.0f);
  const std::string away =
      graph_.node("Abs", {graph_.node("Sub", {graph_.floats({1, steps}, places), wanted})});
  // 1 at the timestep and 0 at all others: [N, 1, steps].
  const std::string chosen = graph_.node("Relu", {graph_.node("Sub", {graph_.scalar(1.0), away})});
  x_ = graph_.node("MatMul", {chosen, x_});
  shape_ = {1, shape_[1]};
  reshape({shape_[1]});
}

}  // namespace ridgeline::onnx
