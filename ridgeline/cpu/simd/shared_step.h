#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "ridgeline/cpu/simd/mlp_step.h"

namespace ridgeline::cpu::simd {

// One SGD step of a multilayer perceptron that the ranks of one host make together, through a room
// of each that all of them see. A rank begins with its own share of the batch, and when nothing of
// that is left to take, it helps others with theirs: a slow core holds nobody up. Who computes a
// piece does not change a bit of it: the pieces are fixed, and every sum has one order, first that
// of a share's chunks, then that of the ranks.
//
// A share passes through in chunks of 128 rows, of which a room holds two at a time. The pieces are
//   units  64 rows of a chunk: forward, loss, and backward to the dz of every layer
//   lanes  some rows of a layer's dw, to which the chunks are added one after the other
// Where nobody looks for work, a thread takes all pieces of a chunk at once.
//
// At the end each rank adds up a part of all shares' gradients, and all fetch the parts, with which
// each updates its own weights.
template <typename T>
class SharedMlpStep {
 public:
  static constexpr size_t kMostLanes = 64;  // and layers
  // Calls its argument again and again until that is true.
  using Wait = std::function<void(const std::function<bool()>&)>;

  SharedMlpStep(std::vector<MlpLayer<T>> layers, int threads);

  size_t room_bytes(int64_t n) const;  // for a share of n rows
  size_t workspace_bytes() const { return threads_bytes_ * size_t(threads_); }
  // A room a rank: aligned to 64 bytes, zero before any step; all ranks have the same layers. The
  // workspace is aligned like them.
  void bind(std::vector<std::byte*> rooms, int rank, std::byte* workspace);

  // Collective. `n` > 0 rows of this rank, whose loss is scaled by `scale`; both may differ among
  // ranks. The score is that of these rows. Neither allocates nor throws (but `wait`).
  MlpScore run(ThreadPool& pool, const MlpBatch<T>& batch, int64_t n, double scale,
               const Sgd<T>& sgd, const Wait& wait);

  // The same for ranks that are threads of one process and have the same weights, one after the
  // other. Rooms lie equally far apart.
  void be_threads() { one_process_ = true; }
  void forget();  // before a step, once for all: what is in the rooms is not of one
  // Ends when the gradients of all shares are in their rooms.
  MlpScore contribute(ThreadPool& pool, const MlpBatch<T>& batch, int64_t n, double scale,
                      const Wait& wait);
  void update_part(const Sgd<T>& sgd) const;  // this rank's of the weights

 private:
  struct Head;    // of a room: counters
  struct Share;   // what lies in a room
  struct Worker;  // a thread's scratch, and what it holds
  struct Lane {
    size_t layer;
    Range rows;  // of dw
  };
  struct Offsets {
    size_t dw, db;    // in the room
    size_t y, z, dz;  // in one of its two slots
  };

  Share share(size_t rank) const;
  bool in_small_pieces() const;
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
  size_t slots_ = 0, slot_bytes_ = 0, rows_ = 0;  // rows_: where what grows with n begins
  size_t x_panels_ = 0, x_ = 0, x_upper_ = 0, sparse_ = 0, order_ = 0, threads_bytes_ = 0;
  std::vector<std::byte*> rooms_;
  size_t rank_ = 0;
  bool one_process_ = false;
  std::byte* workspace_ = nullptr;
  T in_scale_ = 1, in_shift_ = 0;
  uint64_t step_ = 0;  // counted over all steps that these rooms have seen
};

}  // namespace ridgeline::cpu::simd
