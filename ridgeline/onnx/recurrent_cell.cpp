#include "ridgeline/onnx/recurrent_cell.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ridgeline/onnx/fold.h"
#include "ridgeline/onnx/linear_form.h"
#include "ridgeline/onnx/view.h"

namespace ridgeline::onnx {
namespace {

// A part of an expression that is not linear: an activation of `a`, or the product of `a` and `b`.
struct Atom {
  int64_t width;
  std::string op;  // "Sigmoid", "Tanh", "Relu", "Mul"; "" for x and the states
  LinearForm a{}, b{};
};

// Thrown where forms would hold more numbers than those of a cell do.
struct TooLarge {};

// Evaluates the nodes of a body to linear forms of atoms. Atom 0 is x; the states follow.
class BodyEvaluator {
 public:
  explicit BodyEvaluator(const TimestepBody& timestep)
      : body_(*timestep.body), constants_(timestep.constants) {
    define(timestep.x, timestep.features);
    for (const auto& state : timestep.states) define(state.before, state.width);
  }

  // Returns false if the body is larger than a cell.
  bool run() {
    if (body_.nodes.size() > kMostNodes) return false;
    for (const Node& node : body_.nodes) {
      if (!node.domain.empty() || node.outputs.empty()) continue;
      if (!fold_node(node)) evaluate(node);
      if (kept_ > kMostNumbers || atoms_.size() > kMostAtoms) return false;
    }
    return true;
  }

  const LinearForm* form(const std::string& name) const {
    const auto found = forms_.find(name);
    return found == forms_.end() ? nullptr : &found->second;
  }
  const Atom& atom(int number) const { return atoms_[size_t(number)]; }

 private:
  // A cell has a few dozen nodes; the limits bound the work for files made to be slow.
  static constexpr size_t kMostNodes = 500, kMostAtoms = 64;
  static constexpr int64_t kMostNumbers = int64_t{1} << 25;

  // Counts numbers before they are allocated: a small file may name large widths.
  void reserve(int64_t rows, int64_t columns) {
    if (columns > 0 && rows > (kMostNumbers - kept_) / columns) throw TooLarge{};
    kept_ += rows * columns;
  }

  void define(const std::string& name, int64_t width) {
    reserve(width, width);
    forms_[name] = atom_form(int(atoms_.size()), width);
    atoms_.push_back({width, ""});
  }

  bool fold_node(const Node& node) {
    std::vector<ConstantPtr> inputs;
    for (const std::string& name : node.inputs) {
      const auto found = constants_.find(name);
      if (!name.empty() && found == constants_.end()) return false;
      inputs.push_back(name.empty() ? nullptr : found->second);
    }
    if (inputs.empty() && node.op != "Constant") return false;
    if (node.op == "Split" && inputs[0]) {
      const auto parts = fold_split(node, inputs);
      for (size_t i = 0; i < parts.size(); ++i) constants_[node.outputs[i]] = parts[i];
      return !parts.empty();
    }
    const ConstantPtr value = fold(node, inputs, kMostNumbers - kept_);
    if (!value) return false;
    kept_ += value->kept();
    constants_[node.outputs[0]] = value;
    return true;
  }

  const Constant* constant(const std::string& name) const {
    const auto found = constants_.find(name);
    return found == constants_.end() ? nullptr : found->second.get();
  }
  std::vector<int64_t> ints(const Node& node, size_t input, const char* attribute) const {
    const Constant* given = constant(node.input(input));
    return given != nullptr ? given->ints : node.integers(attribute);
  }
  void give(const Node& node, LinearForm form, size_t output = 0) {
    if (output >= node.outputs.size() || form.width < 1) return;
    for (const auto& [atom, matrix] : form.of) kept_ += int64_t(matrix.at.size());
    forms_[node.outputs[output]] = std::move(form);
  }
  // One number for all of a form, or one for each.
  std::optional<std::vector<double>> numbers(const Constant& from, int64_t width) const {
    const int64_t count = from.uniform ? 1 : from.numel();
    const bool row = !from.dims.empty() && from.dims.back() == width && count == width;
    if (from.integer || (count != 1 && !row) || from.kept() == 0) return std::nullopt;
    std::vector<double> made;
    for (int64_t i = 0; i < width; ++i) made.push_back(from.number(count == 1 ? 0 : i));
    return made;
  }

  void evaluate(const Node& node) {
    const std::string& op = node.op;
    const LinearForm* first = form(node.input(0));
    if (op == "Add" || op == "Sub" || op == "Mul") return arithmetic(node);
    if (first == nullptr) return;
    if (op == "Identity" || op == "Dropout" || (op == "Cast" && node.integer("to", 0) == 1)) {
      return give(node, *first);
    }
    if (op == "Neg") return give(node, scale_rows(*first, all(first->width, -1)));
    if (op == "Sigmoid" || op == "Tanh" || op == "Relu") return give(node, make(op, *first));
    if (op == "MatMul" || op == "Gemm") return product(node, *first);
    if (op == "Split") return split(node, *first);
    if (op == "Slice") return slice(node, *first);
    if (op == "Concat") concat(node);
  }

  static std::vector<double> all(int64_t width, double number) {
    return std::vector<double>(size_t(width), number);
  }

  // Returns the atom of an operator; equal ones are one.
  LinearForm make(const std::string& op, const LinearForm& a, const LinearForm& b = {}) {
    for (size_t i = 0; i < atoms_.size(); ++i) {
      if (atoms_[i].op == op && atoms_[i].a == a && atoms_[i].b == b) {
        return atom_form(int(i), a.width);
      }
    }
    reserve(a.width, a.width);
    atoms_.push_back({a.width, op, a, b});
    return atom_form(int(atoms_.size()) - 1, a.width);
  }

  void arithmetic(const Node& node) {
    const LinearForm *a = form(node.input(0)), *b = form(node.input(1));
    if (node.inputs.size() != 2 || (a == nullptr && b == nullptr)) return;
    LinearForm made;
    const int64_t width = a != nullptr ? a->width : b->width;
    for (const size_t i : {size_t{0}, size_t{1}}) {
      if (form(node.inputs[i]) != nullptr) continue;
      const Constant* known = constant(node.inputs[i]);
      const auto row = known != nullptr ? numbers(*known, width) : std::nullopt;
      if (!row) return;
      made = {width, {}, *row};
      (i == 0 ? a : b) = &made;
    }
    if (a->width != b->width) return;
    if (node.op != "Mul") return give(node, add(*a, *b, node.op == "Add" ? 1 : -1));
    if (a->of.empty()) return give(node, scale_rows(*b, a->constant));
    if (b->of.empty()) return give(node, scale_rows(*a, b->constant));
    give(node, multiplied(*a, *b));
  }

  // Expands a product, as far as its factors are sums of atoms, to products of two atoms.
  LinearForm multiplied(const LinearForm& a, const LinearForm& b) {
    if (!a.is_diagonal()) return b.is_diagonal() ? multiplied(b, a) : make("Mul", a, b);
    LinearForm made = scale_rows(b, a.constant);
    for (const auto& [number, matrix] : a.of) {
      const LinearForm left = atom_form(number, a.width);
      const std::vector<double> by = all(a.width, matrix.at[0]);
      if (!b.is_diagonal()) {
        made = add(made, scale_rows(make("Mul", left, b), by));
        continue;
      }
      made = add(made, scale_rows(scale_rows(left, b.constant), by));
      for (const auto& [other, of] : b.of) {
        const LinearForm right = atom_form(other, b.width);
        const LinearForm both =
            number < other ? make("Mul", left, right) : make("Mul", right, left);
        made = add(made, scale_rows(scale_rows(both, by), all(a.width, of.at[0])));
      }
    }
    return made;
  }

  void product(const Node& node, const LinearForm& x) {
    const Constant* matrix = constant(node.input(1));
    const bool gemm = node.op == "Gemm", transposed = gemm && node.integer("transB", 0) != 0;
    if (matrix == nullptr || matrix->integer || matrix->uniform || matrix->dims.size() != 2 ||
        matrix->dims[transposed ? 1 : 0] != x.width || (gemm && node.integer("transA", 0) != 0)) {
      return;
    }
    const int64_t out = matrix->dims[transposed ? 0 : 1];
    reserve(x.width, out);
    for (const auto& [atom, from] : x.of) reserve(out, from.columns);
    LinearForm made = multiply(x, *matrix, transposed);
    if (gemm) {
      made = scale_rows(made, all(out, node.number("alpha", 1)));
      if (!node.input(2).empty()) {
        const Constant* bias = constant(node.input(2));
        const auto row = bias != nullptr ? numbers(*bias, out) : std::nullopt;
        if (!row) return;
        made = add(made, {out, {}, *row}, node.number("beta", 1));
      }
    }
    give(node, std::move(made));
  }

  void split(const Node& node, const LinearForm& x) {
    if (axis_of(node.integer("axis", 0), 2) != size_t{1}) return;
    std::vector<int64_t> sizes = ints(node, 1, "split");
    const auto count = int64_t(node.outputs.size());
    if (sizes.empty() && x.width % count == 0) sizes.assign(size_t(count), x.width / count);
    int64_t begin = 0;
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (sizes[i] < 1 || sizes[i] > x.width - begin) return;
      give(node, rows(x, begin, begin + sizes[i]), i);
      begin += sizes[i];
    }
  }

  void slice(const Node& node, const LinearForm& x) {
    const auto starts = ints(node, 1, "starts"), ends = ints(node, 2, "ends");
    const auto axes = ints(node, 3, "axes"), steps = ints(node, 4, "steps");
    int64_t begin = 0, end = x.width;
    if (starts.size() != ends.size()) return;
    for (size_t i = 0; i < starts.size(); ++i) {
      const auto axis = axis_of(i < axes.size() ? axes[i] : int64_t(i), 2);
      if (!axis || (i < steps.size() && steps[i] != 1)) return;
      if (*axis == 0) {  // all samples
        if (starts[i] != 0 || ends[i] < std::numeric_limits<int32_t>::max()) return;
        continue;
      }
      const auto place = [&](int64_t at) {
        return std::clamp<int64_t>(at < 0 ? std::max(at, -x.width) + x.width : at, 0, x.width);
      };
      begin = place(starts[i]);
      end = place(ends[i]);
    }
    if (begin < end) give(node, rows(x, begin, end));
  }

  void concat(const Node& node) {
    if (axis_of(node.integer("axis", 0), 2) != size_t{1}) return;
    std::vector<LinearForm> parts;
    for (const std::string& name : node.inputs) {
      const LinearForm* part = form(name);
      if (part == nullptr) return;
      parts.push_back(*part);
    }
    int64_t width = 0;
    for (const LinearForm& part : parts) width += part.width;
    for (const LinearForm& part : parts) {
      for (const auto& [atom, from] : part.of) reserve(width, from.columns);
    }
    give(node, stack(parts));
  }

  const Graph& body_;
  std::map<std::string, ConstantPtr> constants_;
  std::map<std::string, LinearForm> forms_;
  std::vector<Atom> atoms_;
  int64_t kept_ = 0;  // numbers of all forms and folded constants
};

// Compares the new states with the equations of ONNX's operators.
class CellMatcher {
 public:
  CellMatcher(const TimestepBody& timestep, const BodyEvaluator& found)
      : timestep_(timestep), found_(found) {}

  std::optional<RecurrentCell> match() {
    for (size_t h = 0; h < timestep_.states.size(); ++h) {
      hidden_ = h;
      width_ = timestep_.states[h].width;
      const LinearForm* after = found_.form(timestep_.states[h].after);
      if (after == nullptr || after->width != width_) return std::nullopt;
      const auto is_after = [&](const std::string& name) {
        const LinearForm* form = found_.form(name);
        return form != nullptr && *form == *after;
      };
      if (!std::ranges::all_of(timestep_.per_step, is_after)) continue;
      if (timestep_.states.size() == 1) {
        const auto made = rnn(*after);
        return made ? made : gru(*after);
      }
      if (timestep_.states.size() == 2) {
        if (auto made = lstm(*after, 1 - h)) return made;
      }
    }
    return std::nullopt;
  }

 private:
  int h() const { return int(hidden_) + 1; }

  // Returns the argument of an activation that the atom is, if it is linear in x and h.
  const LinearForm* gate(int number, const char* op) const {
    const Atom& atom = found_.atom(number);
    if (atom.op != op || atom.width != width_) return nullptr;
    for (const auto& [of, matrix] : atom.a.of) {
      if (of != 0 && of != h()) return nullptr;
    }
    return &atom.a;
  }
  // Splits a product of two atoms; `first` is one that `accept` accepts.
  template <typename F>
  std::optional<std::pair<int, int>> factors(int number, F accept) const {
    const Atom& atom = found_.atom(number);
    if (atom.op != "Mul") return std::nullopt;
    const int a = atom.a.atom().value_or(-1), b = atom.b.atom().value_or(-1);
    if (a >= 0 && b >= 0 && accept(a)) return std::pair{a, b};
    if (a >= 0 && b >= 0 && accept(b)) return std::pair{b, a};
    return std::nullopt;
  }

  // The weights of one gate: those of x, those of h, and the biases of both.
  struct Gate {
    Matrix w, r;
    std::vector<double> wb, rb;
  };
  Gate read(const LinearForm& form, double sign = 1) const {
    const auto rows_of = [&](int atom, int64_t columns) {
      const auto found = form.of.find(atom);
      Matrix made{width_, columns, std::vector<double>(size_t(width_ * columns), 0.0)};
      for (size_t i = 0; found != form.of.end() && i < made.at.size(); ++i) {
        made.at[i] = sign * found->second.at[i];
      }
      return made;
    };
    Gate made{rows_of(0, timestep_.features), rows_of(h(), width_), form.constant,
              std::vector<double>(size_t(width_), 0.0)};
    for (double& each : made.wb) each *= sign;
    return made;
  }
  RecurrentCell cell(const char* op, const std::vector<Gate>& gates) const {
    std::vector<float> w, r, bias;
    for (const Gate& each : gates) {
      w.insert(w.end(), each.w.at.begin(), each.w.at.end());
      r.insert(r.end(), each.r.at.begin(), each.r.at.end());
      bias.insert(bias.end(), each.wb.begin(), each.wb.end());
    }
    for (const Gate& each : gates) bias.insert(bias.end(), each.rb.begin(), each.rb.end());
    const auto rows = int64_t(gates.size()) * width_;
    RecurrentCell made;
    made.op = op;
    made.w = make_floats({1, rows, timestep_.features}, std::move(w));
    made.r = make_floats({1, rows, width_}, std::move(r));
    made.bias = make_floats({1, 2 * rows}, std::move(bias));
    made.hidden = hidden_;
    made.attributes["hidden_size"].i = width_;
    return made;
  }

  // h' = tanh(a) or relu(a)
  std::optional<RecurrentCell> rnn(const LinearForm& after) const {
    const auto atom = after.atom();
    for (const char* op : {"Tanh", "Relu"}) {
      const LinearForm* a = atom ? gate(*atom, op) : nullptr;
      if (a == nullptr) continue;
      RecurrentCell made = cell("RNN", {read(*a)});
      made.attributes["activations"].strings = {op};
      return made;
    }
    return std::nullopt;
  }

  // h' = o tanh(c'), c' = f c + i g
  std::optional<RecurrentCell> lstm(const LinearForm& after, size_t memory) const {
    const LinearForm* c = found_.form(timestep_.states[memory].after);
    const int before = int(memory) + 1;
    const auto out = after.atom();
    const auto ends =
        out ? factors(*out, [&](int a) { return gate(a, "Sigmoid") != nullptr; }) : std::nullopt;
    if (!ends || c == nullptr || c->of.size() != 2) return std::nullopt;
    const Atom& tanh = found_.atom(ends->second);
    if (tanh.op != "Tanh" || tanh.a != *c) return std::nullopt;
    const LinearForm *i = nullptr, *f = nullptr, *g = nullptr;
    for (const auto& [number, matrix] : c->of) {
      if (c->times(number) != 1.0) return std::nullopt;
      if (const auto kept = factors(number, [&](int a) { return a == before; })) {
        f = gate(kept->second, "Sigmoid");
      } else if (const auto fresh =
                     factors(number, [&](int a) { return gate(a, "Tanh") != nullptr; })) {
        g = gate(fresh->first, "Tanh");
        i = gate(fresh->second, "Sigmoid");
      }
    }
    const auto is_zero = [](double each) { return each == 0; };
    if (i == nullptr || f == nullptr || g == nullptr) return std::nullopt;
    if (!std::ranges::all_of(c->constant, is_zero)) return std::nullopt;
    const LinearForm* o = gate(ends->first, "Sigmoid");
    RecurrentCell made = cell("LSTM", {read(*i), read(*o), read(*f), read(*g)});
    made.memory = memory;
    return made;
  }

  // h' = (1 - z) n + z h as n - z n + z h; or with 1 - z in the place of z.
  std::optional<RecurrentCell> gru(const LinearForm& after) const {
    int n = -1, z = -1;
    double sign = 0;  // of z h
    for (const auto& [number, matrix] : after.of) {
      const auto kept = factors(number, [&](int a) { return a == h(); });
      if (!kept || gate(kept->second, "Sigmoid") == nullptr) continue;
      z = kept->second;
      sign = after.times(number).value_or(0);
    }
    for (const auto& [number, matrix] : after.of) {
      const auto fresh = factors(number, [&](int a) { return a == z; });
      if (!fresh || fresh->second == h()) continue;
      n = fresh->second;
      if (after.times(number) != -sign) return std::nullopt;
    }
    const auto is_zero = [](double each) { return each == 0; };
    if (n < 0 || z < 0 || std::abs(sign) != 1 || after.of.size() != 3 ||
        after.times(sign > 0 ? n : h()) != 1.0 || !std::ranges::all_of(after.constant, is_zero)) {
      return std::nullopt;
    }
    const Atom& tanh = found_.atom(n);
    if (tanh.op != "Tanh" || tanh.a.of.size() > 2) return std::nullopt;
    for (const auto& [number, matrix] : tanh.a.of) {
      if (number != 0 && found_.atom(number).op == "Mul") {
        return with_reset(tanh.a, number, read(*gate(z, "Sigmoid"), sign));
      }
    }
    return std::nullopt;
  }

  // n = tanh(a + r (b)) with b linear in h, or tanh(a + R (r h)).
  std::optional<RecurrentCell> with_reset(const LinearForm& a, int number, const Gate& z) const {
    const Atom& product = found_.atom(number);
    Gate fresh = read(a);
    const LinearForm* r = nullptr;
    bool after = false;
    if (const auto kept = factors(number, [&](int each) { return each == h(); })) {
      r = gate(kept->second, "Sigmoid");
      fresh.r = a.of.at(number);
    } else if (a.times(number) == 1.0 && product.b.of.size() == 1 && product.b.of.contains(h())) {
      const auto first = product.a.atom();
      r = first ? gate(*first, "Sigmoid") : nullptr;
      fresh.r = product.b.of.at(h());
      fresh.rb = product.b.constant;
      after = true;
    }
    for (const auto& [of, matrix] : a.of) {
      if (of != 0 && of != number) return std::nullopt;
    }
    if (r == nullptr) return std::nullopt;
    RecurrentCell made = cell("GRU", {z, read(*r), fresh});
    made.attributes["linear_before_reset"].i = after ? 1 : 0;
    return made;
  }

  const TimestepBody& timestep_;
  const BodyEvaluator& found_;
  size_t hidden_ = 0;
  int64_t width_ = 0;
};

}  // namespace

std::optional<RecurrentCell> recognise_cell(const TimestepBody& timestep) {
  try {
    BodyEvaluator evaluator(timestep);
    if (!evaluator.run()) return std::nullopt;
    return CellMatcher(timestep, evaluator).match();
  } catch (const TooLarge&) {
    return std::nullopt;
  }
}

}  // namespace ridgeline::onnx
