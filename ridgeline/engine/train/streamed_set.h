#pragma once

#include <memory>

#include "ridgeline/core/uploader.h"
#include "ridgeline/data/sample_set.h"
#include "ridgeline/nn/lower.h"
#include "ridgeline/ops/augmentation.h"
#include "ridgeline/plan/plan.h"

namespace ridgeline::engine {

// A training set that stays in host memory. The device holds a window of the samples that the next
// launch gathers, in their order; the window after it is assembled and copied while the device
// computes. Images are shifted and mirrored here, exactly as GatherAugment would.
class StreamedSet {
 public:
  // `window` is the most samples that one launch gathers. The set must outlive this.
  StreamedSet(Runtime& runtime, const data::SampleSet& set, int64_t window,
              const Augmentation& augmentation);

  void set_order(std::vector<int32_t> order, int64_t epoch);
  // The samples order[first, first + count) become samples 0, 1, ... of the window.
  void place(int64_t first, int64_t count);
  // Starts to copy what the next place() will need.
  void prefetch(int64_t first, int64_t count);

  void bind(const nn::Lowered& lowered, Externals& externals) const;
  int64_t window() const { return window_; }

 private:
  void put_input(int64_t sample, uint8_t* to) const;

  Runtime& runtime_;
  const data::SampleSet& set_;
  int64_t window_;
  Augmentation augmentation_;
  size_t input_bytes_, target_bytes_;  // of a sample
  size_t targets_at_;                  // in a window, after the inputs
  size_t lengths_at_;                  // after the targets; for sequences
  size_t weights_at_;                  // after the lengths; if samples have weights
  DeviceBuffer device_, iota_;
  std::unique_ptr<Uploader> uploader_;
  std::vector<int32_t> order_;
  int64_t epoch_ = 0;
  int64_t sent_first_ = -1, sent_count_ = 0;  // part of the order that is in flight or placed
};

// Whether the set should be streamed: on request, or if it is too large for the device's free
// memory.
bool better_streamed(const Runtime& runtime, const data::SampleSet& set,
                     std::optional<bool> resident);

}  // namespace ridgeline::engine
