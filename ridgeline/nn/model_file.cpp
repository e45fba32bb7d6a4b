#include "ridgeline/nn/model_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <unordered_set>

#include "ridgeline/core/file.h"
#include "ridgeline/core/text.h"
#include "ridgeline/core/text_format.h"

namespace ridgeline::nn {
namespace {

constexpr const char* kVersionKey = "ridgeline.version";
constexpr const char* kConfigKey = "ridgeline.config";
constexpr const char* kInputKey = "ridgeline.input";
constexpr const char* kVersion = "1";

const std::string& require(const TensorFile& file, const char* key) {
  const auto found = file.metadata().find(key);
  if (found == file.metadata().end()) {
    throw_error(ErrorKind::model,
                "{}: has no '{}' in its metadata, so the network is unknown; give a file that "
                "ridgeline train has written",
                file.origin(), key);
  }
  return found->second;
}

// "28x28"
Shape parse_input(const std::string& text, const std::string& origin) {
  std::vector<int64_t> dims;
  const char* at = text.data();
  const char* end = at + text.size();
  while (dims.size() < size_t(Shape::kMaxRank)) {
    int64_t extent = 0;
    const auto [stop, error] = std::from_chars(at, end, extent);
    if (error != std::errc{} || extent < 1) break;
    dims.push_back(extent);
    if (stop == end) {
      for (int64_t product = 1; const int64_t each : dims) {
        product = checked_mul(product, each, fmt::format("{}: '{}'", origin, kInputKey).c_str());
      }
      return Shape(dims);
    }
    if (*stop != 'x') break;
    at = stop + 1;
  }
  throw_error(ErrorKind::model, "{}: '{}' in its metadata is {}; it should read like 28x28", origin,
              kInputKey, quote(text));
}

template <typename From>
double load(const std::byte* at) {
  From value;
  std::memcpy(&value, at, sizeof value);  // the file's tensors may be unaligned
  if constexpr (std::is_same_v<From, double>) return value;
  return double(float(value));
}

// Copies with conversion and returns how many elements are not finite.
template <typename From, typename To>
int64_t copy_as(std::span<const std::byte> from, std::span<To> to) {
  int64_t bad = 0;
  for (size_t i = 0; i < to.size(); ++i) {
    to[i] = To(load<From>(from.data() + i * sizeof(From)));
    bad += !std::isfinite(to[i]);
  }
  return bad;
}

int64_t copy(const TensorEntry& from, const Tensor& to) {
  if (to.dtype == DType::int64) {
    std::memcpy(to.data, from.data.data(), to.bytes());
    return 0;
  }
  return dispatch_float(from.dtype, [&]<typename From>(From) {
    return to.dtype == DType::fp64 ? copy_as<From>(from.data, to.span<double>())
                                   : copy_as<From>(from.data, to.span<float>());
  });
}

std::string describe_misfit(const TensorFile& file, const std::string& param,
                            const ParamSpec& spec) {
  const Shape& wanted = spec.shape;
  const TensorEntry* tensor = file.find(param);
  if (tensor == nullptr) return fmt::format("'{}' {} is missing", param, to_string(wanted));
  if (tensor->shape != wanted) {
    return fmt::format("'{}' is {} and should be {}", param, to_string(tensor->shape),
                       to_string(wanted));
  }
  if (spec.kind == ParamKind::counter) {
    if (tensor->dtype == DType::int64) return {};
    return fmt::format("'{}' holds {} and should hold int64", param, name(tensor->dtype));
  }
  if (!is_float(tensor->dtype)) {
    return fmt::format("'{}' holds {} and should hold floats", param, name(tensor->dtype));
  }
  return {};
}

std::string not_finite(const std::string& param, int64_t bad) {
  return fmt::format("'{}' has {} not finite", param,
                     counted(bad, "weight that is", "weights that are"));
}

}  // namespace

void check_tensors(const TensorFile& file, const Outline& model, const LoadOptions& options) {
  std::vector<std::string> misfits;
  std::unordered_set<std::string_view> known;
  for (const auto& [name, spec] : model.params) {
    known.insert(name);
    std::string misfit = describe_misfit(file, name, spec);
    if (!misfit.empty()) misfits.push_back(std::move(misfit));
  }
  for (const TensorEntry& tensor : file.tensors()) {
    if (!options.ignore_prefix.empty() && tensor.name.starts_with(options.ignore_prefix)) continue;
    if (!known.contains(tensor.name)) {
      misfits.push_back(
          fmt::format("'{}' {} is not part of the network", tensor.name, to_string(tensor.shape)));
    }
  }
  if (!misfits.empty()) {
    throw_error(ErrorKind::model, "{}: does not fit the network: {}", file.origin(),
                fmt::join(misfits, "; "));
  }
}

Metadata model_metadata(const Model& model, const std::string& config) {
  return {{"format", "pt"},
          {kVersionKey, kVersion},
          {kConfigKey, config},
          {kInputKey, fmt::format("{}", fmt::join(model.input().dims(), "x"))}};
}

std::vector<TensorEntry> model_tensors(const Model& model) {
  std::vector<TensorEntry> tensors;
  for (const Param& param : model.params())
    tensors.push_back(entry(param.name, param.value.view()));
  return tensors;
}

void require_finite(const Model& model, const std::string& what, ErrorKind kind) {
  std::vector<std::string> faults;
  const auto count = [](auto weights) {
    return std::ranges::count_if(weights, [](auto weight) { return !std::isfinite(weight); });
  };
  for (const Param& param : model.params()) {
    const HostTensor& weights = param.value;
    const DType dtype = weights.view().dtype;
    const int64_t bad = dtype == DType::fp64   ? count(weights.span<double>())
                        : dtype == DType::fp32 ? count(weights.span<float>())
                                               : 0;  // a counter
    if (bad > 0) faults.push_back(not_finite(param.name, bad));
  }
  if (faults.empty()) return;
  throw_error(kind, "{}: a model with weights that are not finite is not written: {}", what,
              fmt::join(faults, "; "));
}

ModelDescription read_description(const TensorFile& file) {
  const std::string& version = require(file, kVersionKey);
  if (version != kVersion) {
    throw_error(ErrorKind::model, "{}: is of version {}; this build reads version {}",
                file.origin(), quote(version), kVersion);
  }
  return {require(file, kConfigKey), parse_input(require(file, kInputKey), file.origin())};
}

std::vector<std::string> load_weights(const TensorFile& file, Model& model,
                                      const LoadOptions& options) {
  check_tensors(file, outline(model.graph(), model.input()), options);
  std::vector<HostTensor> loaded;
  std::vector<std::string> warnings;
  for (const Param& param : model.params()) {
    const Tensor& old = param.value.view();
    loaded.emplace_back(old.dtype, old.shape);
    const int64_t bad = copy(*file.find(param.name), loaded.back().view());
    if (bad > 0) {
      warnings.push_back(file.origin() + ": " + not_finite(param.name, bad));
    }
  }
  if (options.strict && !warnings.empty()) {
    throw_error(ErrorKind::model, "{}", fmt::join(warnings, "; "));
  }
  for (size_t i = 0; i < loaded.size(); ++i) {
    const Tensor& to = model.params()[i].value.view();
    if (to.bytes() > 0) std::memcpy(to.data, loaded[i].view().data, to.bytes());
  }
  return warnings;
}

}  // namespace ridgeline::nn
