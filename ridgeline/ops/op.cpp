#include "ridgeline/ops/op.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace ridgeline {
namespace {

Values present(Values values) {
  std::erase_if(values, [](const Value& value) { return !value; });
  return values;
}

template <size_t... kIndices>
AnyOp moved_from(size_t index, void* op, std::index_sequence<kIndices...>) {
  using Move = AnyOp (*)(void*);
  static constexpr Move kMoves[] = {[](void* from) {
    using T = std::variant_alternative_t<kIndices, AnyOp>;
    return AnyOp(std::in_place_index<kIndices>, std::move(*static_cast<T*>(from)));
  }...};
  return kMoves[index](op);
}

}  // namespace

Op::Op(size_t index, void* op)
    : AnyOp(moved_from(index, op, std::make_index_sequence<std::variant_size_v<AnyOp>>())) {}
Op::Op(const Op&) = default;
Op::Op(Op&&) noexcept = default;
Op& Op::operator=(const Op&) = default;
Op& Op::operator=(Op&&) noexcept = default;
Op::~Op() = default;

const char* name(const Op& op) {
  return std::visit([](const auto& o) { return o.kName; }, op);
}

Values reads(const Op& op) {
  return present(std::visit([](const auto& o) { return o.reads(); }, op));
}

Values writes(const Op& op) {
  return present(std::visit([](const auto& o) { return o.writes(); }, op));
}

double flops(const Op& op) {
  return std::visit([](const auto& o) { return o.flops(); }, op);
}

double bytes(const Op& op) {
  return std::visit([](const auto& o) { return o.bytes(); }, op);
}

std::string attributes(const Op& op) {
  return std::visit([](const auto& o) { return o.attributes(); }, op);
}

std::string describe(const Op& op) {
  std::vector<std::string> in, out;
  for (const Value& value : reads(op)) {
    if (value.shape.numel() > 1) in.push_back(to_string(value.shape));
  }
  const Values written = writes(op);
  for (const Value& value : written) out.push_back(to_string(value.shape));
  const std::string extra = attributes(op);
  return fmt::format("{} {} -> {} {}{}", name(op), fmt::join(in, " "), fmt::join(out, " "),
                     written.empty() ? "" : name(written.front().dtype),
                     extra.empty() ? "" : " (" + extra + ")");
}

const char* name(ActivationKind kind) {
  switch (kind) {
    case ActivationKind::none:
      return "none";
    case ActivationKind::relu:
      return "relu";
    case ActivationKind::tanh:
      return "tanh";
    case ActivationKind::sigmoid:
      return "sigmoid";
    case ActivationKind::gelu:
      return "gelu";
    case ActivationKind::silu:
      return "silu";
    case ActivationKind::leaky_relu:
      return "leaky_relu";
    case ActivationKind::elu:
      return "elu";
    case ActivationKind::softplus:
      return "softplus";
    case ActivationKind::hardswish:
      return "hardswish";
  }
  return "unknown";
}

std::string activation_attributes(ActivationKind kind, double parameter) {
  return has_parameter(kind) ? fmt::format("{},{}", name(kind), parameter) : name(kind);
}

const char* name(UnaryKind kind) {
  switch (kind) {
    case UnaryKind::exp:
      return "exp";
    case UnaryKind::log:
      return "log";
    case UnaryKind::sqrt:
      return "sqrt";
    case UnaryKind::reciprocal:
      return "reciprocal";
    case UnaryKind::sin:
      return "sin";
    case UnaryKind::floor:
      return "floor";
    case UnaryKind::round:
      return "round";
    case UnaryKind::step:
      return "step";
  }
  return "unknown";
}

const char* name(LossFn fn) {
  switch (fn) {
    case LossFn::mae:
      return "mae";
    case LossFn::huber:
      return "huber";
    case LossFn::bce_with_logits:
      return "bce_with_logits";
    case LossFn::quantile:
      return "quantile";
  }
  return "unknown";
}

const char* name(CellKind cell) {
  switch (cell) {
    case CellKind::rnn_relu:
      return "rnn_relu";
    case CellKind::rnn_tanh:
      return "rnn_tanh";
    case CellKind::gru:
      return "gru";
    case CellKind::lstm:
      return "lstm";
  }
  return "unknown";
}

const char* name(Direction direction) {
  switch (direction) {
    case Direction::forward:
      return "forward";
    case Direction::reverse:
      return "reverse";
    case Direction::both:
      return "both";
  }
  return "unknown";
}

}  // namespace ridgeline
