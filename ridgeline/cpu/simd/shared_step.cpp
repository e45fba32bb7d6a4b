#include "ridgeline/cpu/simd/shared_step.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>
#include <thread>
#include <utility>

#include "ridgeline/core/buffer.h"
#include "ridgeline/cpu/simd/batch.h"
#include "ridgeline/cpu/simd/shared_segments.h"

namespace ridgeline::cpu::simd {
namespace {

void rest() {
#if defined(__x86_64__)
  for (int i = 0; i < 16; ++i) __builtin_ia32_pause();
#endif
}

}  // namespace

template <typename T>
SharedMlpStep<T>::SharedMlpStep(std::vector<MlpLayer<T>> layers, int threads)
    : layers_(std::move(layers)), threads_(threads) {
  const auto take = [](size_t& total, size_t elements, size_t size = sizeof(T)) {
    const size_t offset = total;
    total += align_up(elements * size);
    return offset;
  };
  rows_ = align_up(sizeof(Head));
  int64_t most_out = 0, most_in = 1;
  for (size_t l = 0; l < layers_.size(); ++l) {
    const MlpLayer<T>& layer = layers_[l];
    Offsets o{};
    o.dw = take(rows_, size_t(layer.in * layer.out));
    o.db = take(rows_, size_t(layer.out));
    const size_t outputs = panel_elements<T>(kChunk, layer.out);
    o.y = take(slot_bytes_, outputs);
    o.z = layer.act.saves_input() ? take(slot_bytes_, outputs) : 0;
    o.dz = take(slot_bytes_, outputs);
    offsets_.push_back(o);
    const auto most = int64_t(kMostLanes / layers_.size());
    const int64_t parts = std::clamp<int64_t>(layer.out / kLaneRows, 1, std::min<int64_t>(most, 8));
    for (int64_t p = 0; p < parts; ++p) {
      lanes_.push_back({l, split(layer.out, int(p), int(parts), 16)});
    }
    most_out = std::max(most_out, layer.out);
    if (l > 0) most_in = std::max(most_in, layer.in);
  }
  slots_ = rows_;
  rows_ += kSlots * slot_bytes_;
  const int64_t in = layers_[0].in;
  x_panels_ = take(threads_bytes_, panel_elements<T>(kChunk, in));
  x_ = take(threads_bytes_, size_t(kChunk * padded_ld<T>(in)));
  x_upper_ = take(threads_bytes_, size_t(kChunk * padded_ld<T>(most_in)));
  sparse_ = take(threads_bytes_, sparse_scratch_bytes<T>(most_out), 1);
  order_ = take(threads_bytes_, size_t(kChunk), sizeof(int32_t));
  threads_bytes_ = align_up(threads_bytes_, 4096);
}

template <typename T>
typename SharedMlpStep<T>::Share SharedMlpStep<T>::share(size_t rank) const {
  Share s{};
  s.segment = segments_[rank];
  s.n = s.head().n;
  s.scale = s.head().scale;
  s.chunks = (s.n + kChunk - 1) / kChunk;
  std::byte* at = s.segment + rows_;
  const auto take = [&at](size_t bytes) { return std::exchange(at, at + align_up(bytes)); };
  s.labels = reinterpret_cast<int32_t*>(take(size_t(s.n) * sizeof(int32_t)));
  s.losses = reinterpret_cast<double*>(take(size_t(groups_of<T>(s.n)) * sizeof(double)));
  s.corrects = reinterpret_cast<int32_t*>(take(size_t(groups_of<T>(s.n)) * sizeof(int32_t)));
  s.bytes = reinterpret_cast<uint8_t*>(at);
  s.set = s.head().set;
  s.order = s.head().order;
  return s;
}

// Includes space for a vector read past the last sample.
template <typename T>
size_t SharedMlpStep<T>::segment_bytes(int64_t n) const {
  const auto groups = size_t(groups_of<T>(n));
  return rows_ + align_up(size_t(n) * sizeof(int32_t)) + align_up(groups * sizeof(double)) +
         align_up(groups * sizeof(int32_t)) + align_up(size_t(n * layers_[0].in) + 64);
}

template <typename T>
void SharedMlpStep<T>::bind(std::vector<std::byte*> segments, int rank, std::byte* workspace) {
  segments_ = std::move(segments);
  rank_ = size_t(rank);
  workspace_ = workspace;
}

// --- which tasks are ready ---

template <typename T>
bool SharedMlpStep<T>::in_small_tasks() const {
  return threads_ > 1 || reinterpret_cast<const Head*>(segments_[0])->stealing.get() > 0;
}

template <typename T>
bool SharedMlpStep<T>::published(size_t rank) const {
  return reinterpret_cast<const Head*>(segments_[rank])->published.get() == step_;
}

template <typename T>
int64_t SharedMlpStep<T>::finished_chunks(const Share& s) const {
  uint64_t least = UINT64_MAX;
  for (size_t i = 0; i < lanes_.size(); ++i) least = std::min(least, s.head().lanes[i].get() / 2);
  return int64_t(least);
}

template <typename T>
bool SharedMlpStep<T>::finished(const Share& s) const {
  return finished_chunks(s) == s.chunks;
}

// A chunk's slot is free when all lanes have added the chunk that was in it. `first` is the value
// read from the counter; a task is taken only by a compare-exchange from that value.
template <typename T>
bool SharedMlpStep<T>::units_ready(const Share& s, uint64_t first) const {
  const auto row = int64_t(first) * kUnit;
  return row < s.n && row / kChunk < finished_chunks(s) + kSlots;
}

// A lane is ready when all units of its next chunk are done. Before the first chunk replaces the
// last step's sums, all ranks must have fetched them.
template <typename T>
bool SharedMlpStep<T>::lane_ready(const Share& s, uint64_t state) const {
  const auto chunk = int64_t(state / 2);
  if (state % 2 != 0 || chunk >= s.chunks) return false;
  const int64_t rows = std::min(kChunk, s.n - chunk * kChunk);
  const int64_t units = chunk / kSlots * (kChunk / kUnit) + (rows + kUnit - 1) / kUnit;
  if (int64_t(s.head().passed[chunk % kSlots].get()) < units) return false;
  return chunk > 0 ||
         std::all_of(segments_.begin(), segments_.end(), [&](const std::byte* segment) {
           return reinterpret_cast<const Head*>(segment)->fetched.get() + 1 >= step_;
         });
}

template <typename T>
bool SharedMlpStep<T>::ready(const Share& s) const {
  for (size_t i = 0; i < lanes_.size(); ++i) {
    if (lane_ready(s, s.head().lanes[i].get())) return true;
  }
  return units_ready(s, s.head().units.get());
}

// --- tasks ---

template <typename T>
bool SharedMlpStep<T>::take_units(const Share& s, Worker& w) const {
  Head& head = s.head();
  const uint64_t first = head.units.get();
  if (!units_ready(s, first)) return false;
  const int64_t begin = int64_t(first) * kUnit, chunk = begin / kChunk;
  const bool wanted = in_small_tasks();
  const int64_t end = std::min(wanted ? begin + kUnit : (chunk + 1) * kChunk, s.n);
  const auto units = uint64_t((end - begin + kUnit - 1) / kUnit);
  if (!head.units.take(first, first + units)) return true;  // taken by another thread: look again
  pass_rows(s, w, chunk, {begin - chunk * kChunk, end - chunk * kChunk});
  head.passed[chunk % kSlots].value.fetch_add(units, std::memory_order_acq_rel);
  return true;
}

template <typename T>
bool SharedMlpStep<T>::take_lanes(const Share& s, Worker& w) const {
  Head& head = s.head();
  const bool wanted = in_small_tasks();
  size_t taken[kMostLanes], count = 0;
  int64_t chunk = -1;
  for (size_t i = 0; i < lanes_.size() && (count == 0 || !wanted); ++i) {
    const uint64_t state = head.lanes[i].get();
    if (!lane_ready(s, state) || (chunk >= 0 && int64_t(state / 2) != chunk)) continue;
    if (!head.lanes[i].take(state, state + 1)) continue;
    chunk = int64_t(state / 2);
    taken[count++] = i;
  }
  for (size_t first = 0; first < count;) {  // neighbours together
    const Lane& lane = lanes_[taken[first]];
    Range rows = lane.rows;
    size_t next = first + 1;
    for (; next < count && taken[next] == taken[next - 1] + 1 &&
           lanes_[taken[next]].layer == lane.layer;
         ++next) {
      rows.end = lanes_[taken[next]].rows.end;
    }
    add_gradients(s, w, chunk, lane.layer, rows);
    first = next;
  }
  for (size_t k = 0; k < count; ++k) head.lanes[taken[k]].set(2 * uint64_t(chunk) + 2);
  return count > 0;
}

// --- the step ---

// Copies the data that others need to compute this share into its segment: their sets may hold
// other samples.
template <typename T>
void SharedMlpStep<T>::publish(ThreadPool& pool, const MlpBatch<T>& batch, int64_t n,
                               double scale) {
  Head& head = *reinterpret_cast<Head*>(segments_[rank_]);
  head.n = n;
  head.scale = scale;
  head.set = one_process_ ? batch.set : nullptr;
  head.order = batch.order;
  const Share own = share(rank_);
  const int64_t in = layers_[0].in;
  pool.share(n, 1, 64, [&](Range rows) {
    for (int64_t r = rows.begin; r < rows.end; ++r) {
      own.labels[r] = batch.labels[batch.order[r]];
      if (one_process_) continue;
      std::memcpy(own.bytes + r * in, batch.set + int64_t{batch.order[r]} * in, size_t(in));
    }
  });
  head.units.set(0);
  for (Counter& passed : head.passed) passed.set(0);
  for (size_t i = 0; i < lanes_.size(); ++i) head.lanes[i].set(0);
  step_ = head.published.get() + 1;
  head.published.set(step_);
}

template <typename T>
void SharedMlpStep<T>::work(int thread, const Wait* wait) const {
  Worker w{workspace_ + size_t(thread) * threads_bytes_};
  auto* order = reinterpret_cast<int32_t*>(w.scratch + order_);
  for (int64_t r = 0; r < kChunk; ++r) order[r] = int32_t(r);
  auto& stealing = reinterpret_cast<Head*>(segments_[0])->stealing.value;
  const size_t ranks = segments_.size();
  bool is_stealing = false;
  // Runs one task of some share, trying this rank's own first. Returns false if there is none to
  // take.
  const auto take_any = [&] {
    for (size_t k = 0; k < ranks; ++k) {
      const size_t r = (rank_ + k) % ranks;
      if (k == 1 && !is_stealing)
        is_stealing = true, stealing.fetch_add(1, std::memory_order_relaxed);
      if (!published(r)) continue;
      const Share s = share(r);
      if (take_lanes(s, w) || take_units(s, w)) return true;
    }
    return false;
  };
  const auto all_finished = [&] {
    for (size_t r = 0; r < ranks; ++r) {
      if (!published(r) || !finished(share(r))) return false;
    }
    return true;
  };
  const std::function<bool()> something = [&] {
    for (size_t r = 0; r < ranks; ++r) {
      if (published(r) && ready(share(r))) return true;
    }
    rest();
    return all_finished();
  };
  for (;;) {
    if (take_any()) continue;
    if (all_finished()) break;
    if (wait != nullptr) {
      (*wait)(something);
    } else if (!something()) {
      std::this_thread::yield();
    }
  }
  if (is_stealing) stealing.fetch_sub(1, std::memory_order_relaxed);
}

template <typename T>
MlpScore SharedMlpStep<T>::contribute(ThreadPool& pool, const MlpBatch<T>& batch, int64_t n,
                                      double scale, const Wait& wait) {
  in_scale_ = batch.scale;
  in_shift_ = batch.shift;
  publish(pool, batch, n, scale);
  pool.run([&](int thread) { work(thread, thread == 0 ? &wait : nullptr); });
  MlpScore score{};
  const Share own = share(rank_);
  for (int64_t g = 0; g < groups_of<T>(n); ++g) {
    score.loss += own.losses[g];
    score.correct += own.corrects[g];
  }
  return score;
}

template <typename T>
MlpScore SharedMlpStep<T>::run(ThreadPool& pool, const MlpBatch<T>& batch, int64_t n, double scale,
                               const Sgd<T>& sgd, const Wait& wait) {
  if (segments_.size() == 1) forget();
  const MlpScore score = contribute(pool, batch, n, scale, wait);
  Head& head = *reinterpret_cast<Head*>(segments_[rank_]);
  add_up(pool);
  head.summed.set(step_);
  wait([&] {
    return std::all_of(segments_.begin(), segments_.end(), [&](const std::byte* segment) {
      return reinterpret_cast<const Head*>(segment)->summed.get() >= step_;
    });
  });
  update(pool, sgd);
  head.fetched.set(step_);
  return score;
}

template <typename T>
void SharedMlpStep<T>::forget() {
  for (std::byte* segment : segments_) new (segment) Head{};
}

template class SharedMlpStep<float>;
template class SharedMlpStep<double>;

}  // namespace ridgeline::cpu::simd
