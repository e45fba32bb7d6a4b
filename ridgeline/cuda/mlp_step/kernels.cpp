#include "ridgeline/cuda/mlp_step/kernels.h"

#include "ridgeline/cuda/gemm/products.h"
#include "ridgeline/cuda/mlp_step/whole_step.h"
#include "ridgeline/cuda/plain/bind_activation.h"
#include "ridgeline/cuda/plain/elementwise.h"

namespace ridgeline::cuda {
namespace {

std::string refuse(const RemainingOps& rest, const MlpStepOps& step) {
  if (!step.refusal.empty()) return step.refusal;
  const DType dtype = step.inputs->y.dtype;
  if (std::string reason = refuse_tile_type(dtype); !reason.empty()) return reason;
  if (step.layers.size() < 2) return "takes two layers or more";
  if (step.layers.back().linear->out() > kHeadMostClasses) {
    return fmt::format("takes up to {} outputs", kHeadMostClasses);
  }
  Values values;
  for (const ValueId id : step.inside) {
    const Value& value = rest.program.info(id).value;
    if (is_float(value.dtype)) values.push_back(value);
  }
  for (const MlpStepOps::Layer& layer : step.layers) {
    const Linear& op = *layer.linear;
    values.insert(values.end(), {op.w, op.b});
    if (layer.activation != nullptr && !saves_output(layer.activation->kind)) {
      return "takes relu, tanh and sigmoid only";
    }
    if (std::string reason = refuse_large({op.n(), op.in(), op.out()}); !reason.empty()) {
      return reason;
    }
  }
  return refuse_floats(values);
}

// The structure of a step: how each product is computed, and the offsets in the workspace.
struct TileStepLayout : StepLayout {
  TileStepLayout(const MlpStepOps& step, Precision precision) {
    const DType dtype = step.inputs->y.dtype;
    const TileMath math = tile_math(precision, dtype);
    const size_t width = size_of(dtype);
    const int64_t n = step.inputs->y.shape[0], last = int64_t(step.layers.size()) - 1;
    size_t partial = 0;
    const auto choose = [&](TileProduct product, int64_t m, int64_t columns, int64_t k) {
      TileChoice choice = tile_choice(math, product, m, columns, k, 0);
      partial = std::max(partial, choice.workspace);
      counters = std::max(counters, choice.counters);
      return choice;
    };
    x = take(size_t(n * step.layers[0].linear->in()) * width);
    label = take(size_t(n) * sizeof(int32_t));
    for (int64_t l = 0; l < last; ++l) {
      const Linear& op = *step.layers[size_t(l)].linear;
      h.push_back(take(size_t(n * op.out()) * width));
      dz.push_back(take(size_t(n * op.out()) * width));
      forward.push_back(choose(TileProduct::linear, n, op.out(), op.in()));
      grad_x.push_back(choose(TileProduct::grad_x, n, op.in(), op.out()));
      grad_w.push_back(choose(TileProduct::grad_w, op.out(), op.in(), n));
    }
    const Linear& top = *step.layers.back().linear;
    head = head_layout(int(n), int(top.in()), int(top.out()), width);
    const int64_t sums = head.sums(int(top.in()), int(top.out()));
    head_sums = take(size_t(head.parts) * size_t(sums) * width);
    head_loss = take(size_t(head.parts) * sizeof(double));
    head_correct = take(size_t(head.parts) * sizeof(int32_t));
    shared = take(partial);
  }

  size_t x = 0, label = 0, head_sums = 0, head_loss = 0, head_correct = 0, shared = 0;
  std::vector<size_t> h, dz;  // by layer, without the last
  std::vector<TileChoice> forward, grad_x, grad_w;
  int counters = 0;
};

Cover covers(const RemainingOps& rest) {
  const MlpStepOps step = match_mlp_step(rest);
  if (std::string reason = refuse(rest, step); !reason.empty()) return Cover::no(reason);
  return step_cover(step, TileStepLayout(step, rest.program.precision));
}

template <typename T>
class MlpTileStep final : public MlpWholeStep {
 public:
  MlpTileStep(const MlpStepOps& step, const TileStepLayout& layout, Precision precision,
              const Binding& binding)
      : MlpWholeStep(step, layout.counters + 1, binding), layout_(layout) {
    memory_ = {at<std::byte>(layout_.shared), counters() + 1};
    gather_ = bind_gather(step, layout_.label, binding);
    gather_.y = at(layout_.x);
    const size_t last = step.layers.size() - 1;
    const bool tensor =
        precision == Precision::tf32 && cuda_runtime(binding.runtime()).architecture() == 90;
    for (size_t l = 0; l < last; ++l) {
      bind_forward(step.layers[l], l, binding);
      tensor_forward_.emplace_back();
      if (tensor) bind_tensor_forward(step.layers[l], l);
    }
    bind_top(step, binding);
    for (size_t l = last; l-- > 0;) bind_backward(step, l, binding);
  }

  void run() override {
    check(launch_gather<T>(gather_, stream()), what());
    for (size_t l = 0; l < forward_.size(); ++l) {
      if (tensor_forward_[l]) {
        check(tensor_forward_[l](stream()), what());
        continue;
      }
      const TileChoice& choice = layout_.forward[l];
      check(tile_kernels<T>(choice.math).linear(choice, forward_[l], memory_, stream()), what());
    }
    check(launch_head(head_, layout_.head, stream()), what());
    for (size_t l = forward_.size(); l-- > 0;) {
      if (l > 0) {  // before w is updated
        const TileChoice& choice = layout_.grad_x[l];
        check(tile_kernels<T>(choice.math).grad_x(choice, grad_x_[l], memory_, stream()), what());
      }
      const TileChoice& choice = layout_.grad_w[l];
      check(tile_kernels<T>(choice.math).grad_w(choice, grad_w_[l], memory_, stream()), what());
    }
  }

 private:
  template <typename U = T>
  U* at(size_t offset) const {
    return MlpWholeStep::at<U>(offset);
  }
  T* input(size_t layer) const { return at(layer == 0 ? layout_.x : layout_.h[layer - 1]); }

  void bind_forward(const MlpStepOps::Layer& layer, size_t l, const Binding& binding) {
    const Linear& op = *layer.linear;
    forward_.push_back({input(l), binding.read(op.w).template as<T>(),
                        binding.read(op.b).template as<T>(), nullptr, at(layout_.h[l]), int(op.n()),
                        int(op.in()), int(op.out()), activation_of(layer.activation->kind)});
  }

  // The TMA products are faster if they accept the layout: k a multiple of four, and a bias. They
  // support only relu; other activations follow in a launch of their own.
  void bind_tensor_forward(const MlpStepOps::Layer& layer, size_t l) {
    if constexpr (std::is_same_v<T, float>) {
      const LinearArgs<T>& p = forward_[l];
      const bool relu = p.activation == ActivationFn::relu;
      if (p.b == nullptr || p.in % 4 != 0) return;
      auto list = linear_gemms({GemmType::tf32, p.n, p.in, p.out, p.x, p.w, p.b, p.y, relu});
      if (list.empty()) return;
      const ActivationArgs activation = activation_args(*layer.activation);
      tensor_forward_[l] = [p, relu, activation,
                            run = std::move(list.front().run)](cudaStream_t stream) {
        run(stream);
        if (relu) return cudaGetLastError();
        return launch_activation<T>(activation, p.y, p.y, int64_t(p.n) * p.out, stream);
      };
    }
  }

  void bind_top(const MlpStepOps& step, const Binding& binding) {
    head_ = bind_head<T>(step, layout_.head,
                         {.h = input(step.layers.size() - 1),
                          .label = at<int32_t>(layout_.label),
                          .dz = at(layout_.dz.back()),
                          .partial = at(layout_.head_sums),
                          .loss = at<double>(layout_.head_loss),
                          .correct = at<int32_t>(layout_.head_correct)},
                         binding);
    sums_ = bind_head_sums(step, layout_.head, head_, binding);
  }

  // The layer below the head receives its bias gradient from the head; the lowest layer ends the
  // step.
  void bind_backward(const MlpStepOps& step, size_t l, const Binding& binding) {
    const MlpStepOps::Layer& layer = step.layers[l];
    const Linear& op = *layer.linear;
    const bool below_head = l + 2 == step.layers.size();
    grad_x_.resize(forward_.size());
    grad_w_.resize(forward_.size());
    if (l > 0) {
      grad_x_[l] = {at(layout_.dz[l]),     binding.read(op.w).template as<T>(),
                    at(layout_.dz[l - 1]), int(op.n()),
                    int(op.in()),          int(op.out()),
                    at(layout_.h[l - 1]),  activation_of(step.layers[l - 1].activation->kind)};
    }
    LinearGradWArgs<T>& p = grad_w_[l].product;
    p.x = input(l);
    p.dy = at(layout_.dz[l]);
    p.n = int(op.n());
    p.in = int(op.in());
    p.out = int(op.out());
    p.w = binding.write(layer.sgd_w->w).template as<T>();
    p.w_momentum = binding.write(layer.sgd_w->m).template as<T>();
    p.sgd = sgd_settings(*layer.sgd_w, binding);
    if (!below_head && layer.sgd_b != nullptr) {
      p.b = binding.write(layer.sgd_b->w).template as<T>();
      p.b_momentum = binding.write(layer.sgd_b->m).template as<T>();
    }
    if (below_head) grad_w_[l].head = sums_;
    if (l == 0) {
      grad_w_[l].tick = binding.write(step.tick->tick).template as<int32_t>();
      grad_w_[l].done = counters();
    }
  }

  TileStepLayout layout_;
  TileMemory memory_;
  GatherArgs gather_;
  std::vector<LinearArgs<T>> forward_;
  std::vector<std::function<cudaError_t(cudaStream_t)>> tensor_forward_;  // empty: forward_ is used
  HeadArgs<T> head_{};
  HeadSums<T> sums_{};
  std::vector<TileGradXArgs<T>> grad_x_{};
  std::vector<TileGradWArgs<T>> grad_w_{};
};

std::unique_ptr<Step> prepare(const Span& span, const Binding& binding) {
  const MlpStepOps step = match_mlp_step({span.program, span.begin, binding.runtime()});
  const TileStepLayout layout(step, span.program.precision);
  if (step.inputs->y.dtype == DType::fp64) {
    return std::make_unique<MlpTileStep<double>>(step, layout, span.program.precision, binding);
  }
  return std::make_unique<MlpTileStep<float>>(step, layout, span.program.precision, binding);
}

}  // namespace

KernelTable mlp_step_kernels() {
  return {cuda_kernel("cuda.mlp_step.tiles", covers, prepare, kTiles)};
}

}  // namespace ridgeline::cuda
