#include "ridgeline/cuda/population/kernels.h"

#include "ridgeline/cuda/kernel.h"
#include "ridgeline/cuda/population/group.h"
#include "ridgeline/plan/mlp_step.h"

namespace ridgeline::cuda {
namespace {

MlpStepOps match(const RemainingOps& rest) { return match_mlp_step(rest, {.adam = true}); }

std::string refuse_types(const MlpStepOps::Layer& layer, DType dtype, bool copies) {
  const Value w = layer.adam_w != nullptr ? layer.adam_w->w : layer.sgd_w->w;
  const Value b = layer.adam_b != nullptr ? layer.adam_b->w : layer.sgd_b->w;
  const Value copy = layer.adam_w != nullptr ? layer.adam_w->copy : layer.sgd_w->copy;
  const DType kept = copies ? DType::fp32 : dtype;
  if (layer.linear->w.dtype != dtype || layer.linear->y.dtype != dtype) {
    return "wants all values of one type";
  }
  if (w.dtype != kept || b.dtype != kept || bool(copy) != copies) {
    return "wants weights of the values' type, or in fp32 with copies";
  }
  return {};
}

std::string refuse(const RemainingOps& rest, const MlpStepOps& step) {
  if (!step.refusal.empty()) return step.refusal;
  if (rest.begin != 0 || step.ops != rest.size()) return "covers whole programs only";
  if (step.layers.size() != 2) return "takes one hidden layer";
  if (step.layers[0].activation == nullptr ||
      step.layers[0].activation->kind != ActivationKind::relu) {
    return "takes relu only";
  }
  if (step.xent == nullptr || step.xent->scale != 1.0 / double(step.batch())) {
    return "wants cross-entropy, the mean over its own batch";
  }
  if (step.inputs->shift != 0) return "takes bytes without a shift (data.scale raw or unit)";
  const DType dtype = step.inputs->y.dtype;
  const bool tf32 = dtype == DType::fp32 && rest.program.precision == Precision::tf32;
  if (dtype != DType::bf16 && dtype != DType::fp16 && !tf32)
    return "takes bf16, fp16 and tf32 only";
  for (const MlpStepOps::Layer& layer : step.layers) {
    if (!layer.linear->b) return "wants a bias in every layer";
    if (std::string reason = refuse_types(layer, dtype, step.copies); !reason.empty())
      return reason;
  }
  return {};
}

PopulationShape shape_of(const MlpStepOps& step) {
  PopulationShape shape;
  const Linear &first = *step.layers[0].linear, &last = *step.layers[1].linear;
  shape.inputs = int(first.in());
  shape.hidden = int(first.out());
  shape.classes = int(last.out());
  shape.batch = int(step.batch());
  using Numbers = PopulationNumbers;
  switch (step.inputs->y.dtype) {
    case DType::fp16:
      shape.numbers = step.copies ? Numbers::fp16_masters : Numbers::fp16;
      break;
    case DType::bf16:
      shape.numbers = step.copies ? Numbers::bf16_masters : Numbers::bf16;
      break;
    default:
      shape.numbers = Numbers::tf32;
  }
  if (step.layers[0].adam_w != nullptr) {
    shape.rule = PopulationRule::adam;
  } else if (step.layers[0].sgd_w->momentum != 0) {
    shape.rule = PopulationRule::momentum;
  }
  return shape;
}

MemberLayer bind_layer(const MlpStepOps::Layer& layer, const Binding& binding) {
  MemberLayer to;
  if (layer.adam_w != nullptr) {
    const AdamUpdate &w = *layer.adam_w, &b = *layer.adam_b;
    to.w = binding.write(w.w).data;
    to.b = binding.write(b.w).data;
    to.copy = binding.write(w.copy).data;
    to.m_w = binding.write(w.m).as<float>();
    to.m_b = binding.write(b.m).as<float>();
    to.v_w = binding.write(w.v).as<float>();
    to.v_b = binding.write(b.v).as<float>();
    return to;
  }
  const SgdUpdate &w = *layer.sgd_w, &b = *layer.sgd_b;
  to.w = binding.write(w.w).data;
  to.b = binding.write(b.w).data;
  to.copy = binding.write(w.copy).data;
  if (w.momentum != 0) {
    to.m_w = binding.write(w.m).as<float>();
    to.m_b = binding.write(b.m).as<float>();
  }
  return to;
}

MemberArgs bind(const MlpStepOps& step, const Binding& binding) {
  MemberArgs args;
  args.inputs = binding.read(step.inputs->set).as<uint8_t>();
  args.labels = binding.read(step.targets->set).as<int32_t>();
  args.order = binding.read(step.inputs->order).as<int32_t>();
  args.first = binding.read(step.inputs->first).as<int64_t>();
  args.tick = binding.write(step.tick->tick).as<int32_t>();
  args.loss = binding.write(step.xent->loss).as<double>();
  args.correct = binding.write(step.xent->correct).as<int32_t>();
  args.scale = float(step.inputs->scale);
  for (size_t i = 0; i < 2; ++i) args.layers[i] = bind_layer(step.layers[i], binding);
  if (const AdamUpdate* adam = step.layers[0].adam_w; adam != nullptr) {
    args.lr = binding.read(adam->lr).as<double>();
    args.step = binding.read(step.step).as<int64_t>();
    args.decay = float(adam->weight_decay);
    args.beta1 = adam->beta1;
    args.beta2 = adam->beta2;
    args.epsilon = float(adam->epsilon);
    args.decoupled = adam->decoupled;
    return args;
  }
  const SgdUpdate& sgd = *step.layers[0].sgd_w;
  args.lr = binding.read(sgd.lr).as<double>();
  args.decay = float(sgd.weight_decay);
  args.momentum = float(sgd.momentum);
  args.nesterov = sgd.nesterov;
  return args;
}

Cover covers(const RemainingOps& rest) {
  const MlpStepOps step = match(rest);
  if (std::string reason = refuse(rest, step); !reason.empty()) return Cover::no(reason);
  const PopulationLayout layout = population_layout(shape_of(step), false);
  if (!layout.refusal.empty()) return Cover::no(layout.refusal);
  Cover cover = Cover::of(step.ops);
  cover.skips = step.inside;
  return cover;
}

class PopulationStep final : public Step {
 public:
  PopulationStep(const PopulationShape& shape, const MemberArgs& args, cudaStream_t stream)
      : shape_(shape), layout_(population_layout(shape, false)), args_(args), stream_(stream) {}

  void run() override { run_many(1); }
  void run_many(int64_t count) override {
    args_.steps = int(count);
    // Captures, which the planner makes to measure the kernel, stay on this stream.
    cudaStreamCaptureStatus status{};
    check(cudaStreamIsCapturing(stream_, &status), "the state of a stream");
    PopulationGroup* group = PopulationGroup::current();
    if (group != nullptr && status == cudaStreamCaptureStatusNone) {
      return group->train(shape_, args_, stream_);
    }
    check(train_population(shape_, layout_, nullptr, 1, args_, stream_),
          fmt::format("mlp_train of {} samples, {}-{}-{}", shape_.batch, shape_.inputs,
                      shape_.hidden, shape_.classes));
  }

 private:
  PopulationShape shape_;
  PopulationLayout layout_;
  MemberArgs args_;
  cudaStream_t stream_;
};

std::unique_ptr<Step> prepare(const Span& span, const Binding& binding) {
  const MlpStepOps step = match({span.program, span.begin, binding.runtime()});
  return std::make_unique<PopulationStep>(shape_of(step), bind(step, binding),
                                          cuda_runtime(binding.runtime()).stream());
}

}  // namespace

KernelTable population_kernels() {
  return {cuda_kernel(kPopulationKernel, covers, prepare, kWgmma)};
}

}  // namespace ridgeline::cuda
