#include "ridgeline/cuda/generate/writer.h"

namespace ridgeline::cuda::generate {

std::string Writer::update_type(size_t l) const {
  return fmt::format("Update<M, Kept, Optimizer, {}, {}, {}, {}, {}, {}, {}>", width(l),
                     net_.layers[l].in(), depth(net_.layers[l].in()), depth(width(l)), stores(l),
                     plan_.weights[l].parts, plan_.leaving);
}

std::string Writer::update(size_t l) const {
  return fmt::format("{}{{{}, kOptimizer, &rates, {}, {}}}", update_type(l), weights_[l],
                     stores(l) ? of("g", l) : "nullptr",
                     net_.norm != nullptr ? "&squares" : "nullptr");
}

std::string Writer::bias_update(size_t l) {
  const NetLayer& layer = net_.layers[l];
  const bool stores = net_.norm != nullptr;
  const Value m = net_.adam() ? layer.adam_b->m : layer.sgd_b->m;
  const Value v = net_.adam() ? layer.adam_b->v : Value{};
  return fmt::format(
      "BiasUpdate<M, Kept, Optimizer, {}, kTransposedLd, {}, {}>{{{{b{}, {}, {}}}, {}, kOptimizer, "
      "&rates, "
      "{}, {}}}",
      width(l), (net_.batch() + chunk() - 1) / chunk(), stores, l, pointer(m, "Value"),
      pointer(v, "Value"), of("d", l, "t"), stores ? of("gb", l) : "nullptr",
      stores ? "&squares" : "nullptr");
}

void Writer::gradients() {
  line("// Gradients of weights{}.", net_.norm != nullptr   ? ""
                                     : plan_.late_updates() ? ", most of them in parts"
                                                            : ", and updates where they are made");
  if (net_.norm != nullptr) line("double squares = 0;");
  int offset = 0;
  if (plan_.takes_tickets) {
    line("Tickets tickets(Places(space).tickets(), taken, block, kBlocks);");
  }
  for (size_t l = 0; l < layers_; ++l) {
    const ProductPlan& p = plan_.weights[l];
    open("");
    phase();
    const std::string order = plan_.takes_tickets
                                  ? "tickets"
                                  : fmt::format("(block + {}) % kBlocks, kBlocks",
                                                (plan_.blocks - offset) % plan_.blocks);
    line("{}::run({}, {}, {}, sums,", grid(p, transposed_ld(), transposed_ld(), true),
         of("d", l, "t"), input_transposed(l), order);
    line("    {});", update(l));
    close();
    if (scratch_bytes(p, math()) > 0) line("__syncthreads();");
    offset = (offset + p.tiles) % plan_.blocks;
  }
  if (convolves()) conv_gradients(offset);
  phase();
  // Biases go to the last blocks first, because these most likely have no tile.
  line("const int warp = warp_of(), spare = (kBlocks - 1 - block) * kWarps + kWarps - 1 - warp;");
  int biases = 0;
  for (size_t l = 0; l < layers_; ++l) biases += net_.layers[l].linear->b ? bias_tasks(l) : 0;
  for_biases([&](size_t l, int first) {
    line("{}.run((spare + {}) % (kBlocks * kWarps), kBlocks * kWarps);", bias_update(l), first);
  });
  for_norms([&](size_t l, int first) {
    line("{}.run((spare + {}) % (kBlocks * kWarps), kBlocks * kWarps);", norm_update(l), first);
    biases += norm_tasks(l);
  });
  line("if (spare == {} % (kBlocks * kWarps)) {{", up(biases, kWarps));
  line(
      "  write_score(at.scores(), kStrips, {}, loss + begin + t, correct == nullptr ? nullptr : "
      "correct + begin + t);",
      number(net_.scale()));
  line("}}");
  if (net_.norm != nullptr) clip();
  if (net_.norm != nullptr || plan_.late_updates()) late_updates();
  sync(convolves() ? std::vector<std::string>{"if (t + 1 < args.steps) unfold_images();"}
                   : std::vector<std::string>{});
}

int Writer::bias_tasks(size_t l) const {
  const int64_t chunks = (net_.batch() + chunk() - 1) / chunk();
  const int64_t lanes = chunks <= 4 ? 4 : chunks <= 8 ? 8 : chunks <= 16 ? 16 : 32;
  return int((width(l) * lanes + 31) / 32);
}

void Writer::clip() {
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
  line("if (scale_to != nullptr) *scale_to = loss_scale, *good_to = good, *skipped_to = skipped;");
  close();
  close();
  line("__syncthreads();");
}

void Writer::late_updates() {
  if (net_.norm == nullptr) {
    line("// Updates by the sums of the parts.");
    sync();
  }
  const int warps = plan_.blocks * kWarps;
  int offset = 0;
  for (size_t l = 0; l < layers_; ++l) {
    if (!stores(l)) continue;
    line("{}.finish((warp * kBlocks + block + {}) % (kBlocks * kWarps), kBlocks * kWarps);",
         update(l), (warps - offset) % warps);
    offset = (offset + units(width(l)) * units(net_.layers[l].in())) % warps;
  }
  if (net_.norm == nullptr) return;
  for_biases([&](size_t l, int first) {
    line("{}.finish((spare + {}) % (kBlocks * kWarps), kBlocks * kWarps);", bias_update(l), first);
  });
  for_norms([&](size_t l, int first) {
    line("{}.finish((spare + {}) % (kBlocks * kWarps), kBlocks * kWarps);", norm_update(l), first);
  });
}

}  // namespace ridgeline::cuda::generate
