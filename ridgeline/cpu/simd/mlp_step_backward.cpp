#include <algorithm>
#include <type_traits>

#include "ridgeline/cpu/simd/batch.h"
#include "ridgeline/cpu/simd/mlp_step.h"
#include "ridgeline/cpu/simd/mlp_step_team.h"
#include "ridgeline/ops/grad_scale.h"

namespace ridgeline::cpu::simd {
namespace {

// Gradients that stay in a second-level cache of 1 MiB beside the chunk's inputs. Blocks of fewer
// rows would fetch those inputs too often.
constexpr int64_t kGradBytes = 256 << 10, kLeastGradRows = 32;

}  // namespace

// Returns the operand from which the layer's activation computes its gradient.
template <typename T>
const T* MlpStep<T>::saved_panels(const Member& m, size_t l) const {
  return m.ours(layers_[l].act.saves_input() ? offsets_[l].z_panels : offsets_[l].y_panels);
}

// With few classes, the last layer's w is divided by columns, and own rows of the dz of the layer
// below follow at once; otherwise own rows of w give a partial sum of all of them.
template <typename T>
bool MlpStep<T>::whole_sums(const Member& m, size_t l) const {
  return (few_classes_ && l + 1 == layers_.size()) || m.count == 1;
}

template <typename T>
void MlpStep<T>::input_grad(const Frame& f, const Member& m, const Chunk& c, size_t l) const {
  const MlpLayer<T>& layer = layers_[l];
  const MlpLayer<T>& below = layers_[l - 1];
  InputGradArgs<T> args{layer.w,   m.ours(offsets_[l].dz_panels), nullptr,       nullptr, layer.in,
                        layer.out, ActivationKind::none,          {0, layer.out}};
  Range rows{0, layer.in};
  if (whole_sums(m, l)) {
    rows = own(layer.in, m);
    args.dx = m.ours(offsets_[l - 1].dz_panels);
    args.act = below.drops() ? SimdActivation() : below.act;  // else in combine()
    args.saved = saved_panels(m, l - 1);
  } else {
    args.depth = own(layer.out, m);
    // Two buffers alternate: one is filled while a slower member still reads the other.
    const size_t part = (l % 2) * size_t(m.count) + size_t(m.index);
    args.dx = m.ours(parts_) + part * part_elements_;
  }
  if (splits(l)) {
    if constexpr (std::is_same_v<T, float>) {
      const SplitLayer blocks = split_layer(m, c.n, l);
      blocks.take_gradients(args.dz, true);
      blocks.input_grad(layer.w, args.dx, c.weights());
    }
    return;
  }
  f.gemm.input_grad(args, rows, {0, c.n});
}

template <typename T>
void MlpStep<T>::combine(const Frame& f, const Member& m, const Chunk& c, size_t l) const {
  const MlpLayer<T>& below = layers_[l - 1];
  const Offsets& o = offsets_[l - 1];
  T* const dz = m.ours(o.dz_panels);
  CombineArgs<T> args{dz, 1,         0,         saved_panels(m, l - 1),
                      dz, below.out, below.act, below.drops() ? m.ours(o.keep_panels) : nullptr};
  if (whole_sums(m, l)) {
    if (!below.drops() && !splits(l)) return;
  } else {
    args.parts = m.ours(parts_) + (l % 2) * size_t(m.count) * part_elements_;
    args.count = m.count;
    args.stride = int64_t(part_elements_);
    m.barrier();
  }
  f.batch_kernels.combine(args, own(below.out, m), {0, c.n});
}

// Updates `elements`, counted from element `at` of w, mw and vw, by their gradient.
template <typename T>
void MlpStep<T>::use_gradient(const Frame& f, const MlpLayer<T>& layer, const GradientParts& g,
                              int64_t at, T* w, T* mw, T* vw, Range elements, T scale) const {
  const auto from = [at](T* base) { return base != nullptr ? base + at : nullptr; };
  if (layer.use == GradientUse::adam) {
    update_functions<T>().adam(
        {g.first, g.count, g.stride, from(w), from(mw), from(vw), f.iteration.adam, scale},
        elements);
  } else {
    update_functions<T>().sgd(
        {g.first, g.count, g.stride, from(w), from(mw), f.iteration.sgd, scale}, elements);
  }
}

// Computes the gradients of the own rows block by block, and uses each block as soon as it is
// complete.
template <typename T>
void MlpStep<T>::split_weight_grad(const Frame& f, const Member& m, const Chunk& c,
                                   size_t l) const {
  if constexpr (std::is_same_v<T, float>) {
    const MlpLayer<T>& layer = layers_[l];
    const SplitLayer blocks = split_layer(m, c.n, l);
    const T* dz = m.ours(offsets_[l].dz_panels);
    T* const db = m.ours(offsets_[l].db);
    if (l == 0) blocks.take_gradients(dz, false);
    if (layer.b != nullptr) {
      WeightGradArgs<T> sums{};
      sums.dz = dz;
      sums.n = c.n;
      sums.out = layer.out;
      sums.db = db;
      sums.first = c.first;
      f.gemm.bias_grad(sums, blocks.rows);
    }
    for (int64_t block = 0; block < blocks.own_blocks(); ++block) {
      const int64_t row = blocks.rows.begin + block * kSplitSide;
      const int64_t count = std::min(kSplitSide, blocks.rows.end - row);
      // If the batch is a single chunk, one buffer serves all blocks.
      const bool at_once = c.first && c.last && !by_batch_;
      T* const dw = m.ours(offsets_[l].dw) + (at_once ? blocks.rows.begin : row) * layer.in;
      blocks.weight_grad(block, dw, !c.first);
      if (!c.last || by_batch_) continue;
      use_gradient(f, layer, {dw, 1, 0}, row * layer.in, layer.w, layer.mw, layer.vw,
                   {0, count * layer.in}, blocks.scale);
    }
    if (layer.b == nullptr || !c.last || by_batch_) return;
    use_gradient(f, layer, {db + blocks.rows.begin, 1, 0}, blocks.rows.begin, layer.b, layer.mb,
                 layer.vb, {0, blocks.rows.end - blocks.rows.begin}, T(1));
  }
}

template <typename T>
void MlpStep<T>::weight_grad(const Frame& f, const Member& m, const Chunk& c, size_t l) const {
  if (splits(l)) return split_weight_grad(f, m, c, l);
  const MlpLayer<T>& layer = layers_[l];
  const bool by_columns = few_classes_ && l + 1 == layers_.size();
  const Range rows = by_columns ? Range{0, layer.out} : own(layer.out, m);
  const Range columns = by_columns ? own(layer.in, m) : Range{0, layer.in};
  T* x = copies_ ? m.own(offsets_[l].x) : m.ours(offsets_[l].x);
  if (copies_ && l > 0) {
    f.batch_kernels.from_panels(input_panels(m, l), layer.in, x, padded_ld<T>(layer.in), {0, c.n},
                                columns);
  }
  WeightGradArgs<T> args{};
  args.dz = m.ours(offsets_[l].dz_panels);
  args.x = x;
  args.ldx = padded_ld<T>(layer.in);
  args.n = c.n;
  args.in = layer.in;
  args.out = layer.out;
  args.dw = m.ours(offsets_[l].dw);
  args.db = layer.b != nullptr ? m.ours(offsets_[l].db) : nullptr;
  args.first = c.first;
  args.last = c.last;
  args.sparse = layer.act == ActivationKind::relu;
  args.sparse_scratch = m.ours(sparse_);
  args.update = !late_ && layer.use == GradientUse::sgd;
  args.sgd = f.iteration.sgd;
  args.w = layer.w;
  args.b = layer.b;
  args.mw = layer.mw;
  args.mb = layer.mb;
  if (layer.use == GradientUse::stored && !by_batch_) {
    args.dw = layer.mw;
    args.db = layer.mb;
  }
  const bool adam_follows = layer.use == GradientUse::adam;
  const bool partial_sums = args.update && c.n > kSparseGradBlock;
  if (late_ || !c.last || !(adam_follows || partial_sums)) {
    f.gemm.weight_grad(args, rows, columns);
    return;
  }
  // The gradients of some rows are used while they are in the second-level cache. If the batch is
  // one chunk, all these blocks of rows use the memory of the last one.
  const int64_t row_bytes = layer.in * int64_t{sizeof(T)};
  const int64_t block = std::max(kLeastGradRows, kGradBytes / row_bytes / 8 * 8);
  const int64_t last = std::max(rows.begin, rows.end - block);
  for (int64_t end = rows.end; end > rows.begin; end -= block) {
    const Range part{std::max(rows.begin, end - block), end};
    if (c.first) args.dw = m.ours(offsets_[l].dw) + (last - part.begin) * layer.in;
    f.gemm.weight_grad(args, part, columns);
    if (adam_follows) adam(f, args, l, part, columns);
  }
}

// Updates the part of w whose gradients this member has just computed.
template <typename T>
void MlpStep<T>::adam(const Frame& f, const WeightGradArgs<T>& grads, size_t l, Range rows,
                      Range columns) const {
  const UpdateFunctions<T>& functions = update_functions<T>();
  const MlpLayer<T>& layer = layers_[l];
  const AdamArgs<T> w{grads.dw, 1, 0, layer.w, layer.mw, layer.vw, f.iteration.adam};
  if (columns.begin == 0 && columns.end == layer.in) {
    functions.adam(w, {rows.begin * layer.in, rows.end * layer.in});
  } else {
    for (int64_t o = rows.begin; o < rows.end; ++o) {
      functions.adam(w, {o * layer.in + columns.begin, o * layer.in + columns.end});
    }
  }
  if (layer.b == nullptr || columns.end != layer.in) return;
  functions.adam({grads.db, 1, 0, layer.b, layer.mb, layer.vb, f.iteration.adam}, rows);
}

// A member without samples adds zeros.
template <typename T>
void MlpStep<T>::clear_gradients(const Member& m) const {
  for (size_t l = 0; l < layers_.size(); ++l) {
    std::fill_n(m.ours(offsets_[l].dw), layers_[l].in * layers_[l].out, T(0));
    std::fill_n(m.ours(offsets_[l].db), layers_[l].out, T(0));
    if (!layers_[l].norm) continue;
    std::fill_n(m.ours(offsets_[l].dgamma), layers_[l].out, T(0));
    std::fill_n(m.ours(offsets_[l].dbeta), layers_[l].out, T(0));
  }
}

// Calls f(layer, offset of the gradient, elements, w, mw, vw, factor of the gradient).
template <typename T>
template <typename F>
void MlpStep<T>::each_tensor(F f) const {
  for (size_t l = 0; l < layers_.size(); ++l) {
    const MlpLayer<T>& layer = layers_[l];
    const Offsets& o = offsets_[l];
    const T scale = l == 0 && splits(l) && input_scale_ != 0 ? input_scale_ : T(1);
    f(layer, o.dw, layer.in * layer.out, layer.w, layer.mw, layer.vw, scale);
    if (layer.b != nullptr) f(layer, o.db, layer.out, layer.b, layer.mb, layer.vb, T(1));
    const MlpNorm<T>& norm = layer.norm;
    if (norm.gamma != nullptr) {
      f(layer, o.dgamma, layer.out, norm.gamma, norm.m_gamma, norm.v_gamma, T(1));
    }
    if (norm.beta != nullptr) {
      f(layer, o.dbeta, layer.out, norm.beta, norm.m_beta, norm.v_beta, T(1));
    }
  }
}

// Adds up the gradients of the members that took samples of the batch, and updates the weights.
template <typename T>
void MlpStep<T>::update(const Frame& f, int thread) const {
  const T factor = max_norm_ > 0 ? clip(f, thread) : T(1);
  const int parts = by_batch_ && max_norm_ == 0 ? threads_ : 1;
  const int64_t stride = int64_t((shared_bytes_ + private_bytes_) / sizeof(T));
  const std::byte* first = workspace_ + teams_;
  each_tensor(
      [&](const MlpLayer<T>& layer, size_t grads, int64_t count, T* w, T* mw, T* vw, T scale) {
        use_gradient(f, layer, {reinterpret_cast<const T*>(first + grads), parts, stride}, 0, w, mw,
                     vw, split(count, thread, threads_, kGroup<T>), scale * factor);
      });
}

// Adds up the gradients in place of the first member's, and returns their factor.
template <typename T>
T MlpStep<T>::clip(const Frame& f, int thread) const {
  const int64_t stride = int64_t((shared_bytes_ + private_bytes_) / sizeof(T));
  double squares = 0;
  each_tensor([&](const MlpLayer<T>&, size_t grads, int64_t count, T*, T*, T*, T) {
    T* const sums = reinterpret_cast<T*>(workspace_ + teams_ + grads);
    const Range mine = split(count, thread, threads_, kGroup<T>);
    for (int part = 1; by_batch_ && part < threads_; ++part) {
      const T* const more = sums + part * stride;
      for (int64_t i = mine.begin; i < mine.end; ++i) sums[i] += more[i];
    }
    double lanes[8]{};  // independent sums, so that additions overlap
    for (int64_t i = mine.begin; i < mine.end; ++i) {
      lanes[i % 8] += double(sums[i]) * double(sums[i]);
    }
    for (const double lane : lanes) squares += lane;
  });
  auto* const all = reinterpret_cast<double*>(workspace_ + squares_);
  all[thread] = squares;
  f.pool.barrier();
  double total = 0;
  for (int t = 0; t < threads_; ++t) total += all[t];
  GradScale scale;
  scale.update(total, max_norm_, false, 0);
  return T(scale.scale);
}

template void MlpStep<float>::input_grad(const Frame&, const Member&, const Chunk&, size_t) const;
template void MlpStep<float>::combine(const Frame&, const Member&, const Chunk&, size_t) const;
template void MlpStep<float>::weight_grad(const Frame&, const Member&, const Chunk&, size_t) const;
template void MlpStep<float>::use_gradient(const Frame&, const MlpLayer<float>&,
                                           const GradientParts&, int64_t, float*, float*, float*,
                                           Range, float) const;
template void MlpStep<float>::clear_gradients(const Member&) const;
template void MlpStep<float>::update(const Frame&, int) const;
template void MlpStep<double>::input_grad(const Frame&, const Member&, const Chunk&, size_t) const;
template void MlpStep<double>::combine(const Frame&, const Member&, const Chunk&, size_t) const;
template void MlpStep<double>::weight_grad(const Frame&, const Member&, const Chunk&, size_t) const;
template void MlpStep<double>::use_gradient(const Frame&, const MlpLayer<double>&,
                                            const GradientParts&, int64_t, double*, double*,
                                            double*, Range, double) const;
template void MlpStep<double>::clear_gradients(const Member&) const;
template void MlpStep<double>::update(const Frame&, int) const;

}  // namespace ridgeline::cpu::simd
