#include "ridgeline/nn/recurrent.h"

#include <fmt/format.h>

#include "ridgeline/nn/builder.h"

namespace ridgeline::nn {
namespace {

constexpr int64_t kMostHidden = int64_t{1} << 20, kMostStacked = 1024;

// Indices of the values that forward() saves for each layer of the stack.
enum Saved : size_t { kX, kY, kReserve, kH0, kC0, kSavedCount };

RecurrentSettings read_settings(ConfigTable& table, CellKind cell) {
  RecurrentSettings s;
  s.cell = cell;
  s.hidden = table.integer("hidden", std::nullopt, {1, kMostHidden});
  s.layers = table.integer("layers", 1, {1, kMostStacked});
  s.both = table.boolean("bidirectional", false);
  s.reverse = table.boolean("reverse", false);
  s.initial = table.boolean("initial_state", false);
  if (s.both && s.reverse) table.fail("reverse", "is one of the two directions already");
  s.dropout = table.number("dropout", 0.0, {0.0, kBelowOne});
  s.bias = table.boolean("bias", true);
  if (s.dropout > 0 && s.layers == 1) {
    table.fail("dropout",
               "it stands between layers, and there is one; add a dropout layer instead");
  }
  return s;
}

Value viewed(Value value, const Shape& shape) {
  value.shape = shape;
  return value;
}

// Returns a distinct mask number for each gap of each stack.
uint32_t mask_number(int layer, int64_t gap) { return uint32_t(gap + 1) << 12 | uint32_t(layer); }

Value dropped(Builder& builder, double p, uint32_t number, const Value& x, std::string name) {
  const Value y = builder.like(std::move(name), x);
  const LowerOptions& options = builder.options();
  builder.add(Dropout{x, builder.step(), builder.tick(), y,
                      DropoutMask{p, options.seed, number, options.sample_offset}});
  return y;
}

}  // namespace

LayerPtr RecurrentLayer::read_rnn(ConfigTable& table) {
  constexpr std::pair<std::string_view, CellKind> kKinds[] = {{"tanh", CellKind::rnn_tanh},
                                                              {"relu", CellKind::rnn_relu}};
  const CellKind cell = table.choice<CellKind>("activation", CellKind::rnn_tanh, kKinds);
  return std::make_shared<RecurrentLayer>(read_settings(table, cell));
}
LayerPtr RecurrentLayer::read_gru(ConfigTable& table) {
  return std::make_shared<RecurrentLayer>(read_settings(table, CellKind::gru));
}
LayerPtr RecurrentLayer::read_lstm(ConfigTable& table) {
  return std::make_shared<RecurrentLayer>(read_settings(table, CellKind::lstm));
}

std::string RecurrentLayer::type() const {
  return s_.cell == CellKind::lstm ? "lstm" : s_.cell == CellKind::gru ? "gru" : "rnn";
}

Shape RecurrentLayer::output(const Shape& input) const {
  if (input.rank() != 2 || input.numel() < 1) {
    throw_error(ErrorKind::usage,
                "wants a sequence [steps, features]; of characters, put an embedding layer before");
  }
  return {input[0], directions() * s_.hidden};
}

std::vector<ParamSpec> RecurrentLayer::params(const Shape& input) const {
  const int64_t rows = gates(s_.cell) * s_.hidden;
  const Fans fans{s_.hidden, rows};  // PyTorch: all of them uniform within 1 / sqrt(hidden)
  std::vector<ParamSpec> all;
  for (int64_t layer = 0; layer < s_.layers; ++layer) {
    for (int64_t d = 0; d < directions(); ++d) {
      const std::string end = fmt::format("_l{}{}", layer, d == 1 ? "_reverse" : "");
      all.push_back({"weight_ih" + end, {rows, width_into(layer, input[1])}, Init{}, fans});
      all.push_back({"weight_hh" + end, {rows, s_.hidden}, Init{}, fans});
      if (!s_.bias) continue;
      all.push_back({"bias_ih" + end, {rows}, Init{}, fans});
      all.push_back({"bias_hh" + end, {rows}, Init{}, fans});
    }
    if (!s_.initial) continue;
    const Init zeros{InitKind::zeros, 0, {}};
    all.push_back({fmt::format("h0_l{}", layer), {directions(), s_.hidden}, zeros, fans});
    if (s_.cell != CellKind::lstm) continue;
    all.push_back({fmt::format("c0_l{}", layer), {directions(), s_.hidden}, zeros, fans});
  }
  return all;
}

size_t RecurrentLayer::initial_at(int64_t layer) const {
  const size_t weights = size_t(directions()) * (s_.bias ? 4 : 2);
  const size_t states = !s_.initial ? 0 : s_.cell == CellKind::lstm ? 2 : 1;
  return size_t(layer) * (weights + states) + weights;
}

// Broadcasts the shared initial state to every sample, [directions, batch, hidden]: an image of one
// row per direction, whose rows are repeated.
Value RecurrentLayer::begin(Builder& builder, const Value& param, const RnnShape& shape,
                            const std::string& name) const {
  const UpsampleShape repeat{{directions(), 1, s_.hidden}, shape.batch, 1, UpsampleMode::nearest};
  const Value state = builder.temp(name, shape.state());
  builder.add(Upsample{viewed(param, {1, directions() * s_.hidden}),
                       viewed(state, {1, shape.state().numel()}), repeat});
  return state;
}

// The gradient of the initial state is the sum over the samples.
void RecurrentLayer::add_begin_grad(Builder& builder, const Value& state_grad, const Value& grad,
                                    const RnnShape& shape) const {
  const UpsampleShape repeat{{directions(), 1, s_.hidden}, shape.batch, 1, UpsampleMode::nearest};
  builder.add(UpsampleGrad{viewed(state_grad, {1, shape.state().numel()}),
                           viewed(grad, {1, directions() * s_.hidden}), repeat});
}

RnnDirections RecurrentLayer::weights(const Values& params, int64_t layer) const {
  const size_t each = s_.bias ? 4 : 2;
  RnnDirections all;
  for (size_t d = 0; d < size_t(directions()); ++d) {
    const size_t at = initial_at(layer) - (size_t(directions()) - d) * each;
    all[d] = {params[at], params[at + 1], s_.bias ? params[at + 2] : Value{},
              s_.bias ? params[at + 3] : Value{}};
  }
  return all;
}

RnnShape RecurrentLayer::shape_of(const LayerValues& values, int64_t layer) const {
  const int64_t n = values.x.shape[0], in = values.params[0].shape[1];
  return {s_.cell,
          s_.both      ? Direction::both
          : s_.reverse ? Direction::reverse
                       : Direction::forward,
          values.x.shape.numel() / n / in,
          n,
          width_into(layer, in),
          s_.hidden};
}

Value RecurrentLayer::forward(Builder& builder, LayerValues& values) const {
  const bool carry = builder.options().carry_state, lstm = s_.cell == CellKind::lstm;
  if (carry && s_.initial) {
    throw_error(ErrorKind::usage,
                "layer {} ({}): text that continues from batch to batch begins where the last one "
                "ended; set initial_state to false",
                values.layer, type());
  }
  if (carry && (s_.both || s_.reverse)) {
    throw_error(ErrorKind::usage,
                "layer {} ({}): text that continues from batch to batch is read in one direction "
                "only, forward; set bidirectional and reverse to false",
                values.layer, type());
  }
  Value x = values.x;
  for (int64_t layer = 0; layer < s_.layers; ++layer) {
    const RnnShape shape = shape_of(values, layer);
    const bool last = layer + 1 == s_.layers;
    const auto named = [&](const char* what) {
      return fmt::format("{}.{}_l{}", values.layer, what, layer);
    };
    const Value y = builder.temp(last ? fmt::format("x{}", values.layer + 1) : named("y"),
                                 shape.y().flat_from(1));
    Value h0, c0, hT, cT, reserve;
    if (carry) {
      h0 = builder.carried(named("h"), shape.state());
      hT = builder.next(h0);
      if (lstm) {
        c0 = builder.carried(named("c"), shape.state());
        cT = builder.next(c0);
      }
    }
    if (s_.initial) {
      h0 = begin(builder, values.params[initial_at(layer)], shape, named("h0"));
      if (lstm) c0 = begin(builder, values.params[initial_at(layer) + 1], shape, named("c0"));
    }
    if (builder.training() && saved_vectors(s_.cell) > 0) {
      reserve = builder.temp(named("reserve"), shape.reserve());
    }
    builder.add(Rnn{shape, viewed(x, shape.x()), weights(values.params, layer), h0, c0,
                    builder.lengths(), viewed(y, shape.y()), hT, cT, reserve});
    for (const Value& value : {x, y, reserve, h0, c0}) values.saved.push_back(value);
    x = y;
    if (!last && builder.training() && s_.dropout > 0) {
      x = dropped(builder, s_.dropout, mask_number(values.layer, layer), y, named("dropped"));
    }
  }
  return x;
}

Value RecurrentLayer::input_again(Builder& builder, const LayerValues& values,
                                  int64_t layer) const {
  if (layer == 0) return values.x;  // which may have been recomputed
  const size_t at = size_t(layer) * kSavedCount;
  if (!builder.options().recompute || s_.dropout == 0) return values.saved[at + kX];
  builder.set_again(true);
  const Value x = dropped(builder, s_.dropout, mask_number(values.layer, layer - 1),
                          values.saved[at - kSavedCount + kY],
                          fmt::format("{}.dropped_l{}", values.layer, layer - 1));
  builder.set_again(false);
  return x;
}

// The last layer of the topmost stack needs its gates right after the loss, so they are kept.
Value RecurrentLayer::reserve_again(Builder& builder, const LayerValues& values, int64_t layer,
                                    const Value& x) const {
  const auto saved = [&](Saved which) { return values.saved[size_t(layer) * kSavedCount + which]; };
  const bool again = builder.options().recompute && (values.recompute || layer + 1 < s_.layers);
  if (!again || !saved(kReserve)) return saved(kReserve);
  const RnnShape shape = shape_of(values, layer);
  const auto temp = [&](const char* what, const Shape& of) {
    return builder.temp(fmt::format("{}.{}_l{}", values.layer, what, layer), of);
  };
  builder.set_again(true);
  const bool ends = builder.options().carry_state;  // the same op as in the forward pass
  const bool lstm = s_.cell == CellKind::lstm;
  const Value reserve = temp("reserve", shape.reserve());
  builder.add(Rnn{shape, viewed(x, shape.x()), weights(values.params, layer), saved(kH0),
                  saved(kC0), builder.lengths(), temp("y", shape.y()),
                  ends ? temp("h", shape.state()) : Value{},
                  ends && lstm ? temp("c", shape.state()) : Value{}, reserve});
  builder.set_again(false);
  return reserve;
}

Value RecurrentLayer::backward(Builder& builder, const LayerValues& values, const Value& dy,
                               bool needs_dx) const {
  Value gradient = dy, dx;
  for (int64_t layer = s_.layers; layer-- > 0;) {
    const RnnShape shape = shape_of(values, layer);
    const auto saved = [&](Saved which) {
      return values.saved[size_t(layer) * kSavedCount + which];
    };
    const auto named = [&](const char* what) {
      return fmt::format("{}.{}_l{}", values.layer, what, layer);
    };
    const RnnDirections w = weights(values.params, layer);
    const Value x = input_again(builder, values, layer);
    const Value reserve = reserve_again(builder, values, layer, x);
    const Value gates = builder.temp(named("dgates"), shape.gate_gradients());
    const Value y = viewed(saved(kY), shape.y());
    Value dh0, dc0;
    if (s_.initial) dh0 = builder.temp(named("dh0"), shape.state());
    if (s_.initial && s_.cell == CellKind::lstm) dc0 = builder.temp(named("dc0"), shape.state());
    builder.add(RnnGrad{shape,
                        y,
                        reserve,
                        w,
                        saved(kH0),
                        saved(kC0),
                        builder.lengths(),
                        viewed(gradient, shape.y()),
                        {},
                        {},
                        gates,
                        dh0,
                        dc0});
    if (dh0) add_begin_grad(builder, dh0, values.grads[initial_at(layer)], shape);
    if (dc0) add_begin_grad(builder, dc0, values.grads[initial_at(layer) + 1], shape);
    if (layer > 0 || needs_dx) {
      dx = builder.temp(layer > 0 ? named("dx") : fmt::format("dx{}", values.layer),
                        shape.x().flat_from(1));
      builder.add(RnnGradX{shape, gates, w, viewed(dx, shape.x())});
    }
    builder.add(RnnGradW{shape, viewed(x, shape.x()), y, saved(kH0), builder.lengths(), gates,
                         weights(values.grads, layer)});
    gradient = dx;
    if (layer > 0 && s_.dropout > 0) {
      gradient =
          dropped(builder, s_.dropout, mask_number(values.layer, layer - 1), dx, named("ddropped"));
    }
  }
  return dx;
}

std::string RecurrentLayer::to_toml() const {
  std::string text = fmt::format("{{ type = \"{}\", hidden = {}, layers = {}, bidirectional = {}",
                                 type(), s_.hidden, s_.layers, s_.both);
  if (type() == "rnn") {
    text += fmt::format(", activation = \"{}\"", s_.cell == CellKind::rnn_relu ? "relu" : "tanh");
  }
  if (s_.reverse) text += ", reverse = true";
  if (s_.initial) text += ", initial_state = true";
  return text + fmt::format(", dropout = {}, bias = {} }}", toml_number(s_.dropout), s_.bias);
}

}  // namespace ridgeline::nn
