#include "ridgeline/serve/infer_response.h"

#include <fmt/compile.h>

#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

#include "ridgeline/core/json.h"
#include "ridgeline/core/text_format.h"

namespace ridgeline::serve {
namespace {

template <typename T>
void append_bytes(std::string& to, const T& value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void append_json(std::string& to, float value) {
  if (!std::isfinite(value)) {
    to += "null";
    return;
  }
  char text[32];
  to.append(text, fmt::format_to(text, FMT_COMPILE("{}"), value));
}

// Calls f(label) for each sample.
template <typename F>
void each_label(const ModelOutputs& outputs, int64_t samples, std::span<const float> numbers,
                F&& f) {
  const auto width = size_t(outputs.width());
  for (size_t i = 0; i < size_t(samples); ++i) {
    f(outputs.label(numbers.subspan(i * width, width)));
  }
}

size_t binary_size(const ModelOutputs& outputs, size_t spec, int64_t samples,
                   std::span<const float> numbers) {
  if (spec == ModelOutputs::kNumbers) return numbers.size_bytes();
  if (outputs.declared()[spec].type == Datatype::int64) return size_t(samples) * sizeof(int64_t);
  size_t bytes = 0;
  each_label(outputs, samples, numbers,
             [&](int64_t label) { bytes += sizeof(uint32_t) + outputs.class_name(label).size(); });
  return bytes;
}

void append_binary(const ModelOutputs& outputs, size_t spec, int64_t samples,
                   std::span<const float> numbers, std::string& to) {
  if (spec == ModelOutputs::kNumbers) {
    to.append(reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes());
    return;
  }
  const bool named = outputs.declared()[spec].type == Datatype::bytes;
  each_label(outputs, samples, numbers, [&](int64_t label) {
    if (!named) return append_bytes(to, label);
    const std::string& name = outputs.class_name(label);
    append_bytes(to, uint32_t(name.size()));
    to += name;
  });
}

void append_data(const ModelOutputs& outputs, size_t spec, int64_t samples,
                 std::span<const float> numbers, std::string& to) {
  to += ",\"data\":[";
  const size_t begin = to.size();
  if (spec == ModelOutputs::kNumbers) {
    for (const float value : numbers) {
      append_json(to, value);
      to += ',';
    }
  } else {
    const bool named = outputs.declared()[spec].type == Datatype::bytes;
    each_label(outputs, samples, numbers, [&](int64_t label) {
      to += named ? json_text(outputs.class_name(label)) : fmt::format_int(label).str();
      to += ',';
    });
  }
  if (to.size() > begin) to.pop_back();
  to += ']';
}

}  // namespace

size_t write_response(const ModelOutputs& outputs, std::string_view model, std::string_view version,
                      const InferRequest& request, int64_t samples, std::span<const float> numbers,
                      std::string& body) {
  body.clear();
  auto out = std::back_inserter(body);
  // Names of models and versions need no escaping.
  fmt::format_to(out, FMT_COMPILE("{{\"model_name\":\"{}\",\"model_version\":\"{}\""), model,
                 version);
  if (!request.id.empty()) body += ",\"id\":" + json_text(request.id);
  body += ",\"outputs\":[";
  bool binary = false;
  for (const RequestedOutput& output : request.outputs) {
    const TensorSpec& spec = outputs.declared()[output.spec];
    fmt::format_to(out, FMT_COMPILE("{{\"name\":\"{}\",\"datatype\":\"{}\",\"shape\":[{}"),
                   spec.name, name(spec.type), samples);
    for (size_t i = 1; i < spec.shape.size(); ++i) {
      fmt::format_to(out, FMT_COMPILE(",{}"), spec.shape[i]);
    }
    body += ']';
    if (output.binary) {
      binary = true;
      fmt::format_to(out, FMT_COMPILE(",\"parameters\":{{\"binary_data_size\":{}}}"),
                     binary_size(outputs, output.spec, samples, numbers));
    } else {
      append_data(outputs, output.spec, samples, numbers, body);
    }
    body += "},";
  }
  body.back() = ']';  // a request names at least one output
  body += '}';
  if (!binary) return 0;
  const size_t json = body.size();
  for (const RequestedOutput& output : request.outputs) {
    if (output.binary) append_binary(outputs, output.spec, samples, numbers, body);
  }
  return json;
}

std::string json_text(std::string_view text) { return dump_json(nlohmann::json(text), -1); }

std::string error_body(std::string_view message) {
  return "{\"error\":" + json_text(one_line(std::string(message))) + "}\n";
}

}  // namespace ridgeline::serve
