#include <algorithm>

#include "ridgeline/cpu/simd/kernel.h"
#include "ridgeline/cpu/simd/layout.h"

// Embeddings: threads divide the tokens forward, and the columns of the table backward, so that
// each element of its gradient is one sum in the order of the tokens.
namespace ridgeline::cpu::simd {
namespace {

template <typename T>
std::unique_ptr<Step> prepare_embedding(const Embedding& op, const Binding& binding) {
  return make_step([tokens = binding.read(op.token).as<int32_t>(), count = op.count(),
                    width = op.width(), w = binding.read(op.w).as<T>(),
                    y = binding.write(op.y).as<T>(),
                    &pool = cpu_runtime(binding.runtime()).pool()] {
    pool.share(count, 1, kLeastElements / width + 1, [&](Range part) {
      for (int64_t i = part.begin; i < part.end; ++i) {
        std::copy_n(w + tokens[i] * width, width, y + i * width);
      }
    });
  });
}

template <typename T>
std::unique_ptr<Step> prepare_embedding_grad(const EmbeddingGrad& op, const Binding& binding) {
  return make_step([tokens = binding.read(op.token).as<int32_t>(), count = op.count(),
                    rows = op.dw.shape[0], width = op.width(), dy = binding.read(op.dy).as<T>(),
                    dw = binding.write(op.dw).as<T>(),
                    &pool = cpu_runtime(binding.runtime()).pool()] {
    const int64_t least = kLeastElements / std::max<int64_t>(1, rows + count) + 1;
    pool.share(width, kGroup<T>, least, [&](Range part) {
      const int64_t columns = part.end - part.begin;
      for (int64_t row = 0; row < rows; ++row) {
        std::fill_n(dw + row * width + part.begin, columns, T(0));
      }
      for (int64_t i = 0; i < count; ++i) {
        const T* from = dy + i * width + part.begin;
        T* to = dw + tokens[i] * width + part.begin;
        for (int64_t j = 0; j < columns; ++j) to[j] += from[j];
      }
    });
  });
}

// `table` and `rows` are the op's weights, or their gradient, and its result or what it adds up.
template <typename Op>
Kernel embedding_kernel(Value Op::*table, Value Op::*rows,
                        std::unique_ptr<Step> (*fp32)(const Op&, const Binding&),
                        std::unique_ptr<Step> (*fp64)(const Op&, const Binding&)) {
  Kernel kernel;
  kernel.name = fmt::format("cpu.{}.threads", Op::kName);
  kernel.covers = [table, rows](const RemainingOps& rest) {
    const std::string reason = refuses(rest, rows);
    if (!reason.empty()) return Cover::no(reason);
    const Op& op = *rest.get<Op>(0);
    if ((op.*table).dtype != (op.*rows).dtype) return Cover::no("takes a table of the same type");
    return Cover::of(1);
  };
  kernel.prepare = [rows, fp32, fp64](const Span& span, const Binding& binding) {
    const Op& op = span.get<Op>(0);
    return ((op.*rows).dtype == DType::fp32 ? fp32 : fp64)(op, binding);
  };
  return kernel;
}

}  // namespace

KernelTable embedding_kernels() {
  return computing_in(
      kFloatAndDouble,
      {embedding_kernel(&Embedding::w, &Embedding::y, prepare_embedding<float>,
                        prepare_embedding<double>),
       embedding_kernel(&EmbeddingGrad::dw, &EmbeddingGrad::dy, prepare_embedding_grad<float>,
                        prepare_embedding_grad<double>)});
}

}  // namespace ridgeline::cpu::simd
