#include <algorithm>

#include "ridgeline/cpu/simd/batch.h"
#include "ridgeline/cpu/simd/shared_segments.h"
#include "ridgeline/cpu/simd/update.h"

namespace ridgeline::cpu::simd {

template <typename T>
void SharedMlpStep<T>::gather(const Share& s, const Worker& w, Range rows, T* x, T* panels) const {
  const int64_t in = layers_[0].in, n = rows.end - rows.begin;
  const bool here = s.set == nullptr;
  const uint8_t* set = here ? s.bytes + rows.begin * in : s.set;
  const int32_t* order =
      here ? reinterpret_cast<const int32_t*>(w.scratch + order_) : s.order + rows.begin;
  batch_functions<T>().gather(
      {set, order, n, in, in_scale_, in_shift_, x, padded_ld<T>(in), panels},
      {0, gather_blocks(n, in)});
}

// Takes samples of a chunk through the net, forward and backward.
template <typename T>
void SharedMlpStep<T>::pass_rows(const Share& s, Worker& w, int64_t chunk, Range rows) const {
  const size_t slot = slots_ + size_t(chunk % kSlots) * slot_bytes_, last = layers_.size() - 1;
  const int64_t in = layers_[0].in, n = rows.end - rows.begin, begin = chunk * kChunk + rows.begin;
  const int64_t whole = std::min(kChunk, s.n - chunk * kChunk);
  T* const panels = w.at(x_panels_);
  // Gathers both layouts when this thread will probably compute the gradient too.
  T* const x = n == whole ? w.at(x_) : nullptr;
  if (x != nullptr) w.segment = s.segment, w.chunk = chunk;
  gather(s, w, {begin, begin + n}, x, panels + rows.begin * in);
  const auto at = [&](size_t offset) { return s.at(slot + offset); };
  const auto input = [&](size_t l) { return l == 0 ? panels : at(offsets_[l - 1].y); };
  for (size_t l = 0; l <= last; ++l) {
    const MlpLayer<T>& layer = layers_[l];
    T* z = layer.act.saves_input() ? at(offsets_[l].z) : nullptr;
    gemm_functions<T>().forward(
        {layer.w, layer.b, input(l), at(offsets_[l].y), z, layer.in, layer.out, layer.act},
        {0, layer.out}, rows);
  }
  const int64_t classes = layers_[last].out, group = begin / kGroup<T>;
  batch_functions<T>().softmax_xent({at(offsets_[last].y) + rows.begin * classes, s.labels + begin,
                                     at(offsets_[last].dz) + rows.begin * classes, n, classes,
                                     s.scale, s.losses + group, s.corrects + group},
                                    {0, groups_of<T>(n)});
  for (size_t l = last; l > 0; --l) {
    const MlpLayer<T>&layer = layers_[l], &below = layers_[l - 1];
    const T* saved = below.act.saves_input() ? at(offsets_[l - 1].z) : at(offsets_[l - 1].y);
    gemm_functions<T>().input_grad({layer.w,
                                    at(offsets_[l].dz),
                                    at(offsets_[l - 1].dz),
                                    saved,
                                    layer.in,
                                    layer.out,
                                    below.act,
                                    {0, layer.out}},
                                   {0, layer.in}, rows);
  }
}

// Returns a layer's batch-major inputs of a chunk, in the worker's scratch.
template <typename T>
const T* SharedMlpStep<T>::inputs(const Share& s, Worker& w, int64_t chunk, size_t layer) const {
  const int64_t in = layers_[layer].in, n = std::min(kChunk, s.n - chunk * kChunk);
  if (layer == 0) {
    if (w.segment != s.segment || w.chunk != chunk) {
      gather(s, w, {chunk * kChunk, chunk * kChunk + n}, w.at(x_), nullptr);
      w.segment = s.segment, w.chunk = chunk;
    }
    return w.at(x_);
  }
  if (w.upper_segment != s.segment || w.upper_chunk != chunk || w.upper_layer != layer) {
    const size_t slot = slots_ + size_t(chunk % kSlots) * slot_bytes_;
    batch_functions<T>().from_panels(s.at(slot + offsets_[layer - 1].y), in, w.at(x_upper_),
                                     padded_ld<T>(in), {0, n}, {0, in});
    w.upper_segment = s.segment, w.upper_chunk = chunk, w.upper_layer = layer;
  }
  return w.at(x_upper_);
}

template <typename T>
void SharedMlpStep<T>::add_gradients(const Share& s, Worker& w, int64_t chunk, size_t layer,
                                     Range rows) const {
  const MlpLayer<T>& l = layers_[layer];
  const size_t slot = slots_ + size_t(chunk % kSlots) * slot_bytes_;
  WeightGradArgs<T> args{};
  args.dz = s.at(slot + offsets_[layer].dz);
  args.x = inputs(s, w, chunk, layer);
  args.ldx = padded_ld<T>(l.in);
  args.n = std::min(kChunk, s.n - chunk * kChunk);
  args.in = l.in;
  args.out = l.out;
  args.dw = s.at(offsets_[layer].dw);
  args.db = l.b != nullptr ? s.at(offsets_[layer].db) : nullptr;
  args.first = chunk == 0;
  args.last = chunk + 1 == s.chunks;
  args.sparse = l.act == ActivationKind::relu;
  args.sparse_scratch = w.scratch + sparse_;
  gemm_functions<T>().weight_grad(args, rows, {0, l.in});
}

// Adds up this rank's part of every tensor, in its own segment.
template <typename T>
void SharedMlpStep<T>::add_up(ThreadPool& pool) const {
  const int ranks = int(segments_.size());
  if (ranks == 1) return;
  each_tensor([&](int64_t count, size_t offset, T*, T*) {
    const Range mine = split(count, int(rank_), ranks, kGroup<T>);
    const auto at = [&](size_t r) { return reinterpret_cast<T*>(segments_[r] + offset); };
    pool.share(mine.end - mine.begin, kGroup<T>, 4096, [&](Range part) {
      constexpr int64_t kBlock = 1024;  // in the L1 cache
      T sum[kBlock];
      for (int64_t i = mine.begin + part.begin; i < mine.begin + part.end; i += kBlock) {
        const int64_t block = std::min(kBlock, mine.begin + part.end - i);
        std::copy_n(at(0) + i, block, sum);
        for (size_t r = 1; r < segments_.size(); ++r) {
          const T* other = at(r) + i;
          for (int64_t k = 0; k < block; ++k) sum[k] += other[k];
        }
        std::copy_n(sum, block, at(rank_) + i);
      }
    });
  });
}

template <typename T>
void SharedMlpStep<T>::update(ThreadPool& pool, const Sgd<T>& sgd) const {
  const int ranks = int(segments_.size());
  each_tensor([&](int64_t count, size_t offset, T* w, T* m) {
    for (int r = 0; r < ranks; ++r) {
      const Range part = split(count, r, ranks, kGroup<T>);
      const SgdArgs<T> args{
          reinterpret_cast<const T*>(segments_[size_t(r)] + offset), 1, 0, w, m, sgd};
      pool.share(part.end - part.begin, kGroup<T>, 4096, [&](Range mine) {
        update_functions<T>().sgd(args, {part.begin + mine.begin, part.begin + mine.end});
      });
    }
  });
}

template <typename T>
void SharedMlpStep<T>::update_part(const Sgd<T>& sgd) const {
  const int ranks = int(segments_.size());
  const auto stride = ranks > 1 ? (segments_[1] - segments_[0]) / int64_t(sizeof(T)) : 0;
  each_tensor([&](int64_t count, size_t offset, T* w, T* m) {
    update_functions<T>().sgd(
        {reinterpret_cast<const T*>(segments_[0] + offset), ranks, stride, w, m, sgd},
        split(count, int(rank_), ranks, kGroup<T>));
  });
  reinterpret_cast<Head*>(segments_[rank_])->fetched.set(step_);
}

template void SharedMlpStep<float>::pass_rows(const Share&, Worker&, int64_t, Range) const;
template void SharedMlpStep<float>::add_gradients(const Share&, Worker&, int64_t, size_t,
                                                  Range) const;
template void SharedMlpStep<float>::add_up(ThreadPool&) const;
template void SharedMlpStep<float>::update(ThreadPool&, const Sgd<float>&) const;
template void SharedMlpStep<float>::update_part(const Sgd<float>&) const;
template void SharedMlpStep<double>::pass_rows(const Share&, Worker&, int64_t, Range) const;
template void SharedMlpStep<double>::add_gradients(const Share&, Worker&, int64_t, size_t,
                                                   Range) const;
template void SharedMlpStep<double>::add_up(ThreadPool&) const;
template void SharedMlpStep<double>::update(ThreadPool&, const Sgd<double>&) const;
template void SharedMlpStep<double>::update_part(const Sgd<double>&) const;

}  // namespace ridgeline::cpu::simd
