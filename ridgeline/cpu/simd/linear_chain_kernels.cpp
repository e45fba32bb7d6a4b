#include <utility>
#include <vector>

#include "ridgeline/cpu/simd/batch.h"
#include "ridgeline/cpu/simd/kernel.h"
#include "ridgeline/cpu/simd/linear_chain.h"

// Several linear layers as one kernel, with weights that may change between calls.
namespace ridgeline::cpu::simd {
namespace {

// All layers are one parallel region: panels of one layer are the next one's input. With many
// samples each thread takes its own through all layers, and waits for no other.
template <typename T>
struct ChainStep {
  ThreadPool& pool;
  int64_t n, widest;
  const T* x;
  T* y;
  T *x_panels, *between[2];
  std::vector<ForwardArgs<T>> layers;

  void operator()() const {
    pool.run([this](int thread) {
      const bool by_batch = n >= kLayerRowsToShareBatch * pool.size();
      const Range mine = split(n, thread, pool.size(), kPanel<T>);
      const BatchFunctions<T>& batch = batch_functions<T>();
      batch.to_panels(x, layers.front().in, layers.front().in, x_panels, mine,
                      {0, layers.front().in});
      // Where a sample lies in a layer's panels depends on the layer's width. A thread that waits
      // for no other keeps its panels of all layers where those of the widest layer would lie.
      const auto moved = [&](int64_t width) {
        return by_batch ? mine.begin * (widest - width) : 0;
      };
      for (size_t l = 0; l < layers.size(); ++l) {
        ForwardArgs<T> args = layers[l];
        if (!by_batch) pool.barrier();
        const Range rows = by_batch ? Range{0, args.out} : split(args.out, thread, pool.size(), 8);
        const Range columns = by_batch ? mine : Range{0, n};
        if (l > 0) args.x += moved(args.in);
        args.y += moved(args.out);
        gemm_functions<T>().forward(args, rows, columns);
        if (l + 1 == layers.size()) {
          batch.from_panels(args.y, args.out, y, args.out, columns, rows);
        }
      }
    });
  }
};

template <typename T>
ChainStep<T> chain_step(std::byte* base, size_t* bytes, ThreadPool& pool, const Chain& chain) {
  Scratch scratch(base);
  const Linear& first = *chain.layers.front().linear;
  ChainStep<T> step{pool, first.n(), chain.widest(), nullptr, nullptr, nullptr, {}, {}};
  step.x_panels = scratch.take<T>(panel_elements<T>(first.n(), first.in()));
  for (T*& each : step.between) {
    each = scratch.take<T>(panel_elements<T>(first.n(), chain.widest()));
  }
  if (bytes != nullptr) *bytes = scratch.bytes();
  return step;
}

Cover covers_chain(const RemainingOps& rest) {
  if (rest.get<Linear>(0) == nullptr) return Cover::no("the next op is no linear");
  if (!begins_chain(rest)) return Cover::no("begins with the first of consecutive layers");
  const Chain chain(rest);
  if (chain.layers.size() < 2) return Cover::no("takes two or more consecutive layers");
  Cover cover = Cover::of(chain.ops);
  cover.skips = chain.inner;
  with_type(chain.layers[0].linear->y.dtype, [&](auto zero) {
    ThreadPool& pool = const_cast<ThreadPool&>(cpu_runtime(rest.runtime).pool());
    chain_step<decltype(zero)>(nullptr, &cover.workspace, pool, chain);
  });
  return cover;
}

std::unique_ptr<Step> prepare_chain(const Span& span, const Binding& binding) {
  const Chain chain({span.program, span.begin, binding.runtime()});
  return with_type(chain.layers[0].linear->y.dtype, [&](auto zero) -> std::unique_ptr<Step> {
    using T = decltype(zero);
    ChainStep<T> step =
        chain_step<T>(binding.workspace(), nullptr, cpu_runtime(binding.runtime()).pool(), chain);
    step.x = binding.read(chain.layers.front().linear->x).template as<T>();
    step.y = binding.write(chain.layers.back().y()).template as<T>();
    const T* from = step.x_panels;
    for (const Chain::Layer& each : chain.layers) {
      T* const to = step.between[step.layers.size() % 2];
      const Linear& op = *each.linear;
      step.layers.push_back(
          {binding.read(op.w).template as<T>(), binding.read(op.b).template as<T>(), from, to,
           nullptr, op.in(), op.out(),
           each.activation != nullptr ? simd_activation(*each.activation) : SimdActivation()});
      from = to;
    }
    return make_step(std::move(step));
  });
}

}  // namespace

Kernel linear_chain_kernel() {
  Kernel kernel;
  kernel.name = "cpu.linear_chain.simd";
  kernel.covers = covers_chain;
  kernel.prepare = prepare_chain;
  return kernel;
}

}  // namespace ridgeline::cpu::simd
