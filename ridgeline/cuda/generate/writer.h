#pragma once

// Writes the source of a generated GPU function: source.cpp writes the frame around the steps;
// source_strips.cpp, source_gradients.cpp, source_norms.cpp and source_conv.cpp write their phases.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "ridgeline/cuda/generate/source.h"
#include "ridgeline/ops/dropout.h"

namespace ridgeline::cuda::generate {

constexpr int kStripRegisters = 140;  // for the operands that strips prefetch

inline std::string number(double value) {
  if (std::isinf(value)) return "__longlong_as_double(0x7ff0000000000000)";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

inline const char* math_name(Math math) {
  constexpr const char* kNames[] = {"Bf16Math", "Fp16Math", "Tf32Math", "Fp32Math", "Fp64Math"};
  return kNames[size_t(math)];
}
inline const char* type_name(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return "Bf16";
    case DType::fp16:
      return "Fp16";
    case DType::fp64:
      return "double";
    default:
      return "float";
  }
}
inline const char* activation_name(const NetLayer& layer) {
  return layer.activation == nullptr ? "none" : name(layer.activation->kind);
}

// Hands out consecutive slices of memory.
class MemoryLayout {
 public:
  size_t take(size_t bytes, size_t align = 256) {
    const size_t at = size_t(up(int64_t(end_), int64_t(align)));
    end_ = at + bytes;
    return at;
  }
  size_t end() const { return end_; }

 private:
  size_t end_ = 0;
};

class Writer {
 public:
  Writer(const NetStep& net, const Schedule& schedule)
      : net_(net), plan_(schedule), layers_(net.layers.size()) {}

  Source run();

 private:
  template <typename... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    text_.append(indent_ * 2, ' ');
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
    text_ += '\n';
  }
  void open(const std::string& what) {
    line("{}{{", what.empty() ? what : what + " ");
    ++indent_;
  }
  void close(const char* end = "}") {
    --indent_;
    line("{}", end);
  }

  // The memory of a value, as a pointer to `type`.
  std::string pointer(const Value& value, const char* type) {
    if (!value) return "nullptr";
    for (size_t i = 0; i < arguments_.size(); ++i) {
      if (arguments_[i].id == value.id) return cast(type, i);
    }
    arguments_.push_back(value);
    return cast(type, arguments_.size() - 1);
  }
  static std::string cast(const char* type, size_t index) {
    return fmt::format("global<{}>(args.p[{}])", type, index);
  }

  Math math() const { return net_.math; }
  int64_t chunk() const { return chunk_of(math()); }
  int64_t depth(int64_t extent) const { return up(extent, std::max<int64_t>(chunk(), 16)); }
  // The rows of a strip in shared memory: the kInSlabs of layers.cuh in wide strips.
  int64_t strip_depth(int64_t extent) const {
    return plan_.wide ? -1 : depth(extent) + 32 / number_bytes(math());
  }
  int64_t strip_count(int64_t extent) const {
    const int64_t rows = 16 * plan_.strip_units;
    return rows * (plan_.wide ? up(extent, 64) : strip_depth(extent));
  }
  int64_t transposed_ld() const { return up(net_.batch(), std::max<int64_t>(chunk(), 16)); }
  int64_t width(size_t l) const { return net_.layers[l].out(); }
  bool hidden(size_t l) const { return l + 1 < layers_; }
  bool slopes(size_t l) const { return hidden(l) && keeps_slopes(net_.layers[l], math()); }
  int64_t y_ld(size_t l) const {
    if (!hidden(l)) return up(width(l), 16);
    return plan_.in_strip(l) ? strip_depth(width(l)) : depth(width(l));
  }
  // Whether a normalisation follows layer l. Its backward pass runs in the strips if they have all
  // that it needs.
  bool normed(size_t l) const { return bool(net_.layers[l].norm); }
  bool normed_below_strips() const {
    return plan_.chain > 0 && plan_.chain < int(layers_) && normed(size_t(plan_.chain) - 1);
  }
  bool norm_backward_in_strip(size_t l) const {
    const bool near = plan_.in_strip(l) || (int(l) + 1 == plan_.chain && normed_below_strips());
    return normed(l) && near && !over_batch(net_.layers[l]);
  }
  // Gradients of layer l's outputs are read by rows if one passes through its product.
  bool dy_rows_shared(size_t l) const {
    return (l >= lowest_gradient() || normed(l)) && plan_.in_strip(l);
  }
  bool dy_rows_global(size_t l) const { return l >= lowest_gradient() && !plan_.in_strip(l); }
  bool dy_global_of_loss() const {
    return plan_.chain == int(layers_) && layers_ > lowest_gradient();
  }
  int64_t dy_ld(size_t l) const {
    return dy_rows_shared(l) ? strip_depth(width(l)) : depth(width(l));
  }
  size_t lowest_gradient() const { return net_.lowest_gradient(); }
  size_t lowest_in_strip() const { return std::max(size_t(plan_.chain), lowest_gradient()); }

  // Declares a pointer into the workspace.
  void space(const std::string& type, const std::string& name, int64_t count, int64_t bytes) {
    const size_t at = space_.take(size_t(count * bytes));
    places_ += fmt::format(
        "  __device__ {0}* {1}() const {{ return reinterpret_cast<{0}*>(space + {2}); }}\n", type,
        name, at);
    placed_.push_back(name);
  }
  void numbers(const std::string& name, int64_t rows, int64_t columns) {
    space("Number", name, up(rows, 64) * columns, number_bytes(math()));
  }
  void in_shared(const std::string& type, const std::string& name, int64_t count, int64_t bytes) {
    const size_t at = shared_.take(size_t(count * bytes), plan_.wide ? 1024 : 128);
    pointers_ += fmt::format("  {0}* const {1} = reinterpret_cast<{0}*>({2} + {3});\n", type, name,
                             plan_.wide ? "aligned" : "shared", at);
  }

  // A name as the phases write it: in the workspace, or in shared memory.
  std::string of(const std::string& name) const {
    const bool placed = std::find(placed_.begin(), placed_.end(), name) != placed_.end();
    return placed ? "at." + name + "()" : name;
  }
  std::string of(const char* what, size_t l, const char* end = "") const {
    return of(fmt::format("{}{}{}", what, l, end));
  }
  void phase() { line("const Places at(space);"); }

  void lay_out();

  void head();

  void optimizer();

  std::string shape(const ProductPlan& p, int64_t lda, int64_t ldb, bool shared,
                    bool rounds) const {
    const int all = int((p.depth + chunk() - 1) / chunk()), chunks = p.tiled ? all : all / p.parts;
    return fmt::format("Shape<M, {}, {}, {}, {}, {}, {}, {}, {}, {}>", p.mt, p.nt, p.split, p.ring,
                       chunks, lda, ldb, shared, rounds && math() == Math::tf32);
  }
  std::string grid(const ProductPlan& p, int64_t lda, int64_t ldb, bool rounds) const {
    return fmt::format("{}<{}, {}, {}, {}, {}>", p.tiled ? "Tiled" : "Grid",
                       shape(p, lda, ldb, false, rounds), units(p.rows), units(p.columns), p.down,
                       p.parts);
  }

  void kernel();

  void begin();

  void take_batch();
  void take_targets();

  std::string slopes_of(size_t l) const { return slopes(l) ? of("s", l) : "nullptr"; }
  std::string drop_of(size_t l) const {
    return net_.layers[l].dropout != nullptr ? fmt::format("drop{}", l) : "{}";
  }
  double kept_of(size_t l) const {
    const Dropout* drop = net_.layers[l].dropout;
    return drop != nullptr ? 1.0 / (1.0 - drop->mask.p) : 1.0;
  }

  void describe(size_t l) {
    line("// Layer {}: {} -> {}, {}{}.", l, net_.layers[l].in(), width(l),
         activation_name(net_.layers[l]), net_.layers[l].dropout != nullptr ? ", dropout" : "");
  }

  void step_loop();

  // Whether blocks without a strip gather the next batch alone, if they finish before the others.
  bool gathers_apart() const {
    const int64_t gathered = units(net_.batch()) * int64_t{units(net_.layers[0].in())};
    return plan_.strips * 4 <= plan_.blocks * 3 &&
           gathered <= 8 * int64_t{kWarps} * (plan_.blocks - plan_.strips);
  }

  // The barrier before the phase that `first_fetch` begins.
  void sync(const std::vector<std::string>& between = {}) {
    line("barrier.arrive();");
    for (const std::string& each : between) line("{}", each);
    line("barrier.wait();");
  }

  std::string input_rows(size_t l) const {
    if (l == 0 && convolves()) return "at.x()";
    return l == 0 ? fmt::format("at.x() + (t & 1) * {}", x_rows_) : of("y", l - 1);
  }
  int64_t input_ld(size_t l) const { return l == 0 ? depth(net_.layers[0].in()) : y_ld(l - 1); }
  std::string input_transposed(size_t l) const {
    if (l == 0 && convolves()) return "at.xt()";
    return l == 0 ? fmt::format("at.xt() + (t & 1) * {}", x_transposed_) : of("y", l - 1, "t");
  }

  std::string forward_type(size_t l) const {
    if (normed(l)) {
      return fmt::format("Unnormalised<M, L{}, Kept, kBatch, {}>", l, over_batch(net_.layers[l]));
    }
    return hidden(l) ? fmt::format("Forward<M, L{}, Kept, kBatch, kTransposedLd>", l)
                     : fmt::format("Outputs<M, L{}, Kept, kBatch>", l);
  }
  std::string forward_epilogue(size_t l, const char* row) const {
    if (!hidden(l)) return fmt::format("{}{{b{}, {}, {}}}", forward_type(l), l, of("outputs"), row);
    if (normed(l)) {
      return fmt::format("{}{{b{}, {}, {}, {}}}", forward_type(l), l, of("z", l), row,
                         over_batch(net_.layers[l]) ? of("q", l) : "nullptr");
    }
    return fmt::format("{}{{b{}, {{{}, {}, {}}}, {}, {}}}", forward_type(l), l, of("y", l),
                       of("y", l, "t"), row, slopes_of(l), drop_of(l));
  }
  // The type for the gradient of layer l's input, which is the output of layer l - 1.
  std::string backward_type(size_t l, int64_t ld) const {
    if (l == 0) return fmt::format("Backward<M, Convolved, kBatch, 1, {}>", ld);
    if (normed(l - 1)) {
      return fmt::format("NormBackward<M, L{0}, N{0}, kBatch, {1}, {2}>", l - 1, ld,
                         over_batch(net_.layers[l - 1]));
    }
    return fmt::format("Backward<M, L{}, kBatch, kTransposedLd, {}>", l - 1, ld);
  }
  std::string backward_epilogue(size_t l, const std::string& rows, int64_t ld,
                                const char* row) const {
    if (l == 0) {
      return fmt::format("{}{{nullptr, nullptr, {{{}, nullptr, 0}}, 1.0}}", backward_type(l, ld),
                         rows);
    }
    const size_t below = l - 1;
    if (normed(below)) {
      return fmt::format("{}{{{{{}, {}, {{{}, nullptr, {}}}, {}}}, {}}}", backward_type(l, ld),
                         of("y", below), slopes_of(below), rows, row, number(kept_of(below)),
                         norm(below, row, false));
    }
    return fmt::format("{}{{{}, {}, {{{}, {}, {}}}, {}}}", backward_type(l, ld), of("y", below),
                       slopes_of(below), rows, of("d", below, "t"), row, number(kept_of(below)));
  }

  void forward(size_t l) {
    describe(l);
    const ProductPlan& p = plan_.forward[l];
    open("");
    phase();
    line("{}::run({}, {}, block, kBlocks, sums,",
         grid(p, input_ld(l), depth(net_.layers[l].in()), false), input_rows(l), of("w", l));
    line("    {});", forward_epilogue(l, "0"));
    close();
    if (normed(l) && (int(l) + 1 < plan_.chain || !normed_below_strips())) {
      sync();
      norm_phase(l, true);
    }
    if (int(l) + 1 < plan_.chain) sync();  // the strips make the barrier that precedes them
  }

  void backward(size_t l) {
    line("// The gradient of layer {}'s input.", l);
    const ProductPlan& p = plan_.backward[l];
    const std::string rows = l == 0                  ? of("dx")
                             : normed(l - 1)         ? of("n", l - 1)
                             : dy_rows_global(l - 1) ? of("d", l - 1)
                                                     : "nullptr";
    open("");
    phase();
    line("{}::run({}, {}, block, kBlocks, sums,", grid(p, dy_ld(l), depth(width(l)), true),
         of("d", l), of("w", l, "t"));
    line("    {});", backward_epilogue(l, rows, depth(net_.layers[l].in()), "0"));
    close();
    sync_before_gradients(l == 1 && !normed(0));
    if (l > 0) norm_backward_phase(l - 1);
  }

  // Phases of convolutions, see source_conv.cpp.
  bool convolves() const { return !net_.convolutions.empty(); }
  void lay_out_convolutions();
  void conv_types();
  void conv_pointers();
  std::string conv_update(size_t l);
  std::string images(const char* name, size_t l) const;
  void for_images(const std::string& what);
  void begin_convolutions();
  void conv_forward();
  void convolve_meanwhile();
  void conv_backward();
  void conv_gradients(int offset);

  // Passes of normalisations, see source_norms.cpp.
  std::string norm_type(size_t l) const;
  std::string norm(size_t l, const char* row, bool in_phase) const;
  bool copies_statistics(size_t l) const {
    return over_batch(net_.layers[l]) && int(l) + 1 == plan_.chain && normed_below_strips();
  }
  std::string norm_forward(size_t l, const char* rows, int parts, const char* row,
                           const char* part) const;
  std::string norm_backward(size_t l, const char* rows, int parts, const char* row,
                            const char* part) const;
  int norm_parts(size_t l) const;
  void norm_phase(size_t l, bool forward);
  void norm_backward_phase(size_t l) {
    if (!normed(l)) return;
    norm_phase(l, false);
    sync_before_gradients(l == 0);
  }
  std::string norm_update(size_t l);
  int norm_tasks(size_t l) const;
  void norm_types();
  void norm_pointers();

  struct Stage {
    std::string type, name, a, b;  // of its Strip, and its operands
    std::string epilogue;
    std::string what;
    int registers = 0;  // registers that hold its prefetched operands
    bool loss_before = false;
    std::string then;  // the normalisation pass that follows it
  };

  // In wide strips a layer's gradient replaces its outputs.
  std::string dy_shared(size_t l) const {
    if (plan_.wide && hidden(l)) return of("y", l);
    return (layers_ - 1 - l) % 2 == 0 ? "da" : "db";
  }

  std::string strip_type(const std::string& shape, const ProductPlan& p,
                         const std::string& epilogue) const;
  std::vector<Stage> stages() const;

  void loss();

  void gather_next();
  void strips();
  void strip_products(const std::vector<Stage>& all);
  void wide_strip_products(const std::vector<Stage>& all);

  void sync_before_gradients(bool last) {
    if (last && !convolves()) {
      sync_with_rates();
    } else {
      sync();
    }
  }
  void sync_with_rates() {
    std::string rates;
    if (net_.adam()) {
      const AdamUpdate& o = *net_.layers[0].adam_w;
      rates = fmt::format("adam_rates<Value>(lr[begin + t], {}, {}, before + t + 1)",
                          number(o.beta1), number(o.beta2));
    } else {
      rates = "sgd_rates<Value>(lr[begin + t])";
    }
    sync({fmt::format("if (threadIdx.x == kThreads - 32) rates = {};", rates)});
  }

  std::string update_type(size_t l) const;
  std::string update(size_t l) const;
  std::string bias_update(size_t l);

  void gradients();

  // The number of warps that BiasUpdate needs.
  int bias_tasks(size_t l) const;
  template <typename F>
  void for_biases(F f) {
    const int warps = plan_.blocks * kWarps;
    int offset = 0;
    for (size_t l = 0; l < layers_; ++l) {
      if (!net_.layers[l].linear->b) continue;
      f(l, (warps - offset) % warps);
      offset = (offset + bias_tasks(l)) % warps;
    }
  }
  // Calls f for the normalisations, whose warps come after those of the biases.
  template <typename F>
  void for_norms(F f) {
    const int warps = plan_.blocks * kWarps;
    int offset = 0;
    for (size_t l = 0; l < layers_; ++l) offset += net_.layers[l].linear->b ? bias_tasks(l) : 0;
    for (size_t l = 0; l < layers_; ++l) {
      if (!normed(l) || (!net_.layers[l].norm.gamma() && !net_.layers[l].norm.beta())) continue;
      offset %= warps;
      f(l, (warps - offset) % warps);
      offset += norm_tasks(l);
    }
  }

  // Whether gradients of weights are stored and applied after a barrier.
  bool stores(size_t l) const { return net_.norm != nullptr || plan_.weights[l].parts > 1; }
  void clip();
  void late_updates();

  const NetStep& net_;
  const Schedule& plan_;
  size_t layers_;
  std::string text_, pointers_;
  std::string places_;               // members of Places
  std::vector<std::string> placed_;  // what is in the workspace
  size_t indent_ = 0;
  std::vector<Value> arguments_;
  // The Weights of each layer, and where the program keeps them.
  std::vector<std::string> weights_, kept_, copies_;
  MemoryLayout space_, shared_;
  size_t zero_from_ = 0, zero_to_ = 0;
  int64_t x_rows_ = 0, x_transposed_ = 0;
};

}  // namespace ridgeline::cuda::generate
