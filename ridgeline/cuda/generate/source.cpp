#include <bit>

#include "ridgeline/cuda/generate/writer.h"

namespace ridgeline::cuda::generate {

Source Writer::run() {
  lay_out();
  head();
  kernel();
  Source source;
  source.text = std::move(text_);
  source.arguments = std::move(arguments_);
  source.workspace_bytes = size_t(up(int64_t(space_.end()), 256));
  source.shared_bytes = size_t(up(int64_t(shared_.end()), 16)) + (plan_.wide ? 1024 : 0);
  source.blocks = plan_.blocks;
  return source;
}

void Writer::lay_out() {
  const int64_t batch = net_.batch();
  space("Score", "scores", plan_.strips, 16);
  space("double", "partials", plan_.blocks, 8);
  if (plan_.takes_tickets) space("u32", "tickets", 1, 4);
  zero_from_ = size_t(up(int64_t(space_.end()), 256));
  const int64_t in = net_.layers[0].in();
  x_rows_ = up(batch, 64) * depth(in), x_transposed_ = up(in, 64) * transposed_ld();
  const int64_t batches = convolves() ? 1 : 2;  // the next one is gathered meanwhile
  space("Number", "x", batches * x_rows_, number_bytes(math()));
  space("Number", "xt", batches * x_transposed_, number_bytes(math()));
  for (size_t l = 0; l < layers_; ++l) {
    const int64_t in_l = net_.layers[l].in();
    numbers(fmt::format("w{}", l), width(l), depth(in_l));
    if (l >= lowest_gradient()) numbers(fmt::format("w{}t", l), in_l, depth(width(l)));
    numbers(fmt::format("d{}t", l), width(l), transposed_ld());
    if (hidden(l)) numbers(fmt::format("y{}t", l), width(l), transposed_ld());
    if (hidden(l) && !plan_.in_strip(l)) {
      numbers(fmt::format("y{}", l), batch, depth(width(l)));
      if (slopes(l)) numbers(fmt::format("s{}", l), batch, up(width(l), 16));
    }
    if (dy_rows_global(l)) numbers(fmt::format("d{}", l), batch, depth(width(l)));
    if (normed(l) && !plan_.in_strip(l)) {
      numbers(fmt::format("z{}", l), batch, up(width(l), 16));
      numbers(fmt::format("n{}", l), batch, depth(width(l)));
    }
  }
  lay_out_convolutions();
  const int64_t value = value_bytes(math());
  if (plan_.chain == int(layers_)) {
    space("Value", "outputs", up(batch, 64) * up(width(layers_ - 1), 16), value);
  }
  for (size_t l = 0; l < layers_; ++l) {
    if (!normed(l)) continue;
    const int64_t columns = up(width(l), 16), of_units = units(batch) * 2 * columns;
    space("Value", fmt::format("p{}", l), of_units, value);
    if (over_batch(net_.layers[l])) space("Value", fmt::format("q{}", l), of_units, value);
    if (net_.norm != nullptr) space("Value", fmt::format("gn{}", l), 2 * columns, value);
    if (plan_.in_strip(l)) continue;
    const int64_t statistics = over_batch(net_.layers[l]) ? columns : up(batch, 64);
    space("Value", fmt::format("m{}", l), statistics, value);
    space("Value", fmt::format("r{}", l), statistics, value);
  }
  const int states = net_.adam() ? 2 : net_.layers[0].sgd_w->m ? 1 : 0;
  for (size_t l = 0; l < layers_; ++l) {
    const int64_t count = up(width(l), 16) * up(net_.layers[l].in(), 16);
    space("Kept", fmt::format("kept{}", l), count, int64_t(size_of(net_.kept())));
    if (states > 0) space("Value", fmt::format("m1_{}", l), count, value);
    if (states > 1) space("Value", fmt::format("m2_{}", l), count, value);
  }
  for (size_t l = 0; l < layers_; ++l) {
    if (!stores(l)) continue;
    space("Value", fmt::format("g{}", l),
          plan_.weights[l].parts * up(width(l), 16) * up(net_.layers[l].in(), 16), value);
  }
  if (net_.norm != nullptr) {
    for (size_t l = 0; l < layers_; ++l) {
      if (net_.layers[l].linear->b) space("Value", fmt::format("gb{}", l), width(l), value);
    }
  }

  const int64_t rows = 16 * plan_.strip_units;
  int64_t widest = 0;
  for (size_t l = 0; l < layers_; ++l) {
    if (!plan_.in_strip(l)) continue;
    if (hidden(l)) {
      in_shared("Number", fmt::format("y{}", l), strip_count(width(l)), number_bytes(math()));
      if (slopes(l)) {
        in_shared("Number", fmt::format("s{}", l), rows * up(width(l), 16), number_bytes(math()));
      }
      if (normed(l)) {
        in_shared("Number", fmt::format("z{}", l), rows * up(width(l), 16), number_bytes(math()));
        in_shared("Value", fmt::format("m{}", l), rows, value);
        in_shared("Value", fmt::format("r{}", l), rows, value);
      }
    }
    if (dy_rows_shared(l) && !(plan_.wide && hidden(l))) {
      widest = std::max(widest, strip_count(width(l)));
    }
  }
  for (size_t l = 0; l < layers_; ++l) {
    if (!copies_statistics(l)) continue;
    in_shared("Value", fmt::format("own_m{}", l), up(width(l), 16), value);
    in_shared("Value", fmt::format("own_r{}", l), up(width(l), 16), value);
  }
  if (widest > 0) {
    in_shared("Number", "da", widest, number_bytes(math()));
    if (!plan_.wide) in_shared("Number", "db", widest, number_bytes(math()));
  }
  if (plan_.chain < int(layers_)) {
    in_shared("Value", "outputs", rows * up(width(layers_ - 1), 16), value);
  }
  in_shared("double", "row_loss", rows, 8);
  in_shared("i32", "row_correct", rows, 4);
  if (const int64_t columns = net_.target_columns(); columns > 0) {
    in_shared("Value", "targets", rows * columns, value);
  } else {
    in_shared("i32", "labels", rows, 4);
  }
  int64_t sums =
      std::max(norm_scratch_bytes(net_, plan_), conv_scratch_bytes(net_, plan_.convolutions));
  for (const auto* plans : {&plan_.forward, &plan_.backward, &plan_.weights}) {
    for (const ProductPlan& plan : *plans) sums = std::max(sums, scratch_bytes(plan, math()));
  }
  in_shared("char", "sums", std::max<int64_t>(sums, 128), 1);
}

void Writer::head() {
  std::string net = fmt::format("{}", net_.layers[0].in());
  for (size_t l = 0; l < layers_; ++l) net += fmt::format("-{}", width(l));
  const size_t convolutions = net_.convolutions.size();
  if (convolutions > 0) {
    net = fmt::format("{} convolution{} and {}", convolutions, convolutions > 1 ? "s" : "", net);
  }
  line("// A training step of {}, {} rows, {}, by {} blocks.", net, net_.batch(), math_name(math()),
       plan_.blocks);
  line("#include \"ridgeline/cuda/generate/device/grid_barrier.cuh\"");
  line("#include \"ridgeline/cuda/generate/device/norm.cuh\"");
  if (convolves()) line("#include \"ridgeline/cuda/generate/device/conv_update.cuh\"");
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
  line("constexpr int kBatch = {}, kTransposedLd = {}, kBlocks = {}, kStrips = {};", net_.batch(),
       transposed_ld(), plan_.blocks, plan_.strips);
  for (size_t l = 0; l < layers_; ++l) {
    const NetLayer& layer = net_.layers[l];
    const double parameter = layer.activation != nullptr ? layer.activation->parameter : 0;
    line("using L{} = Layer<ActivationFn::{}, {}, {}, {}, {}, {}, {}ll>;", l,
         activation_name(layer), width(l), y_ld(l), up(width(l), 16), slopes(l),
         layer.dropout != nullptr, std::bit_cast<int64_t>(parameter));
  }
  norm_types();
  optimizer();
  conv_types();
  line(
      "// What lies in the workspace. Each phase makes one of its own, so that addresses are not "
      "kept through all of them.");
  line("struct Places {{");
  line("  char* space;");
  line("  __device__ explicit Places(char* at) : space(fresh(at)) {{}}");
  text_ += places_;
  line("}};");
}

void Writer::optimizer() {
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

void Writer::kernel() {
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
  if (plan_.wide) {
    pointers +=
        "  char* const aligned = shared + (-u32(__cvta_generic_to_shared(shared)) & 1023);\n";
  }
  pointers += pointers_;
  text_.insert(where, pointers);
}

void Writer::begin() {
  ++indent_;
  line("__shared__ Rates<Value> rates;");
  if (plan_.takes_tickets) line("__shared__ int taken[2];");
  line("GridBarrier barrier(global<u32>(args.barrier));");
  line("const int block = int(blockIdx.x);");
  line("const i64 first = *{};", pointer(net_.inputs->first, "i64"));
  line("i32* const tick = {};", pointer(net_.tick->tick, "i32"));
  line("const i64 begin = *tick;");
  line("const i32* const order = {};", pointer(net_.inputs->order, "i32"));
  const char* sample = net_.inputs->set.dtype == DType::uint8 ? "u8" : "float";
  line("const {}* const set = {};", sample, pointer(net_.inputs->set, sample));
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
    weights_.push_back(fmt::format("{{{}, {}, {}, {}, {}}}", of("kept", l),
                                   m ? of("m1_", l) : "nullptr", v ? of("m2_", l) : "nullptr",
                                   of("w", l),
                                   l >= lowest_gradient() ? of("w", l, "t") : "nullptr"));
    kept_.push_back(
        fmt::format("{}, {}, {}", pointer(w, kept), pointer(m, "Value"), pointer(v, "Value")));
    copies_.push_back(pointer(copy, "Copy"));
  }
  norm_pointers();
  take_targets();
  if (convolves()) {
    conv_pointers();
  } else {
    take_batch();
  }
  line("");
  line("// Operands as products read them, padded with zeros.");
  line("const int thread = block * kThreads + int(threadIdx.x);");
  line("clear(reinterpret_cast<uint4*>(shared), {}, int(threadIdx.x), kThreads);",
       (up(int64_t(shared_.end()), 16) + (plan_.wide ? 1024 : 0)) / 16);
  line("clear(reinterpret_cast<uint4*>(space + {}), {}, thread, kBlocks * kThreads);", zero_from_,
       (zero_to_ - zero_from_) / 16);
  line("barrier.arrive();");
  line("barrier.wait();");
  open("");
  phase();
  for (size_t l = 0; l < layers_; ++l) {
    line("take_weights<M, Kept, {}, {}, {}, {}>({}, {}, thread, kBlocks * kThreads);", width(l),
         net_.layers[l].in(), depth(net_.layers[l].in()), depth(width(l)), kept_[l], weights_[l]);
  }
  if (convolves()) {
    begin_convolutions();
  } else {
    line("batch_of(at, 0).run(block * kWarps + warp_of(), kBlocks * kWarps);");
  }
  close();
  line("barrier.arrive();");
  line("barrier.wait();");
  line("");
  --indent_;
}

void Writer::take_batch() {
  line("const auto batch_of = [&](const Places& at, i64 t) {{");
  line(
      "  return Gather<M, kBatch, {}, {}, kTransposedLd, {}>{{set, order + first + (begin + t) * "
      "kBatch,",
      net_.layers[0].in(), depth(net_.layers[0].in()),
      net_.inputs->set.dtype == DType::uint8 ? "u8" : "float");
  line("      {}, {}, {{at.x() + (t & 1) * {}, at.xt() + (t & 1) * {}, 0}}}};",
       number(net_.inputs->scale), number(net_.inputs->shift), x_rows_, x_transposed_);
  line("}};");
}

void Writer::take_targets() {
  const int rows = 16 * plan_.strip_units;
  const int64_t columns = net_.target_columns();
  if (columns == 0) {
    line("const i32* const classes = {};", pointer(net_.targets->set, "i32"));
    line("const auto take_targets = [&](int strip, i64 at) {{");
    line("  const int row = {} * strip + int(threadIdx.x);", rows);
    line(
        "  if (threadIdx.x < {}) labels[threadIdx.x] = row < kBatch ? classes[order[at + row]] : "
        "0;",
        rows);
    line("}};");
    return;
  }
  // Targets are gathered into their own type, to which they are rounded.
  line("const float* const wanted = {};", pointer(net_.targets->set, "float"));
  line("const auto take_targets = [&](int strip, i64 at) {{");
  line("  for (int i = int(threadIdx.x); i < {}; i += kThreads) {{", rows * columns);
  line("    const int row = {} * strip + i / {};", rows, columns);
  line("    targets[i] = row < kBatch ? Value(widen(Narrow<{}>::from(",
       type_name(net_.targets->y.dtype));
  line("        wanted[i64(order[at + row]) * {0} + i % {0}]))) : Value(0);", columns);
  line("  }}");
  line("}};");
}

void Writer::step_loop() {
  line("#pragma unroll 1");
  open("for (i64 t = 0; t < args.steps; ++t)");
  line("const i64 samples = first + (begin + t) * kBatch;");
  for (size_t l = 0; l < layers_; ++l) {
    const Dropout* drop = net_.layers[l].dropout;
    if (drop == nullptr) continue;
    const DropoutMask& mask = drop->mask;
    line("const Drop drop{}{{{}ull, {}ull + u64(before + t), {}f, {}, {}}};", l, mask.seed,
         DropoutMask::stream(mask.layer, 0), number(double(float(mask.p))), number(kept_of(l)),
         mask.sample_offset);
  }
  if (convolves()) conv_forward();
  for (int l = 0; l < plan_.chain; ++l) forward(size_t(l));
  strips();
  if (normed_below_strips() && !norm_backward_in_strip(size_t(plan_.chain) - 1)) {
    norm_backward_phase(size_t(plan_.chain) - 1);
  }
  for (size_t l = size_t(plan_.chain); l-- > lowest_gradient();) backward(l);
  if (convolves()) conv_backward();
  gradients();
  close();
  line("// Weights and states as the program keeps them.");
  phase();
  for (size_t l = 0; l < layers_; ++l) {
    line("give_weights<M, Kept, Copy, {}, {}>({}, {}, {}, thread, kBlocks * kThreads);", width(l),
         net_.layers[l].in(), weights_[l], kept_[l], copies_[l]);
  }
  line("if (thread == 0) *tick = i32(begin + args.steps);");
}

Source write_source(const NetStep& net, const Schedule& schedule) {
  return Writer(net, schedule).run();
}

}  // namespace ridgeline::cuda::generate
