#include "ridgeline/cuda/mlp_step/fp16_split_u8_kernels.h"

#include "ridgeline/cuda/gemm/fp16_split_u8_products.h"
#include "ridgeline/cuda/mlp_step/u8_step.h"
#include "ridgeline/cuda/mlp_step/whole_step.h"

namespace ridgeline::cuda {
namespace {

// How many fp16 values represent an fp32 value: one keeps 11 bits, like tf32; two keep 22, like
// fp32x3.
int terms_of(Precision precision) { return precision == Precision::fp32x3 ? 2 : 1; }

std::string refuse(const RemainingOps& rest, const MlpStepOps& step) {
  const Precision precision = rest.program.precision;
  if (precision != Precision::tf32 && precision != Precision::fp32x3) {
    return "takes tf32 and fp32x3 only";
  }
  if (std::string reason = refuse_u8_step(step); !reason.empty()) return reason;
  if (step.inputs->y.dtype != DType::fp32) return "takes fp32 only";
  const Linear& op = *step.layers[0].linear;
  if (op.in() % 8 != 0 || op.out() % 8 != 0) return "takes widths in eights";
  return refuse_large({3 * op.n(), 3 * op.in(), op.out()});
}

// Offsets in the workspace.
struct Fp16SplitLayout : StepLayout {
  Fp16SplitLayout(const MlpStepOps& step, Precision precision) : terms(terms_of(precision)) {
    const Linear &op = *step.layers[0].linear, &top = *step.layers[1].linear;
    const size_t n = size_t(op.n()), in = size_t(op.in()), out = size_t(op.out());
    scalars = take(sizeof(Fp16SplitScalars));
    x = take(n * in * size_t(terms) * 2);
    w = take(out * in * size_t(terms) * 2);
    w_power = take(out * sizeof(float));
    dz = take(n * out * size_t(terms) * 2);
    dz_power = take(out * sizeof(float));
    h = take(n * out * 4);
    label = take(n * sizeof(int32_t));
    head = head_layout(int(n), int(out), int(top.out()), sizeof(float));
    sums = take(size_t(head.parts) * size_t(head.sums(int(out), int(top.out()))) * 4);
    loss = take(size_t(head.parts) * sizeof(double));
    correct = take(size_t(head.parts) * sizeof(int32_t));
  }
  int terms;
  size_t scalars, x, w, w_power, dz, dz_power, h, label, sums, loss, correct;
};

Cover covers(const RemainingOps& rest) {
  const MlpStepOps step = match_mlp_step(rest);
  if (std::string reason = refuse(rest, step); !reason.empty()) return Cover::no(reason);
  return step_cover(step, Fp16SplitLayout(step, rest.program.precision));
}

class MlpFp16SplitStep final : public MlpWholeStep {
 public:
  MlpFp16SplitStep(const MlpStepOps& step, const Fp16SplitLayout& layout, const Binding& binding)
      : MlpWholeStep(step, 1, binding), layout_(layout) {
    const MlpStepOps::Layer& first = step.layers[0];
    const Linear& op = *first.linear;
    const int n = int(op.n()), in = int(op.in()), out = int(op.out());
    bind_prepare(step, binding);
    const auto best = [&](std::vector<PreparedGemm> list) {
      if (list.empty()) throw_error(ErrorKind::device, "{}: no product takes it", what());
      return std::move(list.front().run);
    };
    forward_ = best(fp16_split_linear_gemms(
        {n, in, out, layout_.terms, at<void>(layout_.x), at<void>(layout_.w),
         at<float>(layout_.w_power), binding.read(op.b).as<float>(), at<float>(layout_.h),
         float(step.inputs->scale), activation_of(first.activation->kind)}));
    head_ = bind_head<float>(step, layout_.head,
                             {.h = at<float>(layout_.h),
                              .label = at<int32_t>(layout_.label),
                              .dz_terms = at<void>(layout_.dz),
                              .dz_power = at<float>(layout_.dz_power),
                              .terms = layout_.terms,
                              .partial = at<float>(layout_.sums),
                              .loss = at<double>(layout_.loss),
                              .correct = at<int32_t>(layout_.correct)},
                             binding);
    sums_ = bind_head_sums(step, layout_.head, head_, binding);
    backward_ = best(fp16_split_grad_w_gemms(
        {n, in, out, layout_.terms, at<void>(layout_.x), at<void>(layout_.dz),
         at<float>(layout_.dz_power), binding.write(first.sgd_w->w).as<float>(),
         binding.write(first.sgd_w->m).as<float>(), at<Fp16SplitScalars>(layout_.scalars), true}));
    end_ = {binding.write(step.tick->tick).as<int32_t>(), counters()};
  }

  void run() override {
    check(launch_fp16_split_prepare(prepare_, stream()), what());
    forward_(stream());
    check(launch_head(head_, layout_.head, stream()), what());
    // The sums and the tick come before the gradient, which needs neither and runs concurrently
    // with them.
    check(launch_head_sums(sums_, end_, layout_.head, stream()), what());
    backward_(stream());
  }

 private:
  void bind_prepare(const MlpStepOps& step, const Binding& binding) {
    const Linear& op = *step.layers[0].linear;
    prepare_.gather = bind_gather(step, layout_.label, binding);
    prepare_.w = binding.read(op.w).as<float>();
    prepare_.x = at<void>(layout_.x);
    prepare_.w_terms = at<void>(layout_.w);
    prepare_.w_power = at<float>(layout_.w_power);
    prepare_.scalars = at<Fp16SplitScalars>(layout_.scalars);
    prepare_.sgd = sgd_settings(*step.layers[0].sgd_w, binding);
    prepare_.in = int(op.in());
    prepare_.out = int(op.out());
    prepare_.terms = layout_.terms;
    prepare_.center = center_of(*step.inputs);
  }

  Fp16SplitLayout layout_;
  Fp16SplitPrepareArgs prepare_{};
  std::function<void(cudaStream_t)> forward_, backward_;
  HeadArgs<float> head_{};
  HeadSums<float> sums_{};
  StepEnd end_;
};

std::unique_ptr<Step> prepare(const Span& span, const Binding& binding) {
  const MlpStepOps step = match_mlp_step({span.program, span.begin, binding.runtime()});
  return std::make_unique<MlpFp16SplitStep>(step, Fp16SplitLayout(step, span.program.precision),
                                            binding);
}

}  // namespace

KernelTable mlp_fp16_split_u8_kernels() {
  return {cuda_kernel(
      "cuda.mlp_step.fp16_split_u8", covers, prepare,
      {.precisions = {Precision::tf32, Precision::fp32x3}, .least_arch = 90, .only_arch = true})};
}

}  // namespace ridgeline::cuda
