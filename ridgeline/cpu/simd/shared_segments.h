#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "ridgeline/cpu/simd/shared_step.h"

// The contents of the shared segments of SharedMlpStep, for its own two files: shared_step.cpp
// schedules the tasks, shared_step_compute.cpp computes them.
namespace ridgeline::cpu::simd {

inline constexpr int64_t kUnit = 64;  // samples of a unit: whole panels
inline constexpr int64_t kSlots = 2;  // chunks of a share that may be in progress
// Rows of dw in a lane: a fifth of a millisecond of work for 784 inputs, much more than the time to
// fetch them from another core's cache.
inline constexpr int64_t kLaneRows = 128;

// Each polled counter has a cache line of its own.
struct alignas(64) Counter {
  std::atomic<uint64_t> value;

  uint64_t get() const { return value.load(std::memory_order_acquire); }
  void set(uint64_t v) { value.store(v, std::memory_order_release); }
  bool take(uint64_t from, uint64_t to) {
    return value.compare_exchange_strong(from, to, std::memory_order_acq_rel);
  }
};
static_assert(std::atomic<uint64_t>::is_always_lock_free, "counters are shared by processes");

// `published`, `summed` and `fetched` count steps; the others restart with each step.
template <typename T>
struct SharedMlpStep<T>::Head {
  Counter published;          // the samples of that step are in the segment
  Counter summed;             // this rank's part of the sums of that step is done
  Counter fetched;            // this rank has everyone's parts
  Counter stealing;           // in the first segment: threads that look for work in others' shares
  Counter units;              // taken
  Counter passed[kSlots];     // completed units, of all chunks that used the slot
  Counter lanes[kMostLanes];  // 2c: c chunks are added; 2c + 1: and a thread is adding the next
  int64_t n;
  double scale;
  const uint8_t* set;  // null: the samples are in the segment
  const int32_t* order;
};

template <typename T>
struct SharedMlpStep<T>::Share {
  std::byte* segment;
  int64_t n, chunks;
  double scale;
  int32_t* labels;  // [n]
  double* losses;   // one for each group of samples
  int32_t* corrects;
  uint8_t* bytes;  // [n, in]
  const uint8_t* set;
  const int32_t* order;

  Head& head() const { return *reinterpret_cast<Head*>(segment); }
  T* at(size_t offset) const { return reinterpret_cast<T*>(segment + offset); }
};

template <typename T>
struct SharedMlpStep<T>::Worker {
  std::byte* scratch;
  // The share and chunk whose inputs are in the scratch: for layer 0, and for the last layer above
  // it that was requested.
  const std::byte *segment = nullptr, *upper_segment = nullptr;
  int64_t chunk = -1, upper_chunk = -1;
  size_t upper_layer = 0;

  T* at(size_t offset) const { return reinterpret_cast<T*>(scratch + offset); }
};

// Calls f(elements, position in the segment, weights, momentum) for each tensor.
template <typename T>
template <typename F>
void SharedMlpStep<T>::each_tensor(F f) const {
  for (size_t l = 0; l < layers_.size(); ++l) {
    const MlpLayer<T>& layer = layers_[l];
    f(layer.in * layer.out, offsets_[l].dw, layer.w, layer.mw);
    if (layer.b != nullptr) f(layer.out, offsets_[l].db, layer.b, layer.mb);
  }
}

}  // namespace ridgeline::cpu::simd
