#include "ridgeline/ops/op.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace ridgeline {
namespace {

Values present(Values values) {
  std::erase_if(values, [](const Value& value) { return !value; });
  return values;
}

}  // namespace

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
    case ActivationKind::relu:
      return "relu";
    case ActivationKind::tanh:
      return "tanh";
    case ActivationKind::sigmoid:
      return "sigmoid";
    case ActivationKind::gelu:
      return "gelu";
  }
  return "unknown";
}

ActivationKind parse_activation(std::string_view text) {
  for (const ActivationKind kind : {ActivationKind::relu, ActivationKind::tanh,
                                    ActivationKind::sigmoid, ActivationKind::gelu}) {
    if (text == name(kind)) return kind;
  }
  throw_error(ErrorKind::usage, "'{}' is not an activation; use relu, tanh, sigmoid or gelu", text);
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
