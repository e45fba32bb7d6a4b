#include <algorithm>
#include <map>
#include <tuple>

#include "ridgeline/onnx/composition.h"
#include "ridgeline/onnx/importer.h"
#include "ridgeline/ops/join.h"

// Recurrent nodes that no recurrent layer of ours computes: their initial states are computed, the
// last cell state is read, or they have peepholes. They are written out timestep by timestep; the
// timesteps share their weights.
namespace ridgeline::onnx {
namespace {

constexpr int64_t kMostSteps = 256;

class Unrolled {
 public:
  explicit Unrolled(Importer& in) : in_(in), make_(in), op_(in.node().op) {
    const View& x = in.look(0).view;
    w_ = in.require_known(1);
    r_ = in.require_known(2);
    if (in.has(3)) b_ = in.require_known(3);
    if (in.has(7)) p_ = in.require_known(7);
    const std::string direction = in.node().text("direction", "forward");
    directions_ = direction == "bidirectional" ? 2 : 1;
    reverse_ = direction == "reverse";
    if (in.node().integer("layout", 0) != 0 || x.dims.size() != 3 || x.batch_axis != 1) {
      in.refuse("its input is not [timesteps, N, features]");
    }
    steps_ = x.dims[0];
    features_ = x.dims[2];
    hidden_ = r_->dims.size() == 3 ? r_->dims[2] : 0;
    gates_ = op_ == "LSTM" ? 4 : op_ == "GRU" ? 3 : 1;
    const int64_t rows = gates_ * hidden_;
    if (hidden_ < 1 || w_->integer || r_->integer ||
        w_->dims != std::vector<int64_t>{directions_, rows, features_} ||
        r_->dims != std::vector<int64_t>{directions_, rows, hidden_} ||
        (b_ && (b_->integer || b_->dims != std::vector<int64_t>{directions_, 2 * rows})) ||
        (p_ && (p_->integer || p_->dims != std::vector<int64_t>{directions_, 3 * hidden_}))) {
      in.refuse("its weights do not fit its input");
    }
    if (steps_ * directions_ > kMostSteps) {
      in.refuse(
          fmt::format("is written out timestep by timestep, for up to {} of them, because "
                      "its state is computed or read",
                      kMostSteps));
    }
    activation_ = read_recurrent_activation(in, directions_) == "relu" ? "Relu" : "Tanh";
    const ConstantPtr lengths =
        in.has(4) ? (in.repeated(4) ? in.repeated(4) : in.known(4)) : nullptr;
    for (int64_t i = 0; lengths && i < lengths->kept(); ++i) {
      if (lengths->number(i) != double(steps_)) in.refuse("its samples have lengths of their own");
    }
  }

  void run() {
    std::vector<std::string> all, last, cells;  // of each direction
    for (int64_t d = 0; d < directions_; ++d) {
      direction(d);
      all.push_back(unsqueezed(stacked(outputs_), 1));
      last.push_back(unsqueezed(h_, 0));
      if (!c_.empty()) cells.push_back(unsqueezed(c_, 0));
    }
    finish(0, all, 1);
    finish(1, last, 0);
    if (!cells.empty()) finish(2, cells, 0);
  }

 private:
  void finish(size_t output, const std::vector<std::string>& parts, int64_t axis) {
    if (in_.gives(output)) {
      make_.finish("Concat", parts, {{"axis", Composition::integer(axis)}}, output);
    }
  }

  void direction(int64_t d) {
    const std::string rt = matrix(*r_, d, hidden_, 0, gates_);
    const std::string x = add(
        make_.add("MatMul", {in_.node().input(0), matrix(*w_, d, features_, 0, gates_)}), bias(d));
    h_ = state(5, d);
    c_ = op_ == "LSTM" ? state(6, d) : "";
    outputs_.assign(size_t(steps_), "");
    for (int64_t step = 0; step < steps_; ++step) {
      const int64_t t = reverse_ || d == 1 ? steps_ - 1 - step : step;
      const std::string now = picked(x, t);
      if (op_ == "LSTM") {
        lstm(d, h_.empty() ? now : add(now, multiplied(h_, rt)));
      } else if (op_ == "GRU") {
        gru(d, now);
      } else {
        h_ = make_.add(activation_.c_str(), {h_.empty() ? now : add(now, multiplied(h_, rt))});
      }
      outputs_[size_t(t)] = h_;
    }
  }

  // Gates i, o, f, c.
  void lstm(int64_t d, const std::string& sums) {
    const auto gate = [&](int64_t at, int64_t peephole, const std::string& cell) {
      std::string sum = part(sums, at);
      if (p_ && peephole >= 0 && !cell.empty()) {
        const auto begin = p_->floats.begin() + (d * 3 + peephole) * hidden_;
        sum = add(sum, product(cell, make_.constant(make_floats(
                                         {hidden_}, std::vector<float>(begin, begin + hidden_)))));
      }
      return make_.add(peephole < 0 ? "Tanh" : "Sigmoid", {sum});
    };
    const std::string fresh = product(gate(0, 0, c_), gate(3, -1, {}));
    c_ = c_.empty() ? fresh : add(product(gate(2, 2, c_), c_), fresh);
    h_ = product(gate(1, 1, c_), make_.add("Tanh", {c_}));
  }

  // Gates z, r, h.
  void gru(int64_t d, const std::string& x) {
    const bool reset_first = in_.node().integer("linear_before_reset", 0) == 0;
    const auto sigmoid = [&](int64_t at) {
      const std::string sum = part(x, at);
      if (h_.empty()) return make_.add("Sigmoid", {sum});
      return make_.add("Sigmoid", {add(sum, multiplied(h_, matrix(*r_, d, hidden_, at, 1)))});
    };
    const std::string z = sigmoid(0), r = sigmoid(1), weight = matrix(*r_, d, hidden_, 2, 1);
    std::string sum = part(x, 2);
    if (reset_first) {
      if (!h_.empty()) sum = add(sum, multiplied(product(r, h_), weight));
    } else if (h_.empty()) {
      sum = add(sum, product(r, state_bias(d)));
    } else {
      sum = add(sum, product(r, add(multiplied(h_, weight), state_bias(d))));
    }
    const std::string n = make_.add("Tanh", {sum});
    // n + z (h - n)
    const std::string from = h_.empty() ? make_.add("Neg", {n}) : make_.add("Sub", {h_, n});
    h_ = add(n, product(z, from));
  }

  std::string add(const std::string& a, const std::string& b) { return make_.add("Add", {a, b}); }
  std::string product(const std::string& a, const std::string& b) {
    return make_.add("Mul", {a, b});
  }
  std::string multiplied(const std::string& x, const std::string& matrix) {
    return make_.add("MatMul", {x, matrix});
  }
  std::string picked(const std::string& x, int64_t at) {
    const std::string index = make_.constant(make_ints({}, {at}));
    return make_.add("Gather", {x, index}, {{"axis", Composition::integer(0)}});
  }
  std::string part(const std::string& sums, int64_t gate) {
    if (gates_ == 1) return sums;
    return make_.add("Slice", {sums, make_.integers({gate * hidden_}),
                               make_.integers({(gate + 1) * hidden_}), make_.integers({1})});
  }
  std::string unsqueezed(const std::string& x, int64_t axis) {
    return make_.add("Unsqueeze", {x}, {{"axes", Composition::list({axis})}});
  }
  // One layer joins a limited number of values.
  std::string stacked(const std::vector<std::string>& values) {
    std::vector<std::string> parts;
    for (const std::string& each : values) parts.push_back(unsqueezed(each, 0));
    while (parts.size() > 1) {
      std::vector<std::string> fewer;
      for (size_t at = 0; at < parts.size(); at += kMostJoined) {
        const size_t end = std::min(parts.size(), at + kMostJoined);
        fewer.push_back(make_.add("Concat",
                                  {parts.begin() + ptrdiff_t(at), parts.begin() + ptrdiff_t(end)},
                                  {{"axis", Composition::integer(0)}}));
      }
      parts = std::move(fewer);
    }
    return parts[0];
  }

  // Returns an initial state [N, hidden] that is computed; "" for zeros.
  std::string state(size_t input, int64_t d) {
    if (!in_.has(input)) return "";
    if (!in_.is_known(input) && !in_.repeated(input)) return picked(in_.node().input(input), d);
    const ConstantPtr known = in_.repeated(input) ? in_.repeated(input) : in_.known(input);
    if (!known->all_zero()) in_.refuse("one of its initial states is constant, but not zero");
    return "";
  }

  // The constants of `count` gates from `first` on, transposed: [depth, count * hidden]. They are
  // made once, so that the timesteps share them.
  std::string matrix(const Constant& from, int64_t d, int64_t depth, int64_t first, int64_t count) {
    std::string& name = matrices_[{&from, d, first, count}];
    if (!name.empty()) return name;
    const int64_t columns = count * hidden_, skipped = (d * gates_ + first) * hidden_;
    std::vector<float> made(size_t(depth * columns));
    for (int64_t row = 0; row < columns; ++row) {
      for (int64_t i = 0; i < depth; ++i) {
        made[size_t(i * columns + row)] = from.floats[size_t((skipped + row) * depth + i)];
      }
    }
    return name = make_.constant(make_floats({depth, columns}, std::move(made)));
  }

  // The sums of both biases. That of a GRU's state stays apart if the reset gate acts on it.
  std::string bias(int64_t d) {
    const int64_t rows = gates_ * hidden_;
    const bool apart = op_ == "GRU" && in_.node().integer("linear_before_reset", 0) != 0;
    std::vector<float> sums(size_t(rows), 0.0f);
    for (int64_t i = 0; b_ && i < rows; ++i) {
      const auto at = size_t(d * 2 * rows + i);
      sums[size_t(i)] = b_->floats[at];
      if (!apart || i < 2 * hidden_) sums[size_t(i)] += b_->floats[at + size_t(rows)];
    }
    return make_.constant(make_floats({rows}, std::move(sums)));
  }
  std::string state_bias(int64_t d) {
    std::vector<float> own(size_t(hidden_), 0.0f);
    if (b_) std::copy_n(b_->floats.begin() + (d * 6 + 5) * hidden_, hidden_, own.begin());
    return make_.constant(make_floats({hidden_}, std::move(own)));
  }

  Importer& in_;
  Composition make_;
  std::string op_, activation_;
  ConstantPtr w_, r_, b_, p_;
  int64_t directions_, steps_, features_, hidden_, gates_;
  bool reverse_;
  std::string h_, c_;                 // the states before a timestep; "": zeros
  std::vector<std::string> outputs_;  // h after each timestep
  std::map<std::tuple<const Constant*, int64_t, int64_t, int64_t>, std::string> matrices_;
};

}  // namespace

void import_unrolled(Importer& in) { Unrolled(in).run(); }

}  // namespace ridgeline::onnx
