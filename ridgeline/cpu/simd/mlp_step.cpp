#include "ridgeline/cpu/simd/mlp_step.h"

#include <algorithm>
#include <type_traits>

#include "ridgeline/core/buffer.h"
#include "ridgeline/core/flush_denormals.h"
#include "ridgeline/cpu/simd/batch.h"
#include "ridgeline/cpu/simd/dropout.h"
#include "ridgeline/cpu/simd/mlp_step_team.h"

namespace ridgeline::cpu::simd {
namespace {

// With at least this many samples per thread, dividing the batch beats dividing the weights:
// summing the gradients is then cheap beside computing them.
constexpr int64_t kRowsToShareBatch = 128;

// If there are at most this many logits, the thread that computes a sample's loss computes them
// too.
constexpr int64_t kFewClasses = 64;

// Up to this many threads each make their own batch-major copy of their operand, which is cheaper
// than moving the cache lines of a shared one; more threads share it.
constexpr int kMostCopies = 4;

template <typename T>
bool normalises_batch(const std::vector<MlpLayer<T>>& layers) {
  return std::any_of(layers.begin(), layers.end(), [](const MlpLayer<T>& layer) {
    return layer.norm.over == MlpNorm<T>::Over::batch;
  });
}

}  // namespace

template <typename T>
MlpStep<T>::MlpStep(std::vector<MlpLayer<T>> layers, int64_t n_max, int threads,
                    const MlpLoss& loss, const SplitEngine* engine, T input_scale, double max_norm)
    : layers_(std::move(layers)),
      loss_(loss),
      threads_(threads),
      engine_(engine),
      input_scale_(input_scale),
      by_batch_(threads > 1 && n_max >= kRowsToShareBatch * threads && !normalises_batch(layers_)),
      max_norm_(max_norm),
      late_(by_batch_ || max_norm > 0),
      chunk_(normalises_batch(layers_) ? n_max : kChunk),
      few_classes_(layers_.back().out <= kFewClasses),
      copies_(by_batch_ || threads <= kMostCopies) {
  lay_out(n_max);
}

template <typename T>
void MlpStep<T>::lay_out(int64_t n_max) {
  const auto take = [](size_t& total, size_t elements, size_t size = sizeof(T)) {
    const size_t offset = total;
    total += align_up(elements * size);
    return offset;
  };
  const int64_t n = std::min(n_max, chunk_);
  const int64_t padded = panels_of<T>(n) * kPanel<T>;
  size_t& shared = shared_bytes_;
  size_t& copies = copies_ ? private_bytes_ : shared_bytes_;
  int64_t most_out = 0, most_in = 0;
  x_panels_ = take(copies, panel_elements<T>(n, layers_[0].in));
  for (size_t l = 0; l < layers_.size(); ++l) {
    const MlpLayer<T>& layer = layers_[l];
    const size_t outputs = panel_elements<T>(n, layer.out);
    Offsets o{};
    o.y_panels = take(shared, outputs);
    o.z_panels = layer.act.saves_input() ? take(shared, outputs) : 0;
    o.dz_panels = take(shared, outputs);
    // Gradients of tanh and sigmoid need y before dropout.
    const bool keeps_y = layer.drops() && (layer.act == ActivationKind::tanh ||
                                           layer.act == ActivationKind::sigmoid);
    o.dropped_panels = keeps_y ? take(shared, outputs) : o.y_panels;
    o.keep_panels = layer.drops() ? take(shared, outputs) : 0;
    o.x = take(copies, size_t(n * padded_ld<T>(layer.in)));
    if (n_max > kSparseGradBlock || layer.use == GradientUse::adam || splits(l) || late_) {
      o.dw = take(shared, size_t(layer.in * layer.out));
      o.db = take(shared, size_t(layer.out));
    }
    if (splits(l)) {
      size_t most = 0;
      for (int i = 0; i < team(); ++i) {
        const Member member{nullptr, i, team(), nullptr, nullptr};
        most = std::max(most, split_layer(member, n, l).memory_bytes());
      }
      o.blocks = take(private_bytes_, most, 1);
    }
    if (layer.norm) {
      o.norm_panels = take(shared, outputs);
      o.dgamma = take(shared, size_t(layer.out));
      o.dbeta = take(shared, size_t(layer.out));
      const auto moments = size_t(std::max(padded, layer.out));
      o.mean = take(private_bytes_, moments);
      o.rstd = take(private_bytes_, moments);
    }
    offsets_.push_back(o);
    most_out = std::max(most_out, layer.out);
    if (l > 0) most_in = std::max(most_in, layer.in);
  }
  part_elements_ = panel_elements<T>(n, most_in);
  parts_ = take(shared, 2 * size_t(team()) * part_elements_);
  norm_parts_ = take(shared, 2 * size_t(team() * padded), sizeof(double));
  norm_means_ = take(private_bytes_, 2 * size_t(padded));
  labels_ = take(private_bytes_, size_t(n), sizeof(int32_t));
  targets_ = take(private_bytes_, size_t(n * loss_.columns));
  const int64_t out = layers_.back().out;
  const bool by_rows = loss_.kind != MlpLoss::Kind::softmax_xent;
  loss_rows_ = take(shared, by_rows ? size_t(2 * n * out) : 0);
  loss_weights_ = take(workspace_bytes_, size_t(out));
  sparse_ = take(shared, sparse_scratch_bytes<T>(most_out), 1);
  // Each member's scratch is on pages of its own.
  private_bytes_ = align_up(private_bytes_, 4096);
  losses_ = take(workspace_bytes_, size_t(groups_of<T>(n_max)), sizeof(double));
  corrects_ = take(workspace_bytes_, size_t(groups_of<T>(n_max)), sizeof(int32_t));
  squares_ = take(workspace_bytes_, size_t(threads_), sizeof(double));
  teams_ = workspace_bytes_;
  const size_t team_bytes = shared_bytes_ + size_t(team()) * private_bytes_;
  workspace_bytes_ += team_bytes * size_t(by_batch_ ? threads_ : 1);
}

// Returns the rows of a matrix that a member owns.
template <typename T>
Range MlpStep<T>::own(int64_t count, const Member& m) const {
  const int64_t grain = engine_ != nullptr ? kSplitSide : 16;
  return split(count, m.index, m.count, count >= 32 * m.count ? grain : 1);
}

// With fewer rows than a block per member, tiles would be mostly empty.
template <typename T>
bool MlpStep<T>::splits(size_t l) const {
  const MlpLayer<T>& layer = layers_[l];
  return engine_ != nullptr && layer.out >= kSplitSide * team() && layer.in >= kSplitSide / 2 &&
         !(few_classes_ && l + 1 == layers_.size());
}

template <typename T>
bool MlpStep<T>::splits() const {
  for (size_t l = 0; l < layers_.size(); ++l) {
    if (splits(l)) return true;
  }
  return false;
}

template <typename T>
SplitLayer MlpStep<T>::split_layer(const Member& m, int64_t n, size_t l) const {
  const MlpLayer<T>& layer = layers_[l];
  SplitLayer blocks{engine_, layer.in, layer.out, n, own(layer.out, m)};
  blocks.one_part = l == 0 && input_scale_ != 0;
  if (blocks.one_part) blocks.scale = float(input_scale_);
  if (m.mine != nullptr) blocks.memory = m.mine + offsets_[l].blocks;
  return blocks;
}

template <typename T>
const T* MlpStep<T>::input_panels(const Member& m, size_t l) const {
  if (l > 0) return m.ours(offsets_[l - 1].dropped_panels);
  return copies_ ? m.own(x_panels_) : m.ours(x_panels_);
}

template <typename T>
void MlpStep<T>::gather(const Frame& f, const Member& m, const Chunk& c) const {
  const int64_t features = layers_[0].in;
  const int32_t* order = f.batch.order + c.begin;
  const int64_t blocks = gather_blocks(c.n, features);
  T* x = copies_ ? m.own(offsets_[0].x) : m.ours(offsets_[0].x);
  T* panels = const_cast<T*>(input_panels(m, 0));
  const bool raw = splits(0) && input_scale_ != 0;  // its products are scaled
  f.batch_kernels.gather({f.batch.set, order, c.n, features, raw ? T(1) : f.batch.scale,
                          f.batch.shift, x, padded_ld<T>(features), panels, f.batch.floats},
                         copies_ ? Range{0, blocks} : split(blocks, m.index, m.count));
  if (loss_.has_labels()) {
    auto* labels = reinterpret_cast<int32_t*>(m.own(labels_));
    for (int64_t r = 0; r < c.n; ++r) labels[r] = f.batch.labels[order[r]];
  } else {
    T* targets = m.own(targets_);
    for (int64_t r = 0; r < c.n; ++r) {
      std::copy_n(f.batch.targets + int64_t{order[r]} * loss_.columns, loss_.columns,
                  targets + r * loss_.columns);
    }
  }
  if (!copies_) m.barrier();
}

template <typename T>
void MlpStep<T>::split_forward(const Frame& f, const Member& m, const Chunk& c, size_t l,
                               T* z) const {
  if constexpr (std::is_same_v<T, float>) {
    const MlpLayer<T>& layer = layers_[l];
    const SplitLayer blocks = split_layer(m, c.n, l);
    const float* x = copies_ ? m.own(offsets_[l].x) : m.ours(offsets_[l].x);
    blocks.take_inputs(input_panels(m, l), l == 0 || !copies_ ? x : nullptr,
                       padded_ld<T>(layer.in));
    float* const y = m.ours(offsets_[l].y_panels);
    float* const sums = z != nullptr ? z : y;
    const bool rectified = layer.act == ActivationKind::relu;
    blocks.forward(layer.w, layer.b, rectified, sums, c.weights());
    if (rectified || layer.act == ActivationKind::none) return;
    for (int64_t p = 0; p < panels_of<T>(c.n); ++p) {
      const int64_t at = (p * layer.out + blocks.rows.begin) * kPanel<T>;
      f.batch_kernels.activate(layer.act, sums + at, y + at,
                               (blocks.rows.end - blocks.rows.begin) * kPanel<T>);
    }
  }
}

template <typename T>
void MlpStep<T>::forward(const Frame& f, const Member& m, const Chunk& c, size_t l) const {
  const MlpLayer<T>& layer = layers_[l];
  const Range rows = own(layer.out, m);
  T* z = layer.act.saves_input() ? m.ours(offsets_[l].z_panels) : nullptr;
  T* y = m.ours(offsets_[l].y_panels);
  if (splits(l)) {
    split_forward(f, m, c, l, z);
  } else {
    ForwardArgs<T> args{layer.w, layer.b, input_panels(m, l), y, z, layer.in, layer.out, layer.act};
    if (layer.norm) {
      args.y = m.ours(offsets_[l].norm_panels);
      args.z = nullptr;
      args.act = SimdActivation();
    }
    f.gemm.forward(args, rows, {0, c.n});
  }
  if (layer.norm) normalise(f, m, c, l);
  if (layer.drops()) drop(f, m, c, l, rows);
  if (!copies_ && l + 1 < layers_.size()) {
    f.batch_kernels.from_panels(input_panels(m, l + 1), layer.out, m.ours(offsets_[l + 1].x),
                                padded_ld<T>(layer.out), {0, c.n}, rows);
  }
  m.barrier();
}

template <typename T>
void MlpStep<T>::drop(const Frame& f, const Member& m, const Chunk& c, size_t l, Range rows) const {
  const DropoutMask& mask = layers_[l].dropout;
  const Offsets& o = offsets_[l];
  dropout_functions<T>().panels(
      {m.ours(o.y_panels), m.ours(o.dropped_panels), m.ours(o.keep_panels), layers_[l].out,
       mask.sample_offset + c.begin, mask.seed, DropoutMask::stream(mask.layer, f.iteration.step),
       float(mask.p), T(1.0 / (1.0 - mask.p))},
      rows, c.n);
}

template <typename T>
void MlpStep<T>::loss(const Frame& f, const Member& m, const Chunk& c) const {
  const size_t l = layers_.size() - 1;
  const MlpLayer<T>& layer = layers_[l];
  const Range groups = split(groups_of<T>(c.n), m.index, m.count);
  T* logits = m.ours(offsets_[l].y_panels);
  if (few_classes_) {
    const Range columns{groups.begin * kGroup<T>, std::min(groups.end * kGroup<T>, c.n)};
    f.gemm.forward(
        {layer.w, layer.b, input_panels(m, l), logits, nullptr, layer.in, layer.out, layer.act},
        {0, layer.out}, columns);
  } else {
    forward(f, m, c, l);
  }
  const int64_t group = c.begin / kGroup<T>;
  mlp_loss<T>(loss_,
              {logits, reinterpret_cast<const int32_t*>(m.own(labels_)), m.own(targets_),
               reinterpret_cast<const T*>(workspace_ + loss_weights_),
               m.ours(offsets_[l].dz_panels), m.ours(loss_rows_), c.n, layer.out, f.scale,
               reinterpret_cast<double*>(workspace_ + losses_) + group,
               reinterpret_cast<int32_t*>(workspace_ + corrects_) + group},
              groups);
  m.barrier();
}

template <typename T>
void MlpStep<T>::run_chunk(const Frame& f, const Member& m, const Chunk& c) const {
  const size_t last = layers_.size() - 1;
  gather(f, m, c);
  for (size_t l = 0; l < last; ++l) forward(f, m, c, l);
  loss(f, m, c);
  // A member reads and updates only its own part of w, so no barrier is needed between the two.
  for (size_t l = last; l > 0; --l) {
    input_grad(f, m, c, l);
    weight_grad(f, m, c, l);
    combine(f, m, c, l);
    if (layers_[l - 1].norm) norm_grad(f, m, c, l - 1);
  }
  weight_grad(f, m, c, 0);
}

template <typename T>
MlpScore MlpStep<T>::run(ThreadPool& pool, const MlpBatch<T>& batch, int64_t n, double scale,
                         const MlpIteration<T>& iteration) {
  const Frame frame{pool, batch, scale, iteration, gemm_functions<T>(), batch_functions<T>()};
  std::byte* const teams = workspace_ + teams_;
  auto* const weights = reinterpret_cast<T*>(workspace_ + loss_weights_);
  for (int64_t c = 0; c < layers_.back().out; ++c) {
    weights[c] = loss_.weights != nullptr ? T(loss_.weights[c % loss_.weight_count]) : T(1);
  }
  pool.run([&](int thread) {
    const FlushDenormals flush;
    Member member{&pool, thread, threads_, teams,
                  teams + shared_bytes_ + size_t(thread) * private_bytes_};
    Range rows{0, n};
    if (by_batch_) {
      std::byte* const own = teams + size_t(thread) * (shared_bytes_ + private_bytes_);
      member = {nullptr, 0, 1, own, own + shared_bytes_};
      rows = split(n, thread, threads_, kGroup<T>);
    }
    if (by_batch_ && rows.begin == rows.end) clear_gradients(member);
    for (int64_t begin = rows.begin; begin < rows.end; begin += chunk_) {
      if (begin > rows.begin) member.barrier();  // the previous chunk is still being read
      const int64_t end = std::min(begin + chunk_, rows.end);
      run_chunk(frame, member, {begin, end - begin, begin == rows.begin, end == rows.end});
    }
    if (!late_) return;
    pool.barrier();
    update(frame, thread);
  });
  MlpScore score{};
  for (int t = 0; max_norm_ > 0 && t < threads_; ++t) {
    score.squares += reinterpret_cast<const double*>(workspace_ + squares_)[t];
  }
  for (int64_t g = 0; g < groups_of<T>(n); ++g) {
    score.loss += reinterpret_cast<const double*>(workspace_ + losses_)[g];
    score.correct += reinterpret_cast<const int32_t*>(workspace_ + corrects_)[g];
  }
  return score;
}

template class MlpStep<float>;
template class MlpStep<double>;

}  // namespace ridgeline::cpu::simd
