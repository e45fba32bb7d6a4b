// cpu.conv2d.blocked and its gradients: our own convolutions of oneDNN's blocked images.
#ifdef RIDGELINE_HAVE_ONEDNN

#include "ridgeline/cpu/onednn/blocked_conv.h"

#include "ridgeline/cpu/onednn/kernels.h"

namespace ridgeline::cpu {

using simd::BlockedSums;
using simd::Scratch;

namespace {

int64_t input_floats(const Image& image) {
  return stays_plain(image) ? image.numel() : blocked_floats(image);
}

}  // namespace

std::string refuse_blocked_conv(const Conv2dShape& shape, const Values& values) {
  if (simd::blocked_conv_lanes() != block_size()) return "a block of channels is no vector";
  if (shape.groups != 1) return "takes one group";
  return refuse(values);
}

BlockedSumsPart BlockedSumsPart::forward(const Conv2d& op) {
  BlockedSumsPart part(BlockedSums::forward(op.shape, stays_plain(op.shape.in)));
  part.x_floats_ = input_floats(op.shape.in);
  part.y_floats_ = blocked_floats(op.shape.out());
  return part;
}

BlockedSumsPart BlockedSumsPart::input_grad(const Conv2dGradX& op) {
  BlockedSumsPart part(BlockedSums::input_grad(op.shape));
  part.x_floats_ = blocked_floats(op.shape.out());
  part.y_floats_ = blocked_floats(op.shape.in);
  return part;
}

void BlockedSumsPart::allot(Scratch& scratch, int threads) {
  packed_ = scratch.take<float>(size_t(sums_.weight_floats()));
  padded_.clear();
  for (int t = 0; t < threads; ++t) {
    padded_.push_back(scratch.take<float>(size_t(sums_.source().floats())));
  }
}

void BlockedSumsPart::bind(const float* x, const float* w, const float* b, simd::SimdActivation act,
                           float* y) {
  x_ = x;
  w_ = w;
  b_ = b;
  act_ = act;
  y_ = y;
}

void BlockedSumsPart::begin(int thread, int threads) const {
  std::fill_n(padded_[size_t(thread)], sums_.source().floats(), 0.0f);
  sums_.pack(w_, b_, split(sums_.weight_rows(), thread, threads), packed_);
}

void BlockedSumsPart::image(int thread, int64_t i, const float* x) const {
  float* padded = padded_[size_t(thread)];
  sums_.source().load(x, padded);
  sums_.run(padded, packed_, act_, y_ + i * y_floats_);
}

BlockedWeightGradPart::BlockedWeightGradPart(const Conv2dGradW& op)
    : grad_(op.shape, stays_plain(op.shape.in)), x_floats_(input_floats(op.shape.in)) {}

std::string BlockedWeightGradPart::refuses() const {
  constexpr int64_t kMostFloats = 256 << 10;  // 1 MiB, the second-level cache of a thread
  return grad_.sum_floats() > kMostFloats ? "the sums exceed a thread's cache" : "";
}

void BlockedWeightGradPart::allot(Scratch& scratch, int threads) {
  padded_.clear();
  sums_.clear();
  for (int t = 0; t < threads; ++t) {
    padded_.push_back(scratch.take<float>(size_t(grad_.source().floats())));
    sums_.push_back(scratch.take<float>(size_t(grad_.sum_floats())));
  }
}

void BlockedWeightGradPart::bind(const Conv2dGradW& op, const Binding& binding) {
  x_ = binding.read(op.x).as<float>();
  dw_ = binding.write(op.dw).as<float>();
  db_ = binding.write(op.db).as<float>();
}

void BlockedWeightGradPart::begin(int thread) const {
  std::fill_n(padded_[size_t(thread)], grad_.source().floats(), 0.0f);
  std::fill_n(sums_[size_t(thread)], grad_.sum_floats(), 0.0f);
}

void BlockedWeightGradPart::image(int thread, int64_t i, const float* dy) const {
  float* padded = padded_[size_t(thread)];
  grad_.source().load(x_ + i * x_floats_, padded);
  grad_.add(padded, dy, sums_[size_t(thread)]);
}

void BlockedWeightGradPart::finish(int thread, int threads) const {
  grad_.finish(sums_, split(grad_.rows(), thread, threads), dw_, db_);
}

namespace {

int threads_of(const RemainingOps& rest) { return cpu_runtime(rest.runtime).pool().size(); }

template <typename Part>
size_t workspace_of(Part part, const RemainingOps& rest) {
  Scratch scratch;
  part.allot(scratch, threads_of(rest));
  return scratch.bytes();
}

// Threads take the next image when they finish one, so that a slow core computes fewer.
class SumsStep final : public Step {
 public:
  SumsStep(BlockedSumsPart part, int64_t n, const Binding& binding)
      : part_(std::move(part)), n_(n), pool_(cpu_runtime(binding.runtime()).pool()) {
    Scratch scratch(binding.workspace());
    part_.allot(scratch, pool_.size());
  }
  BlockedSumsPart& part() { return part_; }

  void run() override {
    next_ = 0;
    pool_.run([&](int thread) {
      part_.begin(thread, pool_.size());
      pool_.barrier();
      for (int64_t i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < n_;) {
        part_.image(thread, i);
      }
    });
  }

 private:
  BlockedSumsPart part_;
  int64_t n_;
  ThreadPool& pool_;
  std::atomic<int64_t> next_{0};
};

Cover covers_forward(const RemainingOps& rest, bool activated) {
  const auto* op = rest.get<Conv2d>(0);
  if (op == nullptr) return Cover::no("the next op is no conv2d");
  const auto* activation = activated ? rest.get<Activation>(1) : nullptr;
  if (activated && (activation == nullptr || activation->x.id != op->y.id)) {
    return Cover::no("the next ops are no conv2d and its activation");
  }
  if (std::string why = refuse_blocked_conv(op->shape, {op->x, op->w, op->b, op->y});
      !why.empty()) {
    return Cover::no(std::move(why));
  }
  Cover cover = Cover::of(activated ? 2 : 1);
  if (activated) {
    if (!rest.dead_after(op->y, 2)) return Cover::no("the activation's input is needed later");
    cover.skips = {op->y.id};
  }
  if (!add_input(cover.reads, op->x, op->shape.in) ||
      !add_image(cover.writes, activated ? activation->y : op->y, op->shape.out())) {
    return Cover::no(kNoLayoutName);
  }
  cover.workspace = workspace_of(BlockedSumsPart::forward(*op), rest);
  return cover;
}

std::unique_ptr<Step> prepare_forward(const Span& span, const Binding& binding) {
  const auto& op = span.get<Conv2d>(0);
  const Activation* activation = span.size() > 1 ? &span.get<Activation>(1) : nullptr;
  simd::SimdActivation act;
  if (activation != nullptr) act = simd::simd_activation(*activation);
  auto step = std::make_unique<SumsStep>(BlockedSumsPart::forward(op), op.n(), binding);
  step->part().bind(binding.read(op.x).as<float>(), binding.read(op.w).as<float>(),
                    binding.read(op.b).as<float>(), act,
                    binding.write(activation != nullptr ? activation->y : op.y).as<float>());
  return step;
}

Cover covers_grad_x(const RemainingOps& rest) {
  const auto* op = rest.get<Conv2dGradX>(0);
  if (op == nullptr) return Cover::no("the next op is no conv2d_grad_x");
  if (std::string why = refuse_blocked_conv(op->shape, {op->dy, op->w, op->dx}); !why.empty()) {
    return Cover::no(std::move(why));
  }
  Cover cover = Cover::of(1);
  if (!add_image(cover.reads, op->dy, op->shape.out()) ||
      !add_image(cover.writes, op->dx, op->shape.in)) {
    return Cover::no(kNoLayoutName);
  }
  cover.workspace = workspace_of(BlockedSumsPart::input_grad(*op), rest);
  return cover;
}

std::unique_ptr<Step> prepare_grad_x(const Span& span, const Binding& binding) {
  const auto& op = span.get<Conv2dGradX>(0);
  auto step = std::make_unique<SumsStep>(BlockedSumsPart::input_grad(op), op.n(), binding);
  step->part().bind(binding.read(op.dy).as<float>(), binding.read(op.w).as<float>(), nullptr,
                    ActivationKind::none, binding.write(op.dx).as<float>());
  return step;
}

Cover covers_grad_w(const RemainingOps& rest) {
  const auto* op = rest.get<Conv2dGradW>(0);
  if (op == nullptr) return Cover::no("the next op is no conv2d_grad_w");
  if (std::string why = refuse_blocked_conv(op->shape, {op->x, op->dy, op->dw, op->db});
      !why.empty()) {
    return Cover::no(std::move(why));
  }
  const BlockedWeightGradPart part(*op);
  if (std::string why = part.refuses(); !why.empty()) return Cover::no(std::move(why));
  Cover cover = Cover::of(1);
  if (!add_input(cover.reads, op->x, op->shape.in) ||
      !add_image(cover.reads, op->dy, op->shape.out())) {
    return Cover::no(kNoLayoutName);
  }
  cover.workspace = workspace_of(part, rest);
  return cover;
}

std::unique_ptr<Step> prepare_grad_w(const Span& span, const Binding& binding) {
  const auto& op = span.get<Conv2dGradW>(0);
  ThreadPool& pool = cpu_runtime(binding.runtime()).pool();
  BlockedWeightGradPart part(op);
  Scratch scratch(binding.workspace());
  part.allot(scratch, pool.size());
  part.bind(op, binding);
  const auto* dy = binding.read(op.dy).as<float>();
  const int64_t dy_floats = blocked_floats(op.shape.out());
  return make_step([part, &pool, n = op.n(), dy, dy_floats] {
    pool.run([&](int thread) {
      part.begin(thread);
      const Range mine = split(n, thread, pool.size());
      for (int64_t i = mine.begin; i < mine.end; ++i) part.image(thread, i, dy + i * dy_floats);
      pool.barrier();
      part.finish(thread, pool.size());
    });
  });
}

Kernel kernel_of(const char* name, std::function<Cover(const RemainingOps&)> covers,
                 std::function<std::unique_ptr<Step>(const Span&, const Binding&)> prepare) {
  Kernel kernel;
  kernel.name = name;
  kernel.traits.precisions = simd::kFloatOnly;
  kernel.covers = std::move(covers);
  kernel.prepare = std::move(prepare);
  return kernel;
}

}  // namespace

KernelTable blocked_conv_kernels() {
  const auto forward = [](bool activated) {
    return [activated](const RemainingOps& rest) { return covers_forward(rest, activated); };
  };
  return {kernel_of("cpu.conv2d_activation.blocked", forward(true), prepare_forward),
          kernel_of("cpu.conv2d.blocked", forward(false), prepare_forward),
          kernel_of("cpu.conv2d_grad_x.blocked", covers_grad_x, prepare_grad_x),
          kernel_of("cpu.conv2d_grad_w.blocked", covers_grad_w, prepare_grad_w)};
}

}  // namespace ridgeline::cpu

#endif
