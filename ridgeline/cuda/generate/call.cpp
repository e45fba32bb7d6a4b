#include "ridgeline/cuda/generate/call.h"

#include <bit>

#include "ridgeline/cuda/generate/products.h"
#include "ridgeline/cuda/generate/writer.h"

namespace ridgeline::cuda::generate {
namespace {

constexpr size_t kMostLayers = 16;

std::string match(const RemainingOps& rest, CallNet& net) {
  size_t at = 0;
  net.inputs = rest.get<Gather>(at++);
  if (net.inputs == nullptr) return "the call does not begin with a gather";
  const Gather& gather = *net.inputs;
  const auto math = math_of(gather.y.dtype, rest.program.precision);
  if (!math || (gather.set.dtype != DType::fp32 && gather.set.dtype != DType::uint8)) {
    return "wants samples of uint8 or fp32 as floating-point values";
  }
  net.math = *math;
  Value x = gather.y;
  net.inside.push_back(x.id);
  while (const auto* linear = rest.get<Linear>(at)) {
    if (linear->x.id != x.id || linear->n() != net.batch()) return "layers are not a chain";
    if (linear->w.dtype != x.dtype || linear->y.dtype != x.dtype) return "types are mixed";
    if (!net.layers.empty()) net.inside.push_back(x.id);
    ++at;
    x = linear->y;
    net.layers.push_back({linear});
    const auto* activation = rest.get<Activation>(at);
    // The activation after the last layer may be the op that writes the outputs.
    if (activation == nullptr || activation->x.id != x.id || rest.get<Linear>(at + 1) == nullptr) {
      continue;
    }
    ++at;
    net.inside.push_back(x.id);
    x = activation->y;
    net.layers.back().activation = activation;
  }
  if (net.layers.empty() || net.layers.size() > kMostLayers) return "no chain of linear layers";
  net.inside.push_back(x.id);
  if (const auto* softmax = rest.get<Softmax>(at)) {
    if (softmax->x.id != x.id) return "layers are not a chain";
    net.softmax = true;
    net.outputs = softmax->y;
  } else if (const auto* copy = rest.get<Copy>(at)) {
    if (copy->from.id != x.id) return "layers are not a chain";
    net.outputs = copy->to;
  } else if (const auto* activation = rest.get<Activation>(at)) {
    if (activation->x.id != x.id) return "layers are not a chain";
    net.layers.back().activation = activation;
    net.outputs = activation->y;
  } else {
    return "the outputs are no softmax, activation or copy";
  }
  ++at;
  if (const auto* argmax = rest.get<Argmax>(at)) {
    if (argmax->x.id != net.outputs.id) return "layers are not a chain";
    net.largest = argmax->y;
    ++at;
  }
  net.tick = rest.get<Tick>(at++);
  if (net.tick == nullptr || net.tick->tick.id != gather.tick.id) return "no tick of the call";
  if (at != rest.size()) return "covers whole programs only";
  if (net.batch() < 1 || net.outputs.dtype != gather.y.dtype) return "types are mixed";
  int64_t widest = net.layers.front().linear->in();
  for (const auto& [linear, activation] : net.layers) {
    widest = std::max(widest, linear->out());
    for (const Value& each : {linear->w, linear->b}) {
      if (!each) continue;
      const Role role = rest.program.info(each.id).role;
      if (role != Role::param && role != Role::copy) return "takes weights that do not change";
    }
    if (linear->b && linear->b.dtype != net.layers[0].linear->b.dtype) return "types are mixed";
  }
  if (widest > 4096 || net.batch() > 4096) return "takes extents up to 4096";
  for (const ValueId id : net.inside) {
    if (!rest.dead_after(rest.program.info(id).value, at))
      return "an inner value is wanted outside";
  }
  return {};
}

// A call uses one cluster per 16 samples; the data that its blocks share is in shared memory.
class CallWriter {
 public:
  explicit CallWriter(const CallNet& net) : net_(net), layers_(net.layers.size()) {}

  Source run();

 private:
  template <typename... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
    text_ += '\n';
  }
  std::string pointer(const Value& value, const char* type) {
    if (!value) return "nullptr";
    size_t i = 0;
    while (i < arguments_.size() && arguments_[i].id != value.id) ++i;
    if (i == arguments_.size()) arguments_.push_back(value);
    return fmt::format("global<{}>(args.p[{}])", type, i);
  }
  int64_t in(size_t l) const { return net_.layers[l].linear->in(); }
  int64_t out(size_t l) const { return net_.layers[l].linear->out(); }
  int64_t depth(int64_t extent) const { return up(extent, std::max(chunk_of(net_.math), 16)); }
  int64_t shared_depth(int64_t extent) const {
    return depth(extent) + 32 / number_bytes(net_.math);
  }
  // Columns per block.
  int64_t columns(size_t l) const { return 16 * ((units(out(l)) + kCallBlocks - 1) / kCallBlocks); }
  bool last(size_t l) const { return l + 1 == layers_; }
  int64_t y_ld(size_t l) const { return last(l) ? up(out(l), 16) : shared_depth(out(l)); }

  void head();
  void spread();
  void call();

  const CallNet& net_;
  size_t layers_;
  std::string text_;
  std::vector<Value> arguments_;
  MemoryLayout space_, shared_;
  std::vector<size_t> weights_;  // offsets in the workspace
};

void CallWriter::head() {
  std::string net = fmt::format("{}", in(0));
  for (size_t l = 0; l < layers_; ++l) net += fmt::format("-{}", out(l));
  line("// A call of {}, {} rows, {}: clusters of {} blocks, 16 rows each.", net, net_.batch(),
       math_name(net_.math), kCallBlocks);
  line("#include \"ridgeline/cuda/generate/device/call.cuh\"");
  line("#include \"ridgeline/cuda/generate/device/update.cuh\"");
  line("using namespace ridgeline::generated;");
  line("using M = {};", math_name(net_.math));
  line("using Number = M::Number;");
  line("using Value = M::Value;");
  line("struct Args {{\n  void* p[{}];\n  void* space;\n  void* barrier;\n  i64 steps;\n}};",
       kMostArguments);
  for (size_t l = 0; l < layers_; ++l) {
    const Activation* f = net_.layers[l].activation;
    line("using L{} = Layer<ActivationFn::{}, {}, {}, {}, false, false, {}ll>;", l,
         f == nullptr ? "none" : name(f->kind), out(l), y_ld(l), up(out(l), 16),
         std::bit_cast<int64_t>(f == nullptr ? 0.0 : f->parameter));
    weights_.push_back(
        space_.take(size_t(kCallBlocks * columns(l) * depth(in(l)) * number_bytes(net_.math))));
  }
}

// Writes the function that copies weights to the layout that products read, padded with zeros.
void CallWriter::spread() {
  line("extern \"C\" __global__ void {}(const __grid_constant__ Args args) {{", kSpreadName);
  line("  const int thread = int(blockIdx.x * blockDim.x + threadIdx.x);");
  line("  const int threads = int(gridDim.x * blockDim.x);");
  for (size_t l = 0; l < layers_; ++l) {
    const Value& w = net_.layers[l].linear->w;
    line("  {{");
    line("    Number* const to = reinterpret_cast<Number*>(global<char>(args.space) + {});",
         weights_[l]);
    line("    const {0}* const from = {1};", type_name(w.dtype), pointer(w, type_name(w.dtype)));
    line("    for (i64 i = thread; i < i64({}) * {}; i += threads) {{", kCallBlocks * columns(l),
         depth(in(l)));
    line("      const int row = int(i / {0}), k = int(i % {0});", depth(in(l)));
    line("      const bool real = row < {} && k < {};", out(l), in(l));
    line("      to[i] = M::operand(real ? Value(widen(from[i64(row) * {} + k])) : Value(0));",
         in(l));
    line("    }}");
    line("  }}");
  }
  line("}}");
}

void CallWriter::call() {
  const int64_t rows = std::min<int64_t>(net_.batch(), 16), number = number_bytes(net_.math);
  std::vector<ProductPlan> plans;
  int64_t sums = 128;
  for (size_t l = 0; l < layers_; ++l) {
    plans.push_back(strip_product(1, columns(l), in(l), net_.math, true));
    sums = std::max(sums, scratch_bytes(plans.back(), net_.math));
  }
  line("extern \"C\" __global__ void __launch_bounds__(kThreads, 1)");
  line("    {}(const __grid_constant__ Args args) {{", kKernelName);
  line("  extern __shared__ __align__(128) char shared[];");
  const auto in_shared = [&](const char* type, const std::string& name, int64_t bytes) {
    line("  {0}* const {1} = reinterpret_cast<{0}*>(shared + {2});", type, name,
         shared_.take(size_t(bytes), 128));
  };
  in_shared("char", "sums", sums);
  const size_t clear_from = size_t(up(int64_t(shared_.end()), 128));
  in_shared("Number", "y_in", 16 * shared_depth(in(0)) * number);
  for (size_t l = 0; l < layers_; ++l) {
    in_shared(last(l) ? "Value" : "Number", fmt::format("y{}", l),
              16 * y_ld(l) * (last(l) ? value_bytes(net_.math) : number));
  }
  const size_t clear_to = size_t(up(int64_t(shared_.end()), 16));
  shared_.take(clear_to - shared_.end(), 1);
  line("  const int rank = int(cluster_rank()), row = 16 * int(blockIdx.x / {});", kCallBlocks);
  line("  const int rows = min({}, {} - row);", rows, net_.batch());
  // Loads the weights of as many layers ahead as there are registers for.
  std::vector<std::string> names;
  int registers = 0;
  size_t fetched = 0;
  const auto fetch = [&](size_t l) {
    const ProductPlan& p = plans[l];
    const Value& b = net_.layers[l].linear->b;
    const char* bias = b ? type_name(b.dtype) : "Number";
    const std::string end = fmt::format("CallOutputs<M, L{}, {}, {}, {}, {}, {}>", l, bias, rows,
                                        columns(l), kCallBlocks, last(l));
    line(
        "  const Number* const w{} = reinterpret_cast<const Number*>(global<char>(args.space) + "
        "{}) + i64(rank) * {};",
        l, weights_[l], columns(l) * depth(in(l)));
    line("  const {} end{}{{{}, y{}, rank * {}}};", end, l, pointer(b, bias), l, columns(l));
    line("  Strip<Shape<M, 1, {}, {}, {}, {}, {}, {}, true, false>, {}, {}> layer{};", p.nt,
         p.split, p.ring, (in(l) + chunk_of(net_.math) - 1) / chunk_of(net_.math),
         shared_depth(in(l)), depth(in(l)), columns(l) / 16, end, l);
    line("  layer{0}.prefetch(w{0}, 0, end{0});", l);
  };
  const auto fetch_ahead = [&](size_t done) {
    for (; fetched < layers_; ++fetched) {
      registers = 0;
      for (size_t l = done; l <= fetched; ++l) registers += 8 * plans[l].nt * (plans[l].ring + 1);
      if (fetched > done && registers > kStripRegisters) return;
      fetch(fetched);
    }
  };
  fetch_ahead(0);
  line("  clear(reinterpret_cast<uint4*>(shared + {}), {}, int(threadIdx.x), kThreads);",
       clear_from, (clear_to - clear_from) / 16);
  line("  __syncthreads();");
  line("  cluster_arrive();  // its memory is ready for what others write");
  const char* sample = net_.inputs->set.dtype == DType::uint8 ? "u8" : "float";
  line("  i32* const tick = {};", pointer(net_.tick->tick, "i32"));
  line("  const i64 call = *tick;");
  line("  take_samples<M, {}, {}, {}>({}, {}, *{} + call * {} + row, rows, {}, {}, y_in);", rows,
       in(0), shared_depth(in(0)), pointer(net_.inputs->set, sample),
       pointer(net_.inputs->order, "i32"), pointer(net_.inputs->first, "i64"), net_.batch(),
       ridgeline::cuda::generate::number(net_.inputs->scale),
       ridgeline::cuda::generate::number(net_.inputs->shift));
  line("  __syncthreads();");
  line("  cluster_wait();");
  for (size_t l = 0; l < layers_; ++l) {
    fetch_ahead(l);
    line("  // layer {}: {} -> {}, {}", l, in(l), out(l),
         net_.layers[l].activation == nullptr ? "none" : name(net_.layers[l].activation->kind));
    line("  layer{0}.run({1}, w{0}, 0, sums, end{0});", l,
         l == 0 ? std::string("y_in") : fmt::format("y{}", l - 1));
    line("  cluster_arrive();");
    line("  cluster_wait();");
  }
  line("  if (rank != 0) return;");
  const char* type = type_name(net_.outputs.dtype);
  line("  i32* const largest = {};", pointer(net_.largest, "i32"));
  line(
      "  finish_call<M, {}, {}, CallEnd::{}>(y{}, rows, {} + i64(row) * {}, largest == nullptr ? "
      "nullptr : largest + row);",
      out(layers_ - 1), y_ld(layers_ - 1), net_.softmax ? "softmax" : "none", layers_ - 1,
      pointer(net_.outputs, type), out(layers_ - 1));
  const int64_t clusters = (net_.batch() + 15) / 16;
  if (clusters == 1) {
    line("  if (threadIdx.x == 0) *tick = i32(call + 1);");
  } else {  // the last cluster increments it, because others may not have read the tick yet
    line("  if (threadIdx.x == 0 && atomicAdd(global<u32>(args.barrier), 1u) == {}) {{",
         clusters - 1);
    line("    *global<u32>(args.barrier) = 0;");
    line("    *tick = i32(call + 1);");
    line("  }}");
  }
  line("}}");
}

Source CallWriter::run() {
  head();
  spread();
  call();
  Source source;
  source.text = std::move(text_);
  source.arguments = std::move(arguments_);
  source.workspace_bytes = size_t(up(int64_t(space_.end()), 256));
  source.shared_bytes = size_t(up(int64_t(shared_.end()), 16));
  source.blocks = int((net_.batch() + 15) / 16) * kCallBlocks;
  source.cluster = kCallBlocks;
  return source;
}

}  // namespace

CallNet match_call(const RemainingOps& rest) {
  CallNet net;
  net.refusal = rest.begin != 0 ? "covers whole programs only" : match(rest, net);
  return net;
}

Source write_call(const CallNet& net) { return CallWriter(net).run(); }

}  // namespace ridgeline::cuda::generate
