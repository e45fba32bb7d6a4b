#include "ridgeline/cuda/conv1d/spans.h"

#include <charconv>

#include "ridgeline/cuda/conv1d/conv1d.h"
#include "ridgeline/cuda/conv1d/shapes.h"

namespace ridgeline::cuda {
namespace {

constexpr std::string_view kPrefix = "~signal:";

Format signal_format(int64_t channels, int64_t length) {
  return fmt::format("{}{}x{}", kPrefix, channels, length);
}

}  // namespace

FormatUse signal_use(const Value& value, int64_t channels, int64_t length) {
  const int64_t rows = value.shape[0] * signal_pitch(length);
  return {value.id, signal_format(channels, length),
          size_t(rows * channels) * size_of(value.dtype)};
}

std::optional<Signal> parse_signal(const Format& format) {
  if (!format.starts_with(kPrefix)) return {};
  Signal signal;
  const char *at = format.data() + kPrefix.size(), *end = format.data() + format.size();
  at = std::from_chars(at, end, signal.channels).ptr;
  if (at == end || *at != 'x') return {};
  return std::from_chars(at + 1, end, signal.length).ptr == end ? std::optional(signal)
                                                                : std::nullopt;
}

bool is_signal_type(DType dtype) { return dtype == DType::fp32 || size_of(dtype) == 2; }

bool is_relu(const Activation* activation, const Value& x) {
  return activation != nullptr && activation->kind == ActivationKind::relu &&
         activation->x.id == x.id;
}

std::optional<NormPool> norm_pool_at(const RemainingOps& rest, size_t at, const Value& x) {
  NormPool found{rest.get<LayerNorm>(at), rest.get<Activation>(at + 1), rest.get<MaxPool>(at + 2)};
  if (found.norm == nullptr || found.relu == nullptr || found.pool == nullptr) return {};
  if (found.norm->x.id != x.id || !is_relu(found.relu, found.norm->y)) return {};
  if (found.pool->x.id != found.relu->y.id || !is_pool3(found.pool->shape)) return {};
  return found;
}

std::string refuse_norm(const LayerNorm& norm) {
  if (norm.mean || norm.rstd) return "keeps no moments for a gradient";
  if (norm.rows() != norm.x.shape[0]) return "normalises whole samples";
  if (!norm.gamma || !norm.beta) return "takes gamma and beta";
  return refuse_floats({norm.x, norm.gamma, norm.beta, norm.y});
}

int sms(const Binding& binding) { return cuda_runtime(binding.runtime()).sms(); }

}  // namespace ridgeline::cuda
