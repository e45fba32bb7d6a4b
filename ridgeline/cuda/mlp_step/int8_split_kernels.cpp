#include "ridgeline/cuda/mlp_step/int8_split_kernels.h"

#include "ridgeline/cuda/int8_split/int8_split.h"
#include "ridgeline/cuda/mlp_step/u8_step.h"
#include "ridgeline/cuda/mlp_step/whole_step.h"

namespace ridgeline::cuda {
namespace {

std::string refuse(const RemainingOps& rest, const MlpStepOps& step) {
  const Precision precision = rest.program.precision;
  if (precision == Precision::tf32) return "is for fp32 and fp64";
  if (std::string reason = refuse_u8_step(step); !reason.empty()) return reason;
  const DType dtype = step.inputs->y.dtype;
  if (dtype != DType::fp32 && dtype != DType::fp64) return "takes fp32 and fp64 only";
  const Linear& op = *step.layers[0].linear;
  if (op.n() > kInt8SplitMostTerms || op.in() > kInt8SplitMostTerms) {
    return fmt::format("takes up to {} samples and inputs", kInt8SplitMostTerms);
  }
  return refuse_large({op.n(), op.in(), 8 * op.out()});
}

// Offsets in the workspace.
template <typename T>
struct Int8SplitLayout : StepLayout {
  explicit Int8SplitLayout(const MlpStepOps& step) {
    const Linear &op = *step.layers[0].linear, &top = *step.layers[1].linear;
    const size_t n = size_t(op.n()), in = size_t(op.in()), out = size_t(op.out());
    const size_t rows = size_t(int8_split_rows(op.out(), kDigits<T>));
    rate = take(sizeof(Int8SplitRate));
    x = take(n * size_t(int8_split_pitch(op.in())));
    x_transposed = take(in * size_t(int8_split_pitch(op.n())));
    w = take(rows * size_t(int8_split_pitch(op.in())));
    w_up = take(out * sizeof(T));
    w_sums = take(rows * sizeof(int));
    dz_sums = take(rows * sizeof(int));
    most = take(out * sizeof(OrderedBits<T>));
    h = take(n * out * sizeof(T));
    dz = take(n * out * sizeof(T));
    dz_digits = take(rows * size_t(int8_split_pitch(op.n())));
    dz_up = take(out * sizeof(T));
    label = take(n * sizeof(int32_t));
    head = head_layout(int(n), int(out), int(top.out()), sizeof(T));
    sums = take(size_t(head.parts) * size_t(head.sums(int(out), int(top.out()))) * sizeof(T));
    loss = take(size_t(head.parts) * sizeof(double));
    correct = take(size_t(head.parts) * sizeof(int32_t));
  }
  size_t rate, x, x_transposed, w, w_up, w_sums, dz_sums, most, h, dz, dz_digits, dz_up, label,
      sums, loss, correct;
};

template <typename T>
class MlpInt8SplitStep final : public MlpWholeStep {
 public:
  MlpInt8SplitStep(const MlpStepOps& step, const Binding& binding)
      : MlpWholeStep(step, 1, binding), layout_(step) {
    const MlpStepOps::Layer& first = step.layers[0];
    const Linear& op = *first.linear;
    const int n = int(op.n()), in = int(op.in()), out = int(op.out());
    const T scale = T(step.inputs->scale);
    const int center = center_of(*step.inputs);
    bind_prepare(step, binding);
    forward_ = int8_split_linear<T>({n, in, out, at<uint8_t>(layout_.x), at<int8_t>(layout_.w),
                                     at<T>(layout_.w_up), at<int>(layout_.w_sums),
                                     binding.read(op.b).as<T>(), at<T>(layout_.h), scale, center,
                                     activation_of(first.activation->kind)});
    head_ = bind_head<T>(step, layout_.head,
                         {.h = at<T>(layout_.h),
                          .label = at<int32_t>(layout_.label),
                          .dz = at<T>(layout_.dz),
                          .dz_most = at<OrderedBits<T>>(layout_.most),
                          .partial = at<T>(layout_.sums),
                          .loss = at<double>(layout_.loss),
                          .correct = at<int32_t>(layout_.correct)},
                         binding);
    sums_ = bind_head_sums(step, layout_.head, head_, binding);
    split_ = {at<T>(layout_.dz),
              at<OrderedBits<T>>(layout_.most),
              at<int8_t>(layout_.dz_digits),
              at<T>(layout_.dz_up),
              center != 0 ? at<int>(layout_.dz_sums) : nullptr,
              n,
              out};
    SgdSettings sgd = sgd_settings(*first.sgd_w, binding);
    prepare_.lr = sgd.lr;
    prepare_.rate = at<Int8SplitRate>(layout_.rate);
    sgd.lr = &prepare_.rate->lr, sgd.tick = &prepare_.rate->tick;
    backward_ = int8_split_grad_w<T>(
        {n, in, out, at<uint8_t>(layout_.x_transposed), at<int8_t>(layout_.dz_digits),
         at<T>(layout_.dz_up), at<int>(layout_.dz_sums),
         binding.write(first.sgd_w->w).template as<T>(),
         binding.write(first.sgd_w->m).template as<T>(), scale, center, sgd, true});
    end_ = {binding.write(step.tick->tick).as<int32_t>(), counters()};
  }

  void run() override {
    check(launch_int8_split_prepare(prepare_, stream()), what());
    check(forward_(stream()), what());
    check(launch_head(head_, layout_.head, stream()), what());
    check(launch_int8_split_gradient(split_, stream()), what());
    // The sums and the tick come before the gradient, which needs neither and runs concurrently
    // with them.
    check(launch_head_sums(sums_, end_, layout_.head, stream()), what());
    check(backward_(stream()), what());
  }

 private:
  void bind_prepare(const MlpStepOps& step, const Binding& binding) {
    const Linear& op = *step.layers[0].linear;
    prepare_.gather = bind_gather(step, layout_.label, binding);
    prepare_.w = binding.read(op.w).template as<T>();
    prepare_.x = at<uint8_t>(layout_.x);
    prepare_.x_transposed = at<uint8_t>(layout_.x_transposed);
    prepare_.w_digits = at<int8_t>(layout_.w);
    prepare_.w_up = at<T>(layout_.w_up);
    prepare_.w_sums = at<int>(layout_.w_sums);
    prepare_.dz_sums = at<int>(layout_.dz_sums);
    prepare_.most = at<OrderedBits<T>>(layout_.most);
    prepare_.in = int(op.in());
    prepare_.out = int(op.out());
  }

  Int8SplitLayout<T> layout_;
  Int8SplitPrepare<T> prepare_{};
  Int8SplitProduct forward_, backward_;
  Int8SplitGradient<T> split_{};
  HeadArgs<T> head_{};
  HeadSums<T> sums_{};
  StepEnd end_;
};

Cover covers(const RemainingOps& rest) {
  const MlpStepOps step = match_mlp_step(rest);
  if (std::string reason = refuse(rest, step); !reason.empty()) return Cover::no(reason);
  return step.inputs->y.dtype == DType::fp64 ? step_cover(step, Int8SplitLayout<double>(step))
                                             : step_cover(step, Int8SplitLayout<float>(step));
}

std::unique_ptr<Step> prepare(const Span& span, const Binding& binding) {
  const MlpStepOps step = match_mlp_step({span.program, span.begin, binding.runtime()});
  if (step.inputs->y.dtype == DType::fp64) {
    return std::make_unique<MlpInt8SplitStep<double>>(step, binding);
  }
  return std::make_unique<MlpInt8SplitStep<float>>(step, binding);
}

}  // namespace

KernelTable mlp_int8_split_kernels() {
  return {cuda_kernel("cuda.mlp_step.int8_split", covers, prepare,
                      {.precisions = {Precision::fp64, Precision::fp32, Precision::fp32x3},
                       .least_arch = 90,
                       .only_arch = true})};
}

}  // namespace ridgeline::cuda
