#include <bit>

#include "ridgeline/cuda/generate/writer.h"

// Convolutions: a block keeps the images of its samples in shared memory and takes them through all
// convolutions below the linear layers and, with the gradient that those leave, back. Barriers are
// needed only for the statistics of normalisations and before the sums of weights' gradients.
namespace ridgeline::cuda::generate {

void Writer::lay_out_convolutions() {
  const size_t count = net_.convolutions.size();
  for (size_t l = 0; l < count; ++l) {
    const ConvPlan& p = plan_.convolutions[l];
    numbers(fmt::format("cw{}", l), p.out.c, p.forward_ld(math()));
    if (p.back)
      space("Number", fmt::format("cwt{}", l), p.backward_values(math()), number_bytes(math()));
  }
  if (convolves()) numbers("dx", net_.batch(), depth(net_.layers[0].in()));
  zero_to_ = size_t(up(int64_t(space_.end()), 256));
  if (!convolves()) return;
  const int64_t value = value_bytes(math()), number = number_bytes(math());
  const int64_t blocks = std::min<int64_t>(net_.batch(), plan_.blocks);
  const int64_t samples = (net_.batch() + plan_.blocks - 1) / plan_.blocks;
  for (size_t l = 0; l < count; ++l) {
    const ConvPlan& p = plan_.convolutions[l];
    space("Value", fmt::format("cg{}", l), blocks * p.part(), value);
    if (net_.convolutions[l].norm) {
      space("Value", fmt::format("cm{}", l), blocks * 2 * p.out_channels(), value);
      space("Value", fmt::format("cs{}", l), blocks * 2 * p.out_channels(), value);
    }
    in_shared("Number", fmt::format("cx{}", l), samples * p.x_size(), number);
    in_shared("Number", fmt::format("cz{}", l), samples * p.z_size(), number);
    if (p.staged) {
      in_shared("Number", fmt::format("sw{}", l), up(p.out.c, 16) * p.forward_ld(math()), number);
      if (p.back) {
        in_shared("Number", fmt::format("swt{}", l), p.backward_values(math()), number);
      }
    }
    in_shared("u8", fmt::format("places{}", l), samples * place_bytes(net_.convolutions[l]), 1);
    in_shared("int", fmt::format("forward_offsets{}", l), p.forward_ld(math()) * number / 16, 4);
    in_shared("int", fmt::format("back_offsets{}", l),
              p.backward_values(math()) / up(p.in.c, 16) * number / 16, 4);
    in_shared("Value", fmt::format("of_channels{}", l), 7 * p.out_channels(), value);
  }
  in_shared("Number", fmt::format("cx{}", count), samples * flat_image(net_).size(), number);
  in_shared("Number", "zeros", 16 / number, number);
  const bool bytes = net_.inputs->set.dtype == DType::uint8;
  in_shared(bytes ? "u8" : "float", "room", samples * net_.inputs->y.shape.numel() / net_.batch(),
            bytes ? 1 : 4);
}

void Writer::conv_types() {
  if (!convolves()) return;
  const int64_t in = net_.layers[0].in();
  line("using Convolved = Layer<ActivationFn::none, {}, {}, {}, false, false, 0>;", in, depth(in),
       up(in, 16));
  const FlatImage flat = flat_image(net_);
  const size_t count = net_.convolutions.size();
  line("using C{} = Flat<{}, {}, {}, {}>;", count, flat.image.c, flat.image.h, flat.image.w,
       flat.ld);
  for (size_t l = count; l-- > 0;) {
    const ConvPlan& p = plan_.convolutions[l];
    const MlpStepOps::Convolution& layer = net_.convolutions[l];
    const auto& [h, w] = p.window;
    line("using C{} = Conv<{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}>;", l,
         p.in.c, p.in.h, p.in.w, p.out.c, p.out.h, p.out.w, h.kernel, w.kernel, h.stride, w.stride,
         h.pad, w.pad, p.back, p.x_ld, p.z_ld, p.group);
    const double parameter = layer.activation != nullptr ? layer.activation->parameter : 0;
    const bool pools = layer.pool != nullptr;
    line(
        "using T{0} = ConvTail<M, C{0}, C{1}, {2}, {3}, ActivationFn::{4}, {5}ll, {6}, {7}, "
        "kBatch, kBlocks>;",
        l, l + 1, bool(layer.norm), bool(layer.conv->b),
        layer.activation != nullptr ? name(layer.activation->kind) : "none",
        std::bit_cast<int64_t>(parameter), pools ? layer.pool->shape.window.h.kernel : 1,
        pools ? layer.pool->shape.window.w.kernel : 1);
    line("using U{0} = ConvUpdate<M, Kept, Copy, Optimizer, C{0}, T{0}::kParts>;", l);
  }
}

void Writer::conv_pointers() {
  const char* kept = "Kept";
  for (size_t l = 0; l < net_.convolutions.size(); ++l) {
    const MlpStepOps::Convolution& layer = net_.convolutions[l];
    line("const T{0}::Params channels{0}{{of_channels{0}}};", l);
    if (!layer.norm) continue;
    const BatchNorm& op = *layer.norm.batch;
    const char *mean = type_name(op.running_mean.dtype), *var = type_name(op.running_var.dtype);
    line("Kept* const conv_gamma{} = {};", l, pointer(op.gamma, kept));
    line("Kept* const conv_beta{} = {};", l, pointer(op.beta, kept));
    line("{0}* const conv_mean{1} = {2};", mean, l, pointer(op.running_mean, mean));
    line("{0}* const conv_var{1} = {2};", var, l, pointer(op.running_var, var));
    line("i64* const conv_batches{} = {};", l, pointer(op.batches, "i64"));
    line("const auto conv_keep{} = [&](int channel, Value mean, Value var) {{", l);
    line("  if (block != kBlocks - 1) return;");
    line("  run_on(conv_mean{} + channel, mean, {});", l, number(op.momentum));
    line("  run_on(conv_var{} + channel, var * Value({}), {});", l,
         number(double(op.count()) / double(op.count() - 1)), number(op.momentum));
    line("  if (channel == 0) *conv_batches{} += 1;", l);
    line("}};");
  }
  line("const int images = samples_of<kBatch, kBlocks>(block);");
  const Conv2dShape& shape = net_.convolutions[0].conv->shape;
  const auto& [h, w] = shape.window;
  line("const auto fetch_images = [&](i64 t) {{");
  line("  for (int i = 0; i < images; ++i) {{");
  line("    const i64 sample = order[first + (begin + t) * kBatch + block + i * kBlocks];");
  const int64_t size = shape.in.numel();
  if (const GatherAugment* op = net_.augment; op != nullptr) {
    line("    const u64 stream = {}ull + u64(*{});", streams::kAugment, pointer(op->epoch, "i64"));
    line("    const Augment how = augment_of({}ull, stream, u64(sample), {}, {});", op->how.seed,
         op->how.shift, op->how.flip);
    line("    fetch_augmented<{}, {}, {}>(set + sample * {}, how, room + i * {});", op->in.c,
         op->in.h, op->in.w, size, size);
  } else {
    line("    fetch_sample<{0}>(set + sample * {0}, room + i * {0});", size);
  }
  line("  }}");
  line("}};");
  line("const auto unfold_images = [&] {{");
  line("  for (int i = 0; i < images; ++i) {{");
  line("    unfold<M, C0, {}, {}, {}, {}, {}, {}, {}, {}, {}>(", shape.in.c, shape.in.h, shape.in.w,
       h.kernel, w.kernel, h.stride, w.stride, h.pad, w.pad);
  line("        room + i * {}, {}, {}, cx0 + i * C0::kXSize);", shape.in.numel(),
       number(net_.inputs->scale), number(net_.inputs->shift));
  line("  }}");
  line("}};");
}

// The ConvUpdate of convolution l.
std::string Writer::conv_update(size_t l) {
  const MlpStepOps::Convolution& layer = net_.convolutions[l];
  const auto tensor = [&](const SgdUpdate* sgd, const AdamUpdate* adam) {
    const Value w = adam != nullptr ? adam->w : sgd != nullptr ? sgd->w : Value{};
    const Value m = adam != nullptr ? adam->m : sgd != nullptr ? sgd->m : Value{};
    const Value v = adam != nullptr ? adam->v : Value{};
    return fmt::format("{{{}, {}, {}}}", pointer(w, "Kept"), pointer(m, "Value"),
                       pointer(v, "Value"));
  };
  const Value copy = layer.adam_w != nullptr ? layer.adam_w->copy : layer.sgd_w->copy;
  return fmt::format("U{}{{{}, {}, {}, {}, {}}}", l, tensor(layer.sgd_w, layer.adam_w),
                     tensor(layer.sgd_b, layer.adam_b), pointer(copy, "Copy"), of("cw", l),
                     plan_.convolutions[l].back ? of("cwt", l) : "nullptr");
}

void Writer::begin_convolutions() {
  for (size_t l = 0; l < net_.convolutions.size(); ++l) {
    line("fill_forward_offsets<M, C{0}>(forward_offsets{0});", l);
    line("fill_backward_offsets<M, C{0}>(back_offsets{0});", l);
    line("{}.take(thread, kBlocks * kThreads);", conv_update(l));
  }
  line("fetch_images(0);");
  line("__syncthreads();");
  line("unfold_images();");
}

// The image `name` of convolution l for sample i of the block.
std::string Writer::images(const char* name, size_t l) const {
  return fmt::format("{0}{1} + i * C{1}::{2}", name, l,
                     std::string(name) == "cx" ? "kXSize" : "kZSize");
}
void Writer::for_images(const std::string& what) {
  line("for (int i = 0; i < images; ++i) {{");
  line("  {}", what);
  line("}}");
}

void Writer::conv_forward() {
  const size_t count = net_.convolutions.size();
  open("");
  phase();
  for (size_t l = 0; l < count; ++l) {
    const MlpStepOps::Convolution& layer = net_.convolutions[l];
    line("const auto held{0} = T{0}::Params::fetch<Kept>(C{0}::kOut, {1}, {2}, {3});", l,
         pointer(layer.conv->b, "Kept"), layer.norm ? fmt::format("conv_gamma{}", l) : "nullptr",
         layer.norm ? fmt::format("conv_beta{}", l) : "nullptr");
    const ConvPlan& p = plan_.convolutions[l];
    if (!p.staged) continue;
    line("copy_operands(sw{}, {}, {});", l, of("cw", l), up(p.out.c, 16) * p.forward_ld(math()));
    if (!p.back) continue;
    line("copy_operands(swt{}, {}, {});", l, of("cwt", l), p.backward_values(math()));
  }
  for (size_t l = 0; l < count; ++l) line("channels{0}.put(held{0});", l);
  line("wait_for_operands();");
  line("__syncthreads();");
  for (size_t l = 0; l < count; ++l) {
    const ConvPlan& p = plan_.convolutions[l];
    const MlpStepOps::Convolution& layer = net_.convolutions[l];
    line("// Convolution {}: {} channels of {} x {} -> {} of {} x {}.", l, p.in.c, p.in.h, p.in.w,
         p.out.c, p.out.h, p.out.w);
    for_images(
        fmt::format("ConvForward<M, C{0}, {1}, {2}, {3}>::run({4}, {5}, forward_offsets{0}, "
                    "StoreOutputs<M, C{0}>{{channels{0}.bias(), {6}}});",
                    l, p.forward.mt, p.forward.nt, p.forward.ring, images("cx", l),
                    p.staged ? fmt::format("sw{}", l) : of("cw", l), images("cz", l)));
    line("__syncthreads();");
    if (layer.norm) {
      line("if (images > 0) T{0}::moments(cz{0}, images, {1} + block * 2 * C{0}::kOutP, {2});", l,
           of("cm", l), "reinterpret_cast<Value*>(sums)");
      close();
      sync();
      open("");
      phase();
      line("T{0}::statistics({1}, channels{0}, {2}, reinterpret_cast<Value*>(sums), conv_keep{0});",
           l, of("cm", l), number(layer.norm.epsilon()));
    }
    line("// What follows convolution {}.", l);
    for_images(fmt::format("T{0}::forward({1}, channels{0}, {2}, places{0} + i * T{0}::kPlaces);",
                           l, images("cz", l), images("cx", l + 1)));
    line("__syncthreads();");
  }
  for_images(fmt::format("C{}::store<Number, {}>({}, {}, block + i * kBlocks);", count,
                         depth(net_.layers[0].in()), images("cx", count), of("x")));
  close();
  if (plan_.chain > 0) sync();  // the strips make the barrier that precedes them
}

// What blocks do that have no strip, or after it: transposes the linear layers' input, which only
// the gradients of weights read so, and fetches the next images.
void Writer::convolve_meanwhile() {
  const int64_t features = net_.layers[0].in();
  const bool apart = plan_.strips * 4 <= plan_.blocks * 3;
  line("{}C{}::transpose<Number, kBatch, {}, kTransposedLd>(at.x(), at.xt(),",
       apart ? "if (block >= kStrips) " : "", net_.convolutions.size(), depth(features));
  line("    (block - {0}) * kWarps + warp_of(), (kBlocks - {0}) * kWarps);",
       apart ? "kStrips" : "0");
  line("if (t + 1 < args.steps) fetch_images(t + 1);");
}

void Writer::conv_backward() {
  const size_t count = net_.convolutions.size();
  const std::string scratch = "reinterpret_cast<Value*>(sums)";
  open("");
  phase();
  for_images(fmt::format("C{}::load<Number, {}>({}, block + i * kBlocks, {});", count,
                         depth(net_.layers[0].in()), of("dx"), images("cx", count)));
  line("__syncthreads();");
  for (size_t l = count; l-- > 0;) {
    const ConvPlan& p = plan_.convolutions[l];
    const MlpStepOps::Convolution& layer = net_.convolutions[l];
    if (layer.norm) {
      line("// Sums for the gradient through normalisation {}.", l);
      line("if (images > 0) {{");
      line(
          "  T{0}::sums(cz{0}, cx{1}, places{0}, images, channels{0}, {2} + block * 2 * "
          "C{0}::kOutP, {3});",
          l, l + 1, of("cs", l), scratch);
      line("}}");
      close();
      sync();
      open("");
      phase();
      line("T{0}::total({1}, channels{0}, {2});", l, of("cs", l), scratch);
    }
    line("// Gradients of convolution {}.", l);
    line("Value bias{}[1][4] = {{}};", l);
    for_images(
        fmt::format("T{0}::backward({1}, {2}, places{0} + i * T{0}::kPlaces, channels{0}, "
                    "bias{0});",
                    l, images("cz", l), images("cx", l + 1)));
    line("__syncthreads();");
    open("if (images > 0)");
    line("Value* const part = {} + i64(block) * U{}::kPart;", of("cg", l), l);
    if (layer.conv->b) {
      line("channel_sums<C{0}::kOutP, 1>(bias{0}, part + C{0}::kOut * C{0}::kWeights, {1});", l,
           scratch);
      line("__syncthreads();");
    }
    line("ConvGradient<M, C{0}, {1}, {2}, {3}>::run(cz{0}, cx{0}, images, zeros, part, sums);", l,
         p.gradient.mt, p.gradient.nt, p.gradient.split);
    close();
    line("__syncthreads();");
    if (!p.back) continue;
    for (int64_t k = 0; k < p.classes(); ++k) {
      for_images(
          fmt::format("ConvBackward<M, C{}, {}, {}, {}, {}>::run({}, {}, back_offsets{}, {});", l,
                      k, p.backward.mt, p.backward.nt, p.backward.ring, images("cz", l),
                      p.staged ? fmt::format("swt{}", l) : of("cwt", l), l, images("cx", l)));
    }
    line("__syncthreads();");
  }
  close();
  sync_with_rates();
}

// Updates by the sums of the blocks' gradients; `offset`: the blocks that have other work.
void Writer::conv_gradients(int offset) {
  const std::string scratch = "reinterpret_cast<Value*>(sums)";
  line("// Updates of convolutions.");
  for (size_t l = 0; l < net_.convolutions.size(); ++l) {
    const ConvPlan& p = plan_.convolutions[l];
    const MlpStepOps::Norm& norm = net_.convolutions[l].norm;
    open("");
    phase();
    line("{}.run({}, (block + {}) % kBlocks, kBlocks, kOptimizer, rates, {});", conv_update(l),
         of("cg", l), (plan_.blocks - offset) % plan_.blocks, scratch);
    close();
    offset = (offset + int(p.part() / ConvPlan::kTask)) % plan_.blocks;
    if (!norm || !norm.gamma()) continue;
    open(fmt::format("if (block == kBlocks - 1 - {} % kBlocks && int(threadIdx.x) < C{}::kOut)", l,
                     l));
    line("const int channel = int(threadIdx.x);");
    const auto update = [&](const char* name, const char* sum, const SgdUpdate* sgd,
                            const AdamUpdate* adam) {
      const Value m = adam != nullptr ? adam->m : sgd->m;
      const Value v = adam != nullptr ? adam->v : Value{};
      line("const Tensor<M, Kept, Optimizer> {0}{{conv_{0}{1}, {2}, {3}}};", name, l,
           pointer(m, "Value"), pointer(v, "Value"));
      line("{0}.apply(channel, channels{1}.{2}()[channel], {0}.fetch(channel), kOptimizer, rates);",
           name, l, sum);
    };
    update("gamma", "along", norm.sgd_gamma, norm.adam_gamma);
    update("beta", "off", norm.sgd_beta, norm.adam_beta);
    close();
  }
}

}  // namespace ridgeline::cuda::generate
