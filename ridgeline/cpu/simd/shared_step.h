#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "ridgeline/cpu/simd/mlp_step.h"

namespace ridgeline::cpu::simd {

// One SGD step of a multilayer perceptron that the ranks of one host run together, by work
// stealing. Each rank has a segment of shared memory that all of them see. A rank begins with its
// own share of the batch, and when no task of that is left, it steals tasks from the other shares,
// so that a slow core delays nobody. The result does not depend on who computes a task: the tasks
// are fixed, and every sum has one order, first over the chunks of a share, then over the ranks.
//
// A share is processed in chunks of 128 samples, of which a segment holds two at a time. The tasks:
//   units  64 samples of a chunk: forward, loss, and backward to the dz of every layer
//   lanes  some rows of a layer's dw, to which the chunks are added one after the other
// When no thread is stealing, a thread takes all tasks of a chunk at once.
//
// At the end each rank adds up a part of all shares' gradients, and all fetch the parts, with which
// each updates its own weights.
template <typename T>
class SharedMlpStep {
 public:
  static constexpr size_t kMostLanes = 64;  // and layers
  // Calls its argument repeatedly until it returns true.
  using Wait = std::function<void(const std::function<bool()>&)>;

  SharedMlpStep(std::vector<MlpLayer<T>> layers, int threads);

  size_t segment_bytes(int64_t n) const;  // for a share of n samples
  size_t workspace_bytes() const { return threads_bytes_ * size_t(threads_); }
  // One segment for each rank: aligned to 64 bytes, zero before any step; all ranks have the same
  // layers. The workspace is aligned like them.
  void bind(std::vector<std::byte*> segments, int rank, std::byte* workspace);

  // Collective. `n` > 0 samples of this rank, whose loss is scaled by `scale`; both may differ
  // among ranks. The score is that of these samples. Neither allocates nor throws (but `wait`).
  MlpScore run(ThreadPool& pool, const MlpBatch<T>& batch, int64_t n, double scale,
               const Sgd<T>& sgd, const Wait& wait);

  // For ranks that are threads of one process and share its weights: contribute(), then
  // update_part(). The segments must be equally far apart.
  void be_threads() { one_process_ = true; }
  void forget();  // resets all segments; call it once before a step if they hold anything else
  // Ends when the gradients of all shares are in their segments.
  MlpScore contribute(ThreadPool& pool, const MlpBatch<T>& batch, int64_t n, double scale,
                      const Wait& wait);
  void update_part(const Sgd<T>& sgd) const;  // this rank's part of the weights

 private:
  struct Head;    // the counters at the beginning of a segment
  struct Share;   // the contents of a segment
  struct Worker;  // a thread's scratch, and which inputs it holds
  struct Lane {
    size_t layer;
    Range rows;  // of dw
  };
  struct Offsets {
    size_t dw, db;    // in the segment
    size_t y, z, dz;  // in one of its two slots
  };

  Share share(size_t rank) const;
  bool in_small_tasks() const;
  int64_t finished_chunks(const Share& s) const;
  bool finished(const Share& s) const;
  bool units_ready(const Share& s, uint64_t first) const;
  bool lane_ready(const Share& s, uint64_t state) const;
  bool ready(const Share& s) const;
  bool published(size_t rank) const;

  void publish(ThreadPool& pool, const MlpBatch<T>& batch, int64_t n, double scale);
  void work(int thread, const Wait* wait) const;
  bool take_lanes(const Share& s, Worker& w) const;
  bool take_units(const Share& s, Worker& w) const;
  void gather(const Share& s, const Worker& w, Range rows, T* x, T* panels) const;
  void pass_rows(const Share& s, Worker& w, int64_t chunk, Range rows) const;
  void add_gradients(const Share& s, Worker& w, int64_t chunk, size_t layer, Range rows) const;
  const T* inputs(const Share& s, Worker& w, int64_t chunk, size_t layer) const;
  void add_up(ThreadPool& pool) const;
  void update(ThreadPool& pool, const Sgd<T>& sgd) const;
  template <typename F>
  void each_tensor(F f) const;

  std::vector<MlpLayer<T>> layers_;
  int threads_;
  std::vector<Lane> lanes_;
  std::vector<Offsets> offsets_;
  size_t slots_ = 0, slot_bytes_ = 0, rows_ = 0;  // rows_: beginning of the part that grows with n
  size_t x_panels_ = 0, x_ = 0, x_upper_ = 0, sparse_ = 0, order_ = 0, threads_bytes_ = 0;
  std::vector<std::byte*> segments_;
  size_t rank_ = 0;
  bool one_process_ = false;
  std::byte* workspace_ = nullptr;
  T in_scale_ = 1, in_shift_ = 0;
  uint64_t step_ = 0;  // the number of steps that these segments have seen
};

}  // namespace ridgeline::cpu::simd
