#include "ridgeline/cuda/generate/products.h"
#include "ridgeline/cuda/generate/writer.h"

namespace ridgeline::cuda::generate {

std::string Writer::strip_type(const std::string& shape, const ProductPlan& p,
                               const std::string& epilogue) const {
  if (!plan_.wide) return fmt::format("Strip<{}, {}, {}>", shape, units(p.columns), epilogue);
  return fmt::format("WideStrip<{}, {}, {}, {}>", shape, units(net_.batch()), units(p.columns),
                     epilogue);
}

std::vector<Writer::Stage> Writer::stages() const {
  std::vector<Stage> all;
  for (size_t l = size_t(plan_.chain); l < layers_; ++l) {
    const ProductPlan& p = plan_.forward[l];
    const bool shared = int(l) > plan_.chain;
    Stage stage;
    stage.name = fmt::format("forward{}", l);
    stage.type = strip_type(shape(p, input_ld(l), depth(net_.layers[l].in()), shared, false), p,
                            forward_type(l));
    stage.a = input_rows(l);
    if (!shared && !plan_.wide) stage.a += fmt::format(" + row * {}", input_ld(l));
    stage.b = of("w", l);
    stage.epilogue = forward_epilogue(l, "row");
    stage.registers = 8 * p.nt * (p.ring + p.mt) + (shared ? 0 : 8 * p.mt * p.ring);
    stage.what = fmt::format("layer {}: {} -> {}, {}", l, net_.layers[l].in(), width(l),
                             activation_name(net_.layers[l]));
    if (normed(l)) stage.then = norm_forward(l, "row", 1, "row", "0");
    all.push_back(stage);
  }
  for (size_t l = layers_ - 1; l >= lowest_in_strip() && plan_.chain < int(layers_); --l) {
    const ProductPlan& p = plan_.backward[l];
    const bool below_shared = l > 0 && plan_.in_strip(l - 1);
    const int64_t below_ld = l > 0 ? dy_ld(l - 1) : depth(net_.layers[0].in());
    Stage stage;
    stage.name = fmt::format("backward{}", l);
    stage.type = strip_type(shape(p, strip_depth(width(l)), depth(width(l)), true, true), p,
                            backward_type(l, below_ld));
    stage.b = of("w", l, "t");
    std::string rows = "nullptr";
    if (l == 0) {
      rows = of("dx");
    } else {
      if (dy_rows_shared(l - 1)) rows = dy_shared(l - 1);
      if (dy_rows_global(l - 1)) rows = of("d", l - 1);
      if (normed(l - 1) && !below_shared) rows = of("n", l - 1);
    }
    stage.a = dy_shared(l);
    stage.registers = 8 * p.nt * (p.ring + p.mt);
    stage.epilogue = backward_epilogue(l, rows, below_ld, below_shared ? "row" : "0");
    stage.what = fmt::format("the gradient of layer {}'s input", l);
    stage.loss_before = l == layers_ - 1;
    if (l > 0 && norm_backward_in_strip(l - 1))
      stage.then = norm_backward(l - 1, "row", 1, "row", "0");
    all.push_back(stage);
    if (l == 0) break;
  }
  return all;
}

void Writer::loss() {
  const size_t last = layers_ - 1;
  const bool in_shared = dy_rows_shared(last);
  const std::string rows = in_shared ? "da"
                           : dy_global_of_loss()
                               ? fmt::format("{} + row * {}", of("d", last), dy_ld(last))
                               : "nullptr";
  const std::string outputs = plan_.chain == int(layers_)
                                  ? fmt::format("{} + row * {}", of("outputs"), y_ld(last))
                                  : std::string("outputs");
  const std::string scale =
      number(net_.scale()) + (net_.norm != nullptr && net_.loss_scale ? " * loss_scale" : "");
  const std::string extents =
      fmt::format("kBatch, {}, {}, {}, {}, kTransposedLd", 16 * plan_.strip_units, width(last),
                  y_ld(last), dy_ld(last));
  if (net_.xent != nullptr) {
    line("xent_strip<M, {}>({}, labels, {},", extents, outputs, scale);
  } else {
    const ElementwiseLoss* loss = net_.elementwise;
    const int64_t columns = net_.target_columns();
    const Value weights = loss != nullptr ? loss->weights : Value{};
    line("element_loss_strip<M, ElementLoss::{}, {}, {}, {}>({},",
         loss != nullptr ? name(loss->fn) : "mse", extents, columns,
         weights ? weights.shape.numel() : 0, outputs);
    line("    {{{}, {}, {}, {}}}, {},", columns == 0 ? "labels" : "nullptr",
         columns > 0 ? "targets" : "nullptr", pointer(weights, "double"),
         number(loss != nullptr ? loss->delta : 0), scale);
  }
  line("    {{{}, {}, row}}, row_loss, row_correct);", rows, of("d", last, "t"));
  line("__syncthreads();");
}

void Writer::strip_products(const std::vector<Stage>& all) {
  bool lost = false;
  size_t fetched = 1;
  const size_t last_forward = layers_ - 1 - std::min(size_t(plan_.chain), layers_ - 1);
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].loss_before) {
      loss();
      lost = true;
    }
    // Prefetches the next operands as far ahead as registers allow. Gradients need outputs that
    // exist only once the last layer is being computed.
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
    if (all[i].then.empty()) continue;
    line("{}", all[i].then);
    line("__syncthreads();");
  }
  if (!lost) loss();
}

// Writes the products of wide strips.
void Writer::wide_strip_products(const std::vector<Stage>& all) {
  const auto declare = [&](const Stage& stage) {
    line("{} {}(sums);", stage.type, stage.name);
    line("const auto {}_end = {};", stage.name, stage.epilogue);
    line("{}.prefetch({}, {}, strip);", stage.name, stage.a, stage.b);
  };
  for (size_t i = 0; i < all.size(); ++i) {
    if (i == 0) declare(all[i]);
    if (all[i].loss_before) loss();
    line("// {}", all[i].what);
    line("{0}.multiply({1}, strip, {0}_end);", all[i].name, all[i].a);
    if (i + 1 < all.size()) declare(all[i + 1]);
    line("{0}.finish(strip, {0}_end);", all[i].name);
    line("__syncthreads();");
  }
  if (lowest_in_strip() >= layers_) loss();
}

// Blocks without a strip gather while the others are busy, and then all of them do the rest.
void Writer::gather_next() {
  const double all = double(units(net_.batch())) * units(net_.layers[0].in());
  const int idle = plan_.blocks - plan_.strips;
  const double alone = gathers_apart() ? 1
                       : all < 1024    ? 0
                                       : idle * plan_.strip_cycles / (kGatherUnit * all);
  line("// Meanwhile the next batch.");
  open("if (t + 1 < args.steps)");
  line("const auto next = batch_of(at, t + 1);");
  if (alone >= 0.05) {
    line("constexpr int kAlone = {} * next.kTasks / 100;", std::min(100, int(100 * alone)));
    line("if (block >= kStrips) {{");
    line("  next.run((block - kStrips) * kWarps + warp_of(), {} * kWarps, kAlone);", idle);
    line("}}");
  }
  if (alone < 1) {
    line("next.run({}block * kWarps + warp_of(), kBlocks * kWarps);",
         alone >= 0.05 ? "kAlone + " : "");
  }
  close();
}

void Writer::strips() {
  const std::vector<Stage> all = stages();
  line("// Strips of {} rows, a block each.", 16 * plan_.strip_units);
  open("");
  phase();
  std::string fetch, begin = "if (block < kStrips) take_targets(block, samples);";
  if (!all.empty() && !plan_.wide) {
    line("{} {};", all[0].type, all[0].name);
    line("const auto {}_end = [&](int row) {{ return {}; }};", all[0].name, all[0].epilogue);
    const auto fetch_at = [&](const char* row) {
      return fmt::format("{0}.prefetch({1}, {2}, {0}_end({2}));", all[0].name, all[0].b, row);
    };
    const std::string first_row = fmt::format("{} * block", 16 * plan_.strip_units);
    begin = fmt::format(
        "if (block < kStrips) {{ take_targets(block, samples); {} }} else {{ {}.forget(); }}",
        fetch_at(first_row.c_str()), all[0].name);
    fetch = fetch_at(fmt::format("row + {} * kBlocks", 16 * plan_.strip_units).c_str());
  }
  const bool once = plan_.strips <= plan_.blocks;
  if (plan_.chain > 0 || convolves()) {
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
  if (normed_below_strips()) {
    line("{}", norm_forward(size_t(plan_.chain) - 1, "row", 1, "0", "0"));
    line("__syncthreads();");
  }
  if (plan_.wide) {
    wide_strip_products(all);
  } else {
    strip_products(all);
  }
  line("if (warp_of() == 0) add_rows<{}>(row_loss, row_correct, at.scores() + strip);",
       16 * plan_.strip_units);
  if (!once) {
    open("if (strip + kBlocks < kStrips)");
    line("__syncthreads();");
    line("take_targets(strip + kBlocks, samples);");
    if (!fetch.empty()) line("{}", fetch);
    line("__syncthreads();");
    close();
  }
  close();
  if (plan_.takes_tickets) line("if (block == 0 && threadIdx.x == 0) *at.tickets() = 0;");
  if (convolves()) {
    convolve_meanwhile();
  } else {
    gather_next();
  }
  close();
  const bool more = normed_below_strips() && !norm_backward_in_strip(size_t(plan_.chain) - 1);
  sync_before_gradients(plan_.chain <= 1 && !more);
}

}  // namespace ridgeline::cuda::generate
