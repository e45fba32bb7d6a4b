#pragma once

#include <functional>

#include "ridgeline/cuda/kernel.h"
#include "ridgeline/cuda/plain/elementwise.h"

namespace ridgeline::cuda {

// db[out] = sum over n of dy, beside a product that computes only dw; does nothing without db. With
// dy in a half type, db may be in fp32.
inline std::function<cudaError_t(cudaStream_t)> bias_sum(const LinearGradW& op,
                                                         const Binding& binding) {
  if (!op.db) return [](cudaStream_t) { return cudaSuccess; };
  using Sum = std::function<cudaError_t(cudaStream_t)>;
  return dispatch_device_float(op.dy.dtype, [&](auto type) -> Sum {
    using T = decltype(type);
    const auto* dy = binding.read(op.dy).as<T>();
    const Tensor db = binding.write(op.db);
    const int64_t n = op.n(), out = op.out();
    if constexpr (sizeof(T) == 2) {
      if (is_accumulator(op.db, op.dy.dtype)) {
        return [=, db = db.as<float>()](cudaStream_t stream) {
          return launch_sum_rows<T, float>(dy, db, n, out, stream);
        };
      }
    }
    return [=, db = db.as<T>()](cudaStream_t stream) {
      return launch_sum_rows<T, T>(dy, db, n, out, stream);
    };
  });
}

}  // namespace ridgeline::cuda
