#pragma once

#include <cstdint>

#include "ridgeline/core/thread_pool.h"
#include "ridgeline/cpu/simd/layout.h"
#include "ridgeline/ops/activation.h"

// The three products of a linear layer y = x w^T + b, w[out, in] row-major, register-blocked,
// without packing. Each call computes a sub-range of its result on the calling thread, so that a
// whole training step can be one parallel region with barriers between phases. Results do not
// depend on how the range is divided: every element is one sum in a fixed order.
namespace ridgeline::cpu::simd {

// An activation and its parameter (the slope of leaky_relu, the alpha of elu).
struct SimdActivation {
  constexpr SimdActivation(ActivationKind of = ActivationKind::none, double with = 0)
      : kind(of), parameter(with) {}
  constexpr operator ActivationKind() const { return kind; }  // compares and switches by kind

  // The derivative is a function of the input, so a fused layer must keep it.
  constexpr bool saves_input() const { return kind != ActivationKind::none && !saves_output(kind); }

  ActivationKind kind;
  double parameter;
};

// y = act(x w^T + b), x and y in panels.
template <typename T>
struct ForwardArgs {
  const T* w;     // [out, in]
  const T* bias;  // [out], may be null
  const T* x;     // panels, [n, in]
  T* y;           // panels, [n, out]
  T* z;           // panels, [n, out]: receives x w^T + b before the activation; may be null
  int64_t in, out;
  SimdActivation act;
};

// dx = (dz w) * act'(saved): with the activation of the layer below, dx is that layer's dz. If
// depth is only a part of out, dx is a partial sum (act must be none); see BatchFunctions::combine.
template <typename T>
struct InputGradArgs {
  const T* w;      // [out, in]
  const T* dz;     // panels, [n, out]
  T* dx;           // panels, [n, in]
  const T* saved;  // panels, [n, in]: the activation's output, or its input (saves_input)
  int64_t in, out;
  SimdActivation act;
  Range depth;       // of out; {0, out} for the whole sum
  bool add = false;  // adds to dx: partial sums, one after the other
};

// g += weight_decay * w;  m = momentum * m + g;  g = nesterov ? g + momentum * m : m;  w -= lr * g
template <typename T>
struct Sgd {
  T lr = 0, momentum = 0, weight_decay = 0;
  bool nesterov = false;
};

// dw = dz^T x and db = column sums of dz, either stored or used directly to update w and b.
template <typename T>
struct WeightGradArgs {
  const T* dz;  // panels, [n, out]
  const T* x;   // batch-major, [n, in], rows ldx apart
  int64_t ldx, n, in, out;
  // Sums. When updating, these are scratch, needed only for partial sums (below, or n > one block).
  T* dw;  // [out, in]
  T* db;  // [out], null without bias
  // A batch may come in parts: all but the first add to dw and db, all but the last leave them
  // there.
  bool first = true, last = true;
  // dz is known to hold many exact zeros (the layer ends in ReLU). They are skipped if that is
  // faster: the result is the same bit for bit as long as x is finite.
  bool sparse = false;
  void* sparse_scratch =
      nullptr;  // sparse_scratch_bytes(out) if sparse; disjoint rows may share it
  // The following are for updates.
  bool update = false;
  Sgd<T> sgd{};
  T* w = nullptr;   // [out, in]
  T* b = nullptr;   // [out], may be null
  T* mw = nullptr;  // like w; null without momentum
  T* mb = nullptr;  // like b
};

// Batch rows of one pass over dw: 128 rows of three vectors of x are 24 KiB, most of a first-level
// cache, and the partial sums pass through memory once in 128 steps. If zeros are skipped, half as
// many rows of twice as many vectors: 64 * 6 beat 128 * 3 (latency) and 128 * 6 (cache) by 1.3x or
// more.
inline constexpr int64_t kGradBlock = 128;
inline constexpr int64_t kSparseGradBlock = 64;

template <typename T>
constexpr size_t sparse_scratch_bytes(int64_t out) {
  return size_t(out) * (size_t(kSparseGradBlock) * 2 * sizeof(T) + sizeof(int64_t));
}

// `rows` is the range of out (forward, weight_grad) or in (input_grad), `columns` the range of
// batch rows, beginning at a multiple of kGroup (weight_grad: of in). weight_grad handles db in the
// call whose columns end with in.
template <typename T>
struct GemmFunctions {
  void (*forward)(const ForwardArgs<T>&, Range rows, Range columns);
  void (*input_grad)(const InputGradArgs<T>&, Range rows, Range columns);
  void (*weight_grad)(const WeightGradArgs<T>&, Range rows, Range columns);
  void (*bias_grad)(const WeightGradArgs<T>&, Range rows);  // only db
};

// The functions for this machine's instruction set.
template <typename T>
const GemmFunctions<T>& gemm_functions();

const char* instruction_set();

}  // namespace ridgeline::cpu::simd
