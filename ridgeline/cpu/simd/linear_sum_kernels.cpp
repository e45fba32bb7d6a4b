#include <algorithm>

#include "ridgeline/cpu/simd/batch.h"
#include "ridgeline/cpu/simd/kernel.h"

// The gradient of a linear layer's weights, in chunks that are sent to the other ranks while the
// next is computed. The lowest layer of a network gains most: it often has most of the weights, and
// no backward pass of a layer below is left to hide their sum.
namespace ridgeline::cpu::simd {
namespace {

// The chunks of all_reduce_kernels.cpp. The time of the last one matters, because nothing hides it.
constexpr int64_t kChunkBytes = 256 * 1024;

template <typename T>
struct GradAndSumStep {
  ThreadPool& pool;
  Communicator* ranks;
  int64_t n, in, out;
  const T* dy;
  T* dy_panels;
  WeightGradArgs<T> grad;
  T *dw_sum, *db_sum;
  DType wire;
  int64_t* token;
  int64_t chunk;  // rows of dw

  void operator()() const {
    *token = 0;
    pool.run([&](int thread) {
      batch_functions<T>().to_panels(dy, out, out, dy_panels,
                                     split(n, thread, pool.size(), kGroup<T>), {0, out});
    });
    for (int64_t begin = 0; begin < out; begin += chunk) {
      const int64_t rows = std::min(chunk, out - begin);
      pool.run([&](int thread) {
        const Range mine = split(rows, thread, pool.size(), rows >= 16 ? 8 : 1);
        if (mine.begin < mine.end) {
          gemm_functions<T>().weight_grad(grad, {begin + mine.begin, begin + mine.end}, {0, in});
        }
      });
      send(grad.dw + begin * in, dw_sum + begin * in, rows * in);
    }
    if (grad.db != nullptr) send(grad.db, db_sum, out);
  }

  void send(const T* from, T* to, int64_t count) const {
    if (ranks != nullptr) {
      *token = 2 * ranks->start_all_reduce(from, to, count, dtype_of<T>(), wire);
    } else if (wire == DType::bf16 && sizeof(T) == 4) {
      for (int64_t i = 0; i < count; ++i) to[i] = T(float(Bf16(float(from[i]))));
    } else {
      std::copy_n(from, count, to);
    }
  }
};

template <typename T>
size_t lay_out(GradAndSumStep<T>& step, std::byte* base, const LinearGradW& op) {
  Scratch scratch(base);
  step.dy_panels = scratch.take<T>(panel_elements<T>(op.n(), op.out()));
  step.grad.sparse_scratch = scratch.take<std::byte>(sparse_scratch_bytes<T>(op.out()));
  return scratch.bytes();
}

Cover covers_linear_sum(const RemainingOps& rest) {
  const std::string reason = refuses(rest, &LinearGradW::dy);
  if (!reason.empty()) return Cover::no(reason);
  const LinearGradW& op = *rest.get<LinearGradW>(0);
  if (op.in() < 1 || op.n() < 1) return Cover::no("empty");
  const auto* start = rest.get<AllReduceStart>(1);
  if (start == nullptr) return Cover::no("no all_reduce_start follows");
  const size_t wanted = op.db ? 2 : 1;
  if (start->grads.size() != wanted || start->grads[0].id != op.dw.id ||
      (op.db && start->grads[1].id != op.db.id)) {
    return Cover::no("other gradients are added up");
  }
  if (op.dw.dtype != op.dy.dtype) return Cover::no("gradients of another type than the values");
  Cover cover = Cover::of(2);
  cover.workspace = with_type(op.dy.dtype, [&](auto zero) {
    ThreadPool& pool = const_cast<ThreadPool&>(cpu_runtime(rest.runtime).pool());
    GradAndSumStep<decltype(zero)> step{pool, nullptr, 0,       0,  0,       nullptr, nullptr,
                                        {},   nullptr, nullptr, {}, nullptr, 0};
    return lay_out(step, nullptr, op);
  });
  return cover;
}

template <typename T>
std::unique_ptr<Step> prepare_linear_sum(const Span& span, const Binding& binding) {
  const auto& op = span.get<LinearGradW>(0);
  const auto& start = span.get<AllReduceStart>(1);
  GradAndSumStep<T> step{cpu_runtime(binding.runtime()).pool(),
                         binding.runtime().ranks(),
                         op.n(),
                         op.in(),
                         op.out(),
                         binding.read(op.dy).as<T>(),
                         nullptr,
                         {},
                         binding.write(start.sums[0]).as<T>(),
                         op.db ? binding.write(start.sums[1]).as<T>() : nullptr,
                         start.wire,
                         binding.write(start.token).as<int64_t>(),
                         0};
  lay_out(step, binding.workspace(), op);
  WeightGradArgs<T>& grad = step.grad;
  grad.dz = step.dy_panels;
  grad.x = binding.read(op.x).as<T>();
  grad.ldx = grad.in = op.in();
  grad.n = op.n();
  grad.out = op.out();
  grad.dw = binding.write(op.dw).as<T>();
  grad.db = binding.write(op.db).as<T>();
  grad.sparse = true;
  const int64_t rows = kChunkBytes / (op.in() * int64_t(sizeof(T)));
  const int64_t grain = 8 * step.pool.size();  // whole tiles for each thread
  step.chunk = std::max<int64_t>(1, (rows + grain - 1) / grain) * grain;
  return make_step(step);
}

}  // namespace

Kernel linear_grad_w_sum_kernel() {
  Kernel kernel;
  kernel.name = "cpu.linear_grad_w_all_reduce.simd";
  kernel.traits.precisions = kFloatAndDouble;
  kernel.covers = covers_linear_sum;
  kernel.prepare = [](const Span& span, const Binding& binding) {
    return with_type(span.get<LinearGradW>(0).dy.dtype,
                     [&](auto zero) { return prepare_linear_sum<decltype(zero)>(span, binding); });
  };
  return kernel;
}

}  // namespace ridgeline::cpu::simd
