#include "ridgeline/nn/init.h"

#include <fmt/format.h>

#include <cmath>

#include "ridgeline/core/philox.h"

namespace ridgeline::nn {
namespace {

constexpr std::pair<std::string_view, InitKind> kInitKinds[] = {
    {"default", InitKind::standard},
    {"zeros", InitKind::zeros},
    {"ones", InitKind::ones},
    {"normal", InitKind::normal},
    {"uniform", InitKind::uniform},
    {"xavier", InitKind::xavier},
    {"he", InitKind::he},
};
constexpr std::pair<std::string_view, Distribution> kDistributions[] = {
    {"uniform", Distribution::uniform},
    {"normal", Distribution::normal},
};

std::string_view init_name(InitKind kind) {
  for (const auto& [name, value] : kInitKinds) {
    if (value == kind) return name;
  }
  return "unknown";
}

bool has_distribution(InitKind kind) { return kind == InitKind::xavier || kind == InitKind::he; }

bool is_normal(const Init& init) {
  return init.kind == InitKind::normal ||
         (has_distribution(init.kind) && init.distribution == Distribution::normal);
}

// Returns the standard deviation of a normal distribution, or the bound of a uniform one.
double width(const Init& init, const Fans& fans) {
  // A uniform distribution of bound b has deviation b / sqrt(3).
  const double spread = is_normal(init) ? 1.0 : std::sqrt(3.0);
  switch (init.kind) {
    case InitKind::standard:
      return 1.0 / std::sqrt(double(fans.in));
    case InitKind::zeros:
    case InitKind::ones:
      return 0.0;
    case InitKind::normal:
    case InitKind::uniform:
      return init.parameter;
    case InitKind::xavier:
      return spread * std::sqrt(2.0 / double(fans.in + fans.out));
    case InitKind::he:
      return spread * std::sqrt(2.0 / double(fans.in));
  }
  return 0.0;
}

template <typename T>
void fill_as(const Init& init, double width, const Philox& random, std::span<T> values) {
  if (init.kind == InitKind::zeros || init.kind == InitKind::ones) {
    std::fill(values.begin(), values.end(), init.kind == InitKind::ones ? T{1} : T{0});
  } else if (is_normal(init)) {
    for (size_t i = 0; i < values.size(); ++i) values[i] = T(init.mean + width * random.normal(i));
  } else {
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = T(width * (2.0 * double(random.uniform(i)) - 1.0));
    }
  }
}

}  // namespace

void fill(const Init& init, const Fans& fans, uint64_t seed, uint64_t param, const Tensor& value) {
  const Philox random{seed, streams::kInit + param};
  if (value.dtype == DType::fp64) {
    fill_as(init, width(init, fans), random, value.span<double>());
  } else if (value.dtype == DType::fp32) {
    fill_as(init, width(init, fans), random, value.span<float>());
  } else {
    throw_error(ErrorKind::usage, "weights are fp64 or fp32, not {}", name(value.dtype));
  }
}

Init read_init(ConfigTable& parent, const std::string& key) {
  Init init;
  if (parent.is_text(key)) {
    init.kind = parent.choice<InitKind>(key, std::nullopt, kInitKinds);
    if (init.kind == InitKind::normal)
      parent.fail(key, "needs std: { type = \"normal\", std = 0.01 }");
    if (init.kind == InitKind::uniform) {
      parent.fail(key, "needs bound: { type = \"uniform\", bound = 0.1 }");
    }
    return init;
  }
  if (!parent.has(key)) return init;
  ConfigTable table = parent.table(key);
  init.kind = table.choice<InitKind>("type", std::nullopt, kInitKinds);
  if (init.kind == InitKind::normal) init.parameter = table.number("std", std::nullopt, {0.0});
  if (init.kind == InitKind::uniform) init.parameter = table.number("bound", std::nullopt, {0.0});
  if (has_distribution(init.kind)) {
    init.distribution =
        table.choice<Distribution>("distribution", Distribution::uniform, kDistributions);
  }
  table.finish();
  return init;
}

std::string to_toml(const Init& init) {
  std::string text = fmt::format("{{ type = {}", toml_text(init_name(init.kind)));
  if (init.kind == InitKind::normal) text += fmt::format(", std = {}", toml_number(init.parameter));
  if (init.kind == InitKind::uniform)
    text += fmt::format(", bound = {}", toml_number(init.parameter));
  if (has_distribution(init.kind)) {
    text += fmt::format(", distribution = \"{}\"", is_normal(init) ? "normal" : "uniform");
  }
  return text + " }";
}

}  // namespace ridgeline::nn
