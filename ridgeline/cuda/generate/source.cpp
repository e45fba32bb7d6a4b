#include "ridgeline/cuda/generate/source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "ridgeline/ops/dropout.h"

namespace ridgeline::cuda::generate {
namespace {

constexpr int kWarps = 8;
constexpr int kStripRegisters = 140;  // for what strips fetch ahead

std::string number(double value) {
  if (std::isinf(value)) return "__longlong_as_double(0x7ff0000000000000)";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

const char* math_name(Math math) {
  constexpr const char* kNames[] = {"Bf16Math", "Fp16Math", "Tf32Math", "Fp32Math", "Fp64Math"};
  return kNames[size_t(math)];
}
const char* type_name(DType dtype) {
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
const char* curve_name(const NetLayer& layer) {
  return layer.activation == nullptr ? "none" : name(layer.activation->kind);
}

int units(int64_t extent) { return int((extent + 15) / 16); }

// Pieces of memory one after the other.
class Pieces {
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

  Source run() {
    lay_out();
    head();
    kernel();
    Source source;
    source.text = std::move(text_);
    source.arguments = std::move(arguments_);
    source.workspace_bytes = size_t(up(int64_t(space_.end()), 256));
    source.shared_bytes = size_t(up(int64_t(shared_.end()), 16));
    source.blocks = plan_.blocks;
    return source;
  }

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
  int64_t strip_depth(int64_t extent) const { return depth(extent) + 32 / number_bytes(math()); }
  int64_t turned() const { return up(net_.batch(), std::max<int64_t>(chunk(), 16)); }
  int64_t width(size_t l) const { return net_.layers[l].out(); }
  bool hidden(size_t l) const { return l + 1 < layers_; }
  bool slopes(size_t l) const { return hidden(l) && keeps_slopes(net_.layers[l], math()); }
  int64_t y_ld(size_t l) const {
    if (!hidden(l)) return up(width(l), 16);
    return plan_.in_strip(l) ? strip_depth(width(l)) : depth(width(l));
  }
  // Gradients at layer l's outputs are read by rows where one goes through its product.
  bool dy_rows_shared(size_t l) const { return l > 0 && plan_.in_strip(l); }
  bool dy_rows_global(size_t l) const { return l > 0 && !plan_.in_strip(l); }
  bool dy_global_of_loss() const { return plan_.chain == int(layers_) && layers_ > 1; }
  int64_t dy_ld(size_t l) const {
    return dy_rows_shared(l) ? strip_depth(width(l)) : depth(width(l));
  }
  size_t lowest_in_strip() const { return std::max<size_t>(size_t(plan_.chain), 1); }

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
    const size_t at = shared_.take(size_t(count * bytes), 128);
    pointers_ +=
        fmt::format("  {0}* const {1} = reinterpret_cast<{0}*>(shared + {2});\n", type, name, at);
  }

  // A name as phases say it: in the workspace, or in shared memory.
  std::string of(const std::string& name) const {
    const bool placed = std::find(placed_.begin(), placed_.end(), name) != placed_.end();
    return placed ? "at." + name + "()" : name;
  }
  std::string of(const char* what, size_t l, const char* end = "") const {
    return of(fmt::format("{}{}{}", what, l, end));
  }
  void phase() { line("const Places at(space);"); }

  void lay_out() {
    const int64_t batch = net_.batch();
    space("Score", "scores", plan_.strips, 16);
    space("double", "partials", plan_.blocks, 8);
    zero_from_ = size_t(up(int64_t(space_.end()), 256));
    const int64_t in = net_.layers[0].in();
    x_rows_ = up(batch, 64) * depth(in), x_turned_ = up(in, 64) * turned();
    space("Number", "x", 2 * x_rows_, number_bytes(math()));
    space("Number", "xt", 2 * x_turned_, number_bytes(math()));
    for (size_t l = 0; l < layers_; ++l) {
      const int64_t in_l = net_.layers[l].in();
      numbers(fmt::format("w{}", l), width(l), depth(in_l));
      if (l > 0) numbers(fmt::format("w{}t", l), in_l, depth(width(l)));
      numbers(fmt::format("d{}t", l), width(l), turned());
      if (hidden(l)) numbers(fmt::format("y{}t", l), width(l), turned());
      if (hidden(l) && !plan_.in_strip(l)) {
        numbers(fmt::format("y{}", l), batch, depth(width(l)));
        if (slopes(l)) numbers(fmt::format("s{}", l), batch, up(width(l), 16));
      }
      if (dy_rows_global(l)) numbers(fmt::format("d{}", l), batch, depth(width(l)));
    }
    zero_to_ = size_t(up(int64_t(space_.end()), 256));
    const int64_t value = value_bytes(math());
    if (plan_.chain == int(layers_)) {
      space("Value", "outputs", up(batch, 64) * up(width(layers_ - 1), 16), value);
    }
    if (net_.norm != nullptr) {
      for (size_t l = 0; l < layers_; ++l) {
        space("Value", fmt::format("g{}", l), width(l) * up(net_.layers[l].in(), 16), value);
        if (net_.layers[l].linear->b) space("Value", fmt::format("gb{}", l), width(l), value);
      }
    }

    const int64_t rows = 16 * plan_.strip_units;
    int64_t widest = 0;
    for (size_t l = 0; l < layers_; ++l) {
      if (!plan_.in_strip(l)) continue;
      if (hidden(l)) {
        in_shared("Number", fmt::format("y{}", l), rows * y_ld(l), number_bytes(math()));
        if (slopes(l)) {
          in_shared("Number", fmt::format("s{}", l), rows * up(width(l), 16), number_bytes(math()));
        }
      }
      if (dy_rows_shared(l)) widest = std::max(widest, strip_depth(width(l)));
    }
    if (widest > 0) {
      in_shared("Number", "da", rows * widest, number_bytes(math()));
      in_shared("Number", "db", rows * widest, number_bytes(math()));
    }
    if (plan_.chain < int(layers_)) {
      in_shared("Value", "outputs", rows * up(width(layers_ - 1), 16), value);
    }
    in_shared("double", "row_loss", rows, 8);
    in_shared("i32", "row_correct", rows, 4);
    in_shared("i32", "labels", rows, 4);
    int64_t sums = 0;
    for (const auto* plans : {&plan_.forward, &plan_.backward, &plan_.weights}) {
      for (const ProductPlan& plan : *plans) {
        if (plan.split > 1)
          sums = std::max<int64_t>(sums, int64_t{kWarps} * plan.mt * plan.nt * 256 * value);
      }
    }
    in_shared("char", "sums", std::max<int64_t>(sums, 128), 1);
  }

  void head() {
    std::string net = fmt::format("{}", net_.layers[0].in());
    for (size_t l = 0; l < layers_; ++l) net += fmt::format("-{}", width(l));
    line("// A training step of {}, {} rows, {}, by {} blocks.", net, net_.batch(),
         math_name(math()), plan_.blocks);
    line("#include \"ridgeline/cuda/generate/device/grid_barrier.cuh\"");
    line("#include \"ridgeline/cuda/generate/device/update.cuh\"");
    line("using namespace ridgeline::generated;");
    line("using M = {};", math_name(math()));
    line("using Number = M::Number;");
    line("using Value = M::Value;");
    line("using Kept = {};", type_name(net_.kept()));
    line("using Copy = {};", net_.copies ? type_name(net_.layers[0].linear->w.dtype) : "Kept");
    line("struct Args {{");
    line("  void* p[{}];", kMostArguments);
    line("  void* space;");
    line("  void* barrier;");
    line("  i64 steps;");
    line("}};");
    line("constexpr int kBatch = {}, kTurned = {}, kBlocks = {}, kStrips = {};", net_.batch(),
         turned(), plan_.blocks, plan_.strips);
    for (size_t l = 0; l < layers_; ++l) {
      const NetLayer& layer = net_.layers[l];
      line("using L{} = Layer<Curve::{}, {}, {}, {}, {}, {}>;", l, curve_name(layer), width(l),
           y_ld(l), up(width(l), 16), slopes(l), layer.dropout != nullptr);
    }
    optimizer();
    line(
        "// What lies in the workspace. Each phase makes one of its own, so that addresses are not "
        "kept through all of them.");
    line("struct Places {{");
    line("  char* space;");
    line("  __device__ explicit Places(char* at) : space(fresh(at)) {{}}");
    text_ += places_;
    line("}};");
  }

  void optimizer() {
    const NetLayer& layer = net_.layers[0];
    if (net_.adam()) {
      const AdamUpdate& o = *layer.adam_w;
      line("using Optimizer = Adam<{}>;", o.decoupled);
      line("constexpr Optimizer kOptimizer{{{}, {}, {}, {}}};", number(1.0 - o.beta1),
           number(1.0 - o.beta2), number(o.epsilon), number(o.weight_decay));
    } else {
      const SgdUpdate& o = *layer.sgd_w;
      line("using Optimizer = Sgd<{}, {}>;", bool(o.m), o.nesterov);
      line("constexpr Optimizer kOptimizer{{{}, {}}};", number(o.momentum), number(o.weight_decay));
    }
  }

  std::string shape(const ProductPlan& p, int64_t lda, int64_t ldb, bool shared,
                    bool rounds) const {
    const int chunks = int((p.depth + chunk() - 1) / chunk());
    return fmt::format("Shape<M, {}, {}, {}, {}, {}, {}, {}, {}, {}>", p.mt, p.nt, p.split, p.ring,
                       chunks, lda, ldb, shared, rounds && math() == Math::tf32);
  }
  std::string grid(const ProductPlan& p, int64_t lda, int64_t ldb, bool rounds) const {
    return fmt::format("Grid<{}, {}, {}, {}>", shape(p, lda, ldb, false, rounds), units(p.rows),
                       units(p.columns), p.down);
  }

  void kernel() {
    line("");
    open(
        fmt::format("extern \"C\" __global__ void __launch_bounds__(kThreads, 1)\n    {}(const "
                    "__grid_constant__ "
                    "Args args)",
                    kKernelName));
    line("extern __shared__ __align__(128) char shared[];");
    const size_t where = text_.size();
    --indent_;
    begin();
    ++indent_;
    step_loop();
    close();
    std::string pointers = "  char* const space = global<char>(args.space);\n";
    pointers += pointers_;
    text_.insert(where, pointers);
  }

  void begin() {
    ++indent_;
    line("__shared__ Rates<Value> rates;");
    line("GridBarrier barrier(global<u32>(args.barrier));");
    line("const int block = int(blockIdx.x);");
    line("const i64 first = *{};", pointer(net_.inputs->first, "i64"));
    line("i32* const tick = {};", pointer(net_.tick->tick, "i32"));
    line("const i64 begin = *tick;");
    line("const i32* const order = {};", pointer(net_.inputs->order, "i32"));
    line("const u8* const images = {};", pointer(net_.inputs->set, "u8"));
    line("const i32* const classes = {};", pointer(net_.labels->set, "i32"));
    const Value& lr = net_.adam() ? net_.layers[0].adam_w->lr : net_.layers[0].sgd_w->lr;
    line("const double* const lr = {};", pointer(lr, "double"));
    line("double* const loss = {};", pointer(net_.loss(), "double"));
    line("i32* const correct = {};", pointer(net_.correct(), "i32"));
    if (net_.step) line("const i64 before = *{} + begin;", pointer(net_.step, "i64"));
    if (net_.norm != nullptr) {
      const GlobalNorm& norm = *net_.norm;
      line("__shared__ double square_sums[kWarps], loss_scale;");
      line("__shared__ i64 clipped, good, skipped;");
      line("double* const norm_to = {};", pointer(norm.norm, "double"));
      line("i64* const clipped_to = {};", pointer(norm.clipped, "i64"));
      line("double* const scale_to = {};", pointer(norm.loss_scale, "double"));
      line("i64* const good_to = {};", pointer(norm.good, "i64"));
      line("i64* const skipped_to = {};", pointer(norm.skipped, "i64"));
      open("if (threadIdx.x == 0)");
      line("loss_scale = scale_to != nullptr ? *scale_to : 1.0, clipped = *clipped_to;");
      line(
          "good = good_to != nullptr ? *good_to : 0, skipped = skipped_to != nullptr ? *skipped_to "
          ": 0;");
      close();
    }
    for (size_t l = 0; l < layers_; ++l) {
      const NetLayer& layer = net_.layers[l];
      const char* kept = "Kept";
      line("Kept* const b{} = {};", l, pointer(layer.linear->b, kept));
      const Value& w = net_.adam() ? layer.adam_w->w : layer.sgd_w->w;
      const Value copy = net_.adam() ? layer.adam_w->copy : layer.sgd_w->copy;
      const Value m = net_.adam() ? layer.adam_w->m : layer.sgd_w->m;
      const Value v = net_.adam() ? layer.adam_w->v : Value{};
      weights_.push_back(fmt::format(
          "{{{}, {}, {}, {}, {}, {}}}", pointer(w, kept), pointer(m, "Value"), pointer(v, "Value"),
          pointer(copy, "Copy"), of("w", l), l > 0 ? of("w", l, "t") : "nullptr"));
      kept_.push_back(pointer(w, kept));
    }
    line("const auto take_labels = [&](int strip, i64 at) {{");
    line("  const int row = {} * strip + int(threadIdx.x);", 16 * plan_.strip_units);
    line(
        "  if (threadIdx.x < {}) labels[threadIdx.x] = row < kBatch ? classes[order[at + row]] : "
        "0;",
        16 * plan_.strip_units);
    line("}};");
    line("const auto take_batch = [&](const Places& at, i64 t, int first_warp, int warps) {{");
    line(
        "  gather<M, kBatch, {}, {}, kTurned>(images, order, first + (begin + t) * kBatch, {}, {},",
        net_.layers[0].in(), depth(net_.layers[0].in()), number(net_.inputs->scale),
        number(net_.inputs->shift));
    line("      {{at.x() + (t & 1) * {}, at.xt() + (t & 1) * {}, 0}}, first_warp, warps);", x_rows_,
         x_turned_);
    line("}};");
    line("");
    line("// Operands as products read them, padded with zeros.");
    line("const int thread = block * kThreads + int(threadIdx.x);");
    line("clear(reinterpret_cast<uint4*>(shared), {}, int(threadIdx.x), kThreads);",
         up(int64_t(shared_.end()), 16) / 16);
    line("clear(reinterpret_cast<uint4*>(space + {}), {}, thread, kBlocks * kThreads);", zero_from_,
         (zero_to_ - zero_from_) / 16);
    line("barrier.arrive();");
    line("barrier.wait();");
    open("");
    phase();
    for (size_t l = 0; l < layers_; ++l) {
      line("spread_weights<M, Kept, {}, {}, {}, {}>({}, {}, {}, thread, kBlocks * kThreads);",
           width(l), net_.layers[l].in(), depth(net_.layers[l].in()), depth(width(l)), kept_[l],
           of("w", l), l > 0 ? of("w", l, "t") : "nullptr");
    }
    line("take_batch(at, 0, block * kWarps + warp_of(), kBlocks * kWarps);");
    close();
    line("barrier.arrive();");
    line("barrier.wait();");
    line("");
    --indent_;
  }

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
         curve_name(net_.layers[l]), net_.layers[l].dropout != nullptr ? ", dropout" : "");
  }

  void step_loop() {
    line("#pragma unroll 1");
    open("for (i64 t = 0; t < args.steps; ++t)");
    line("const i64 samples = first + (begin + t) * kBatch;");
    for (size_t l = 0; l < layers_; ++l) {
      const Dropout* drop = net_.layers[l].dropout;
      if (drop == nullptr) continue;
      const DropoutMask& mask = drop->mask;
      line("const Drop drop{}{{{}ull, {}ull + u64(before + t), {}f, {}, {}}};", l, mask.seed,
           DropoutMask::stream(mask.layer, 0), number(double(float(mask.p))), number(kept_of(l)),
           mask.row_offset);
    }
    for (int l = 0; l < plan_.chain; ++l) forward(size_t(l));
    strips();
    for (size_t l = size_t(plan_.chain); l-- > 1;) backward(l);
    gradients();
    close();
    line("if (thread == 0) *tick = i32(begin + args.steps);");
  }

  // The barrier before the phase that `first_fetch` begins.
  void sync(const std::vector<std::string>& between = {}) {
    line("barrier.arrive();");
    for (const std::string& each : between) line("{}", each);
    line("barrier.wait();");
  }

  std::string input_rows(size_t l) const {
    return l == 0 ? fmt::format("at.x() + (t & 1) * {}", x_rows_) : of("y", l - 1);
  }
  int64_t input_ld(size_t l) const { return l == 0 ? depth(net_.layers[0].in()) : y_ld(l - 1); }
  std::string input_turned(size_t l) const {
    return l == 0 ? fmt::format("at.xt() + (t & 1) * {}", x_turned_) : of("y", l - 1, "t");
  }

  std::string forward_type(size_t l) const {
    return hidden(l) ? fmt::format("Forward<M, L{}, Kept, kBatch, kTurned>", l)
                     : fmt::format("Outputs<M, L{}, Kept, kBatch>", l);
  }
  std::string forward_epilogue(size_t l, const char* row) const {
    if (!hidden(l)) return fmt::format("{}{{b{}, {}, {}}}", forward_type(l), l, of("outputs"), row);
    return fmt::format("{}{{b{}, {{{}, {}, {}}}, {}, {}}}", forward_type(l), l, of("y", l),
                       of("y", l, "t"), row, slopes_of(l), drop_of(l));
  }
  // Of the gradient of layer l's input, hence at layer l - 1's output.
  std::string backward_type(size_t l, int64_t ld) const {
    return fmt::format("Backward<M, L{}, kBatch, kTurned, {}>", l - 1, ld);
  }
  std::string backward_epilogue(size_t l, const std::string& rows, int64_t ld,
                                const char* row) const {
    const size_t below = l - 1;
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
    if (int(l) + 1 < plan_.chain) sync();  // that before the strips comes with them
  }

  void backward(size_t l) {
    line("// The gradient of layer {}'s input.", l);
    const ProductPlan& p = plan_.backward[l];
    const std::string rows = dy_rows_global(l - 1) ? of("d", l - 1) : "nullptr";
    open("");
    phase();
    line("{}::run({}, {}, block, kBlocks, sums,", grid(p, dy_ld(l), depth(width(l)), true),
         of("d", l), of("w", l, "t"));
    line("    {});", backward_epilogue(l, rows, depth(width(l - 1)), "0"));
    close();
    sync_before_gradients(l == 1);
  }

  struct Stage {
    std::string type, name, a, b;  // of its Strip, and what it multiplies
    std::string epilogue;
    std::string what;
    int registers = 0;  // that hold what is fetched for it
    bool loss_before = false;
  };

  std::string dy_shared(size_t l) const { return (layers_ - 1 - l) % 2 == 0 ? "da" : "db"; }

  std::vector<Stage> stages() const {
    std::vector<Stage> all;
    for (size_t l = size_t(plan_.chain); l < layers_; ++l) {
      const ProductPlan& p = plan_.forward[l];
      const bool shared = int(l) > plan_.chain;
      Stage stage;
      stage.name = fmt::format("forward{}", l);
      stage.type = fmt::format("Strip<{}, {}, {}>",
                               shape(p, input_ld(l), depth(net_.layers[l].in()), shared, false),
                               units(p.columns), forward_type(l));
      stage.a = input_rows(l) + (shared ? "" : fmt::format(" + row * {}", input_ld(l)));
      stage.b = of("w", l);
      stage.epilogue = forward_epilogue(l, "row");
      stage.registers = 8 * p.nt * (p.ring + p.mt) + (shared ? 0 : 8 * p.mt * p.ring);
      stage.what = fmt::format("layer {}: {} -> {}, {}", l, net_.layers[l].in(), width(l),
                               curve_name(net_.layers[l]));
      all.push_back(stage);
    }
    for (size_t l = layers_ - 1; l >= lowest_in_strip() && plan_.chain < int(layers_); --l) {
      const ProductPlan& p = plan_.backward[l];
      const bool below_shared = plan_.in_strip(l - 1);
      Stage stage;
      stage.name = fmt::format("backward{}", l);
      stage.type = fmt::format("Strip<{}, {}, {}>",
                               shape(p, strip_depth(width(l)), depth(width(l)), true, true),
                               units(p.columns), backward_type(l, dy_ld(l - 1)));
      stage.b = of("w", l, "t");
      std::string rows = "nullptr";
      if (dy_rows_shared(l - 1)) rows = dy_shared(l - 1);
      if (dy_rows_global(l - 1)) rows = of("d", l - 1);
      stage.a = dy_shared(l);
      stage.registers = 8 * p.nt * (p.ring + p.mt);
      stage.epilogue = backward_epilogue(l, rows, dy_ld(l - 1), below_shared ? "row" : "0");
      stage.what = fmt::format("the gradient of layer {}'s input", l);
      stage.loss_before = l == layers_ - 1;
      all.push_back(stage);
    }
    return all;
  }

  void loss() {
    const size_t last = layers_ - 1;
    const bool in_shared = dy_rows_shared(last);
    const std::string rows = in_shared ? "da"
                             : dy_global_of_loss()
                                 ? fmt::format("{} + row * {}", of("d", last), dy_ld(last))
                                 : "nullptr";
    const std::string outputs = plan_.chain == int(layers_)
                                    ? fmt::format("{} + row * {}", of("outputs"), y_ld(last))
                                    : std::string("outputs");
    line("loss_strip<M, {}, kBatch, {}, {}, {}, {}, kTurned>({}, labels, {}{},",
         net_.xent != nullptr, 16 * plan_.strip_units, width(last), y_ld(last), dy_ld(last),
         outputs, number(net_.scale()),
         net_.norm != nullptr && net_.loss_scale ? " * loss_scale" : "");
    line("    {{{}, {}, row}}, row_loss, row_correct);", rows, of("d", last, "t"));
    line("__syncthreads();");
  }

  void strips() {
    const std::vector<Stage> all = stages();
    line("// Strips of {} rows, a block each.", 16 * plan_.strip_units);
    open("");
    phase();
    if (!all.empty()) line("{} {};", all[0].type, all[0].name);
    std::string fetch, begin = "if (block < kStrips) take_labels(block, samples);";
    if (!all.empty()) {
      line("const auto {}_end = [&](int row) {{ return {}; }};", all[0].name, all[0].epilogue);
      const auto fetch_at = [&](const char* row) {
        return fmt::format("{0}.prefetch({1}, {2}, {0}_end({2}));", all[0].name, all[0].b, row);
      };
      const std::string first_row = fmt::format("{} * block", 16 * plan_.strip_units);
      begin = fmt::format(
          "if (block < kStrips) {{ take_labels(block, samples); {} }} else {{ {}.forget(); }}",
          fetch_at(first_row.c_str()), all[0].name);
      fetch = fetch_at(fmt::format("row + {} * kBlocks", 16 * plan_.strip_units).c_str());
    }
    const bool once = plan_.strips <= plan_.blocks;
    if (plan_.chain > 0) {
      sync({begin});
    } else {
      line("{}", begin);
      line("__syncthreads();");
    }
    if (once) {
      open("if (block < kStrips)");
      line("const int strip = block, row = {} * strip;", 16 * plan_.strip_units);
    } else {
      line("#pragma unroll 1");
      open("for (int strip = block; strip < kStrips; strip += kBlocks)");
      line("const int row = {} * strip;", 16 * plan_.strip_units);
    }
    bool lost = false;
    size_t fetched = 1;
    const size_t last_forward = layers_ - 1 - std::min(size_t(plan_.chain), layers_ - 1);
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i].loss_before) {
        loss();
        lost = true;
      }
      // What the next ones multiply by, as far ahead as registers allow. Gradients need outputs
      // that are there only when the last layer is on its way.
      for (; fetched < all.size() && (fetched <= last_forward || i >= last_forward); ++fetched) {
        int registers = 0;
        for (size_t k = i; k <= fetched; ++k) registers += all[k].registers;
        if (fetched > i + 1 && registers > kStripRegisters) break;
        const Stage& next = all[fetched];
        line("{} {};", next.type, next.name);
        line("const auto {}_end = {};", next.name, next.epilogue);
        line("{0}.prefetch({1}, row, {0}_end);", next.name, next.b);
      }
      line("// {}", all[i].what);
      line("{0}.run({1}, {2}, row, sums, {0}_end{3});", all[i].name, all[i].a, all[i].b,
           i == 0 ? "(row)" : "");
      line("__syncthreads();");
    }
    if (!lost) loss();
    line("if (warp_of() == 0) add_rows<{}>(row_loss, row_correct, at.scores() + strip);",
         16 * plan_.strip_units);
    if (!once) {
      open("if (strip + kBlocks < kStrips)");
      line("__syncthreads();");
      line("take_labels(strip + kBlocks, samples);");
      if (!fetch.empty()) line("{}", fetch);
      line("__syncthreads();");
      close();
    }
    close();
    line("// Meanwhile the next batch.");
    const bool apart = plan_.strips * 4 <= plan_.blocks * 3;
    if (apart) {
      line("if (t + 1 < args.steps && block >= kStrips) {{");
      line(
          "  take_batch(at, t + 1, (block - kStrips) * kWarps + warp_of(), (kBlocks - kStrips) * "
          "kWarps);");
      line("}}");
    } else {
      line(
          "if (t + 1 < args.steps) take_batch(at, t + 1, block * kWarps + warp_of(), kBlocks * "
          "kWarps);");
    }
    close();
    sync_before_gradients(plan_.chain <= 1);
  }

  void sync_before_gradients(bool last) {
    if (!last) return sync();
    std::string rates;
    if (net_.adam()) {
      const AdamUpdate& o = *net_.layers[0].adam_w;
      rates = fmt::format("adam_rates<Value>(lr[begin + t], {}, {}, before + t + 1)",
                          number(o.beta1), number(o.beta2));
    } else {
      rates = "sgd_rates<Value>(lr[begin + t])";
    }
    sync({fmt::format(
        "if (threadIdx.x == kThreads - 32) {{ rates = {}; rates.last = t + 1 == args.steps; }}",
        rates)});
  }

  std::string update_type(size_t l) const {
    return fmt::format("Update<M, Kept, Copy, Optimizer, {}, {}, {}, {}, {}>", width(l),
                       net_.layers[l].in(), depth(net_.layers[l].in()), depth(width(l)),
                       net_.norm != nullptr);
  }
  std::string update(size_t l) const {
    const bool stores = net_.norm != nullptr;
    return fmt::format("{}{{{}, kOptimizer, &rates, {}, {}}}", update_type(l), weights_[l],
                       stores ? of("g", l) : "nullptr", stores ? "&squares" : "nullptr");
  }
  std::string bias_update(size_t l) {
    const NetLayer& layer = net_.layers[l];
    const bool stores = net_.norm != nullptr;
    const Value m = net_.adam() ? layer.adam_b->m : layer.sgd_b->m;
    const Value v = net_.adam() ? layer.adam_b->v : Value{};
    return fmt::format(
        "BiasUpdate<M, Kept, Optimizer, {}, kTurned, {}, {}>{{b{}, {}, {}, {}, kOptimizer, &rates, "
        "{}, {}}}",
        width(l), (net_.batch() + chunk() - 1) / chunk(), stores, l, pointer(m, "Value"),
        pointer(v, "Value"), of("d", l, "t"), stores ? of("gb", l) : "nullptr",
        stores ? "&squares" : "nullptr");
  }

  void gradients() {
    line("// Gradients of weights{}.",
         net_.norm != nullptr ? "" : ", and updates where they are made");
    if (net_.norm != nullptr) line("double squares = 0;");
    std::vector<int> from(layers_);
    int offset = 0;
    for (size_t l = 0; l < layers_; ++l) {
      const ProductPlan& p = plan_.weights[l];
      from[l] = offset;
      open("");
      phase();
      line("{}::run({}, {}, (block + {}) % kBlocks, kBlocks, sums,",
           grid(p, turned(), turned(), true), of("d", l, "t"), input_turned(l),
           (plan_.blocks - offset) % plan_.blocks);
      line("    {});", update(l));
      close();
      if (p.split > 1) line("__syncthreads();");
      offset = (offset + p.tiles) % plan_.blocks;
    }
    phase();
    // Biases from the last block on, which most likely has no tile.
    line("const int warp = warp_of(), spare = (kBlocks - 1 - block) * kWarps + kWarps - 1 - warp;");
    int biases = 0;
    for (size_t l = 0; l < layers_; ++l) biases += net_.layers[l].linear->b ? bias_tasks(l) : 0;
    for_biases([&](size_t l, int first) {
      line("{}.run((spare + {}) % (kBlocks * kWarps), kBlocks * kWarps);", bias_update(l), first);
    });
    line("if (spare == {} % (kBlocks * kWarps)) {{", up(biases, kWarps));
    line(
        "  write_score(at.scores(), kStrips, {}, loss + begin + t, correct == nullptr ? nullptr : "
        "correct + begin + t);",
        number(net_.scale()));
    line("}}");
    if (net_.norm != nullptr) clip(from);
    sync();
  }

  // Warps that BiasUpdate wants.
  int bias_tasks(size_t l) const {
    const int64_t chunks = (net_.batch() + chunk() - 1) / chunk();
    const int64_t lanes = chunks <= 4 ? 4 : chunks <= 8 ? 8 : chunks <= 16 ? 16 : 32;
    return int((width(l) * lanes + 31) / 32);
  }
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

  void clip(const std::vector<int>& from) {
    const GlobalNorm& norm = *net_.norm;
    line("// The norm of all gradients, by every block; then the updates.");
    line("squares = block_sum(squares, square_sums);");
    line("if (threadIdx.x == 0) at.partials()[block] = squares;");
    sync();
    line("double total = 0;");
    line("for (int i = int(threadIdx.x); i < kBlocks; i += kThreads) total += at.partials()[i];");
    line("total = block_sum(total, square_sums);");
    open("if (threadIdx.x == 0)");
    line("const Norm now(total, {}, {}, {}, loss_scale, clipped, good, skipped);",
         number(norm.max_norm), bool(norm.loss_scale), norm.growth);
    line(
        "loss_scale = now.loss_scale, clipped = now.clipped, good = now.good, skipped = "
        "now.skipped;");
    line("rates.scale = Value(now.scale), rates.skip = Value(now.scale) == Value(0);");
    open("if (block == 0)");
    line("*norm_to = now.norm, *clipped_to = clipped;");
    line(
        "if (scale_to != nullptr) *scale_to = loss_scale, *good_to = good, *skipped_to = skipped;");
    close();
    close();
    line("__syncthreads();");
    for (size_t l = 0; l < layers_; ++l) {
      const ProductPlan& p = plan_.weights[l];
      line("finish_units<{}, {}, {}, {}>((block + {}) % kBlocks, kBlocks,",
           shape(p, turned(), turned(), false, true), units(p.rows), units(p.columns), p.down,
           (plan_.blocks - from[l]) % plan_.blocks);
      line("    {});", update(l));
    }
    for_biases([&](size_t l, int first) {
      line("{}.finish((spare + {}) % (kBlocks * kWarps), kBlocks * kWarps);", bias_update(l),
           first);
    });
  }

  const NetStep& net_;
  const Schedule& plan_;
  size_t layers_;
  std::string text_, pointers_;
  std::string places_;               // members of Places
  std::vector<std::string> placed_;  // what lies in the workspace
  size_t indent_ = 0;
  std::vector<Value> arguments_;
  std::vector<std::string> weights_,
      kept_;  // of each layer's Weights, and where the program keeps them
  Pieces space_, shared_;
  size_t zero_from_ = 0, zero_to_ = 0;
  int64_t x_rows_ = 0, x_turned_ = 0;
};

}  // namespace

Source write_source(const NetStep& net, const Schedule& schedule) {
  return Writer(net, schedule).run();
}

}  // namespace ridgeline::cuda::generate
