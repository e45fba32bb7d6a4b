#include "ridgeline/engine/stream/result_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

#include "ridgeline/core/json.h"

namespace ridgeline::engine {
namespace {

constexpr size_t kNpyHeader = 128;  // bytes, including the magic; a multiple of 64
constexpr std::string_view kNpyStart{"\x93NUMPY\x01\0", 8};
constexpr std::string_view kNpyFirstKey = "{'shape': (";

std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

template <typename T>
void append_bytes(std::string& text, T value) {
  text.append(reinterpret_cast<const char*>(&value), sizeof value);
}

bool is_npy_of_ours(std::string_view head) {
  return head.starts_with(kNpyStart) && head.size() > 10 &&
         head.substr(10).starts_with(kNpyFirstKey);
}

}  // namespace

bool is_infer_output(std::string_view head) {
  constexpr std::string_view kStarts[] = {"index,label", "index,value", "index,p_",
                                          "index,p0",    "index,z_",    "index,z0"};
  return std::ranges::any_of(kStarts,
                             [&](std::string_view start) { return head.starts_with(start); }) ||
         head.starts_with("{\"index\":") || is_npy_of_ours(head);
}

ResultText::ResultText(const WriterOptions& options) : options_(options) {
  for (const std::string& name : options.class_names) {
    labels_.push_back(options.format == InferFormat::csv ? csv_cell(name)
                                                         : dump_json(nlohmann::json(name), -1));
  }
}

std::vector<std::string> ResultText::column_names() const {
  std::vector<std::string> names;
  if (options_.kind == OutputKind::labels && !options_.several_labels) return names;
  const auto* fields = options_.target != nullptr ? &options_.target->fields : nullptr;
  const size_t each = std::max<size_t>(1, options_.quantiles.size());
  const bool named = fields != nullptr && int64_t(fields->size() * each) == options_.outputs;
  const std::string what = options_.kind == OutputKind::values   ? "value"
                           : options_.kind == OutputKind::labels ? "label"
                                                                 : std::string(1, options_.letter);
  for (int64_t i = 0; i < options_.outputs; ++i) {
    if (numbers()) {
      std::string name = what;
      if (named && (fields->size() > 1 || options_.several_labels)) {
        name += "_" + (*fields)[size_t(i) / each];
      } else if (!named) {
        name += std::to_string(size_t(i) / each);
      }
      if (each > 1) name += fmt::format("_q{}", options_.quantiles[size_t(i) % each]);
      names.push_back(options_.outputs == 1 && !options_.several_labels ? "value" : csv_cell(name));
    } else if (!options_.class_names.empty()) {
      names.push_back(
          csv_cell(fmt::format("{}_{}", options_.letter, options_.class_names[size_t(i)])));
    } else {
      names.push_back(fmt::format("{}{}", options_.letter, i));
    }
  }
  return names;
}

std::string ResultText::header() const {
  if (options_.format == InferFormat::npy) return npy_header(0);
  if (options_.format != InferFormat::csv || !options_.header) return {};
  std::string text = numbers() ? "index" : "index,label";
  for (const std::string& name : column_names()) text += "," + name;
  return text + "\n";
}

std::string ResultText::npy_header(int64_t samples) const {
  const bool labels = options_.kind == OutputKind::labels;
  const bool wide = options_.wide || options_.kind == OutputKind::values;
  const bool flat = (labels && !options_.several_labels) ||
                    (options_.kind == OutputKind::values && options_.outputs == 1);
  const char order = std::endian::native == std::endian::little ? '<' : '>';
  std::string text =
      fmt::format("{}{:>20},{}), 'fortran_order': False, 'descr': '{}{}'}}", kNpyFirstKey, samples,
                  flat ? "" : fmt::format(" {}", options_.outputs), order,
                  labels ? "i4"
                  : wide ? "f8"
                         : "f4");
  text.resize(kNpyHeader - 11, ' ');
  std::string all(kNpyStart);
  all += char((text.size() + 1) % 256);
  all += char((text.size() + 1) / 256);
  return all + text + "\n";
}

void ResultText::append_line(int64_t index, int32_t label, std::span<const double> values,
                             std::string& text) const {
  auto out = std::back_inserter(text);
  const bool csv = options_.format == InferFormat::csv;
  const bool numbers = this->numbers(), one_value = options_.kind == OutputKind::values;
  if (csv) {
    const fmt::format_int head(index), tail(label);
    text.append(head.data(), head.size());
    if (!numbers && labels_.empty()) text.append(1, ',').append(tail.data(), tail.size());
    if (!numbers && !labels_.empty()) text.append(1, ',').append(labels_[size_t(label)]);
  } else {
    fmt::format_to(out, "{{\"index\":{}", index);
    if (!numbers && labels_.empty()) fmt::format_to(out, ",\"label\":{}", label);
    if (!numbers && !labels_.empty()) text.append(",\"label\":").append(labels_[size_t(label)]);
    if (one_value && values.size() == 1) {
      text += ",\"value\":";
    } else if (!values.empty()) {
      const bool labels = options_.kind == OutputKind::labels;
      one_value ? text.append(",\"values\":[")
      : labels  ? text.append(",\"labels\":[")
                : text.append(fmt::format(",\"{}\":[", options_.letter));
    }
  }
  for (size_t i = 0; i < values.size(); ++i) {
    if (csv || i > 0) text += ',';
    if (!csv && !std::isfinite(values[i])) {
      text += "null";  // JSON has no NaN
    } else {
      fmt::format_to(out, "{:.9g}", values[i]);
    }
  }
  const bool one = one_value && values.size() == 1;
  text += csv ? "\n" : values.empty() || one ? "}\n" : "]}\n";
}

void ResultText::append_numbers(const ChunkResult& result, std::span<const double> values,
                                std::string& text) const {
  if (options_.kind == OutputKind::labels && options_.several_labels) {
    for (const double value : values) append_bytes(text, int32_t(value));
    return;
  }
  if (options_.kind == OutputKind::labels) {
    for (const int32_t label : result.labels) append_bytes(text, label);
    return;
  }
  const bool wide = options_.wide || options_.kind == OutputKind::values;
  for (const double value : values) {
    wide ? append_bytes(text, value) : append_bytes(text, float(value));
  }
}

void ResultText::append(const ChunkResult& result, std::string& text) const {
  std::vector<double> restored;
  std::span<const double> values = result.outputs;
  if (options_.target != nullptr && options_.kind == OutputKind::values) {
    restored = result.outputs;
    options_.target->restore(restored, options_.outputs / options_.target->outputs());
    values = restored;
  }
  if (options_.several_labels && options_.kind == OutputKind::labels) {
    restored = result.outputs;
    for (double& value : restored) value = value > 0.5 ? 1 : 0;
    values = restored;
  }
  if (options_.format == InferFormat::npy) return append_numbers(result, values, text);
  const auto outputs = values.empty() ? 0 : size_t(options_.outputs);
  for (size_t r = 0; r < result.labels.size(); ++r) {
    append_line(result.first_sample + int64_t(r), result.labels[r],
                values.subspan(r * outputs, outputs), text);
  }
}

}  // namespace ridgeline::engine
