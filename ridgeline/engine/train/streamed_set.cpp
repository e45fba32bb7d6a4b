#include "ridgeline/engine/train/streamed_set.h"

#include <cstring>
#include <numeric>

#include "ridgeline/core/buffer.h"
#include "ridgeline/data/inputs_in_place.h"
#include "ridgeline/registry.h"

namespace ridgeline::engine {

StreamedSet::StreamedSet(Runtime& runtime, const data::SampleSet& set, int64_t window,
                         const Augmentation& augmentation)
    : runtime_(runtime),
      set_(set),
      window_(window),
      augmentation_(augmentation),
      input_bytes_(set.input_bytes()),
      target_bytes_(set.targets.view().bytes() / size_t(set.size())),
      targets_at_(align_up(input_bytes_ * size_t(window), 256)),
      lengths_at_(align_up(targets_at_ + target_bytes_ * size_t(window), 256)),
      weights_at_(
          align_up(lengths_at_ + (set.has_lengths() ? size_t(window) * sizeof(int32_t) : 0), 256)),
      device_(runtime, weights_at_ + (set.has_weights() ? size_t(window) * sizeof(float) : 0)),
      iota_(runtime, size_t(window) * sizeof(int32_t)),
      uploader_(runtime.make_uploader(device_.size())) {
  std::vector<int32_t> order(static_cast<size_t>(window));
  std::iota(order.begin(), order.end(), 0);
  runtime.upload(iota_.data(), order.data(), order.size() * sizeof order[0]);
}

void StreamedSet::set_order(std::vector<int32_t> order, int64_t epoch) {
  order_ = std::move(order);
  epoch_ = epoch;
  sent_first_ = -1;
}

void StreamedSet::put_input(int64_t sample, uint8_t* to) const {
  const auto* from =
      static_cast<const uint8_t*>(set_.inputs.view().data) + size_t(sample) * input_bytes_;
  if (augmentation_.shift == 0 && !augmentation_.flip) {
    std::memcpy(to, from, input_bytes_);
    return;
  }
  const Shape shape = set_.sample_shape();
  const int64_t width = shape[shape.rank() - 1];
  const int64_t height = shape.rank() > 1 ? shape[shape.rank() - 2] : 1;
  const auto [down, right, flip] =
      Augmentation::draw(augmentation_.seed, augmentation_.shift, augmentation_.flip,
                         uint64_t(epoch_), uint64_t(sample));
  const uint8_t outside = set_.codes > 0 ? uint8_t(set_.codes - 1) : uint8_t(0);
  for (size_t plane = 0; plane < input_bytes_; plane += size_t(height * width)) {
    for (int64_t p = 0; p < height; ++p) {
      for (int64_t q = 0; q < width; ++q) {
        const int64_t y = p - down, x = (flip ? width - 1 - q : q) - right;
        const bool inside = y >= 0 && y < height && x >= 0 && x < width;
        to[plane + size_t(p * width + q)] = inside ? from[plane + size_t(y * width + x)] : outside;
      }
    }
  }
}

void StreamedSet::prefetch(int64_t first, int64_t count) {
  const std::span<std::byte> block = uploader_->block();
  const auto* targets = static_cast<const std::byte*>(set_.targets.view().data);
  auto* inputs = reinterpret_cast<uint8_t*>(block.data());
  const auto wanted = std::span<const int32_t>(order_).subspan(size_t(first), size_t(count));
  if (set_.source) set_.source->gather(wanted, block.first(wanted.size() * input_bytes_));
  for (int64_t i = 0; i < count; ++i) {
    const int64_t sample = wanted[size_t(i)];
    if (!set_.source) put_input(sample, inputs + size_t(i) * input_bytes_);
    std::memcpy(block.data() + targets_at_ + size_t(i) * target_bytes_,
                targets + size_t(sample) * target_bytes_, target_bytes_);
  }
  if (set_.has_lengths()) {
    auto* lengths = reinterpret_cast<int32_t*>(block.data() + lengths_at_);
    const auto all = set_.lengths.span<const int32_t>();
    for (const int32_t sample : wanted) *lengths++ = all[size_t(sample)];
  }
  if (set_.has_weights()) {
    auto* weights = reinterpret_cast<float*>(block.data() + weights_at_);
    const auto all = set_.weights.span<const float>();
    for (const int32_t sample : wanted) *weights++ = all[size_t(sample)];
  }
  uploader_->send();
  sent_first_ = first;
  sent_count_ = count;
}

void StreamedSet::place(int64_t first, int64_t count) {
  if (sent_first_ != first || sent_count_ < count) prefetch(first, count);
  uploader_->place(device_.data());
}

void StreamedSet::bind(const nn::Lowered& lowered, Externals& externals) const {
  const auto add = [&](const Value& value, std::byte* memory) {
    if (value) externals[value.id] = {memory, value.dtype, value.shape, runtime_.device()};
  };
  add(lowered.inputs, device_.data());
  add(lowered.targets, device_.data() + targets_at_);
  add(lowered.order, iota_.data());
  add(lowered.lengths, device_.data() + lengths_at_);
  add(lowered.sample_weights, device_.data() + weights_at_);
}

bool better_streamed(const Runtime& runtime, const data::SampleSet& set,
                     std::optional<bool> resident) {
  if (resident) return !*resident;
  if (data::inputs_on(set, runtime.device()) != nullptr) return false;
  // On a CPU a set is in memory already, unless it is in a file, where it may stay.
  if (runtime.device().is_host()) return set.source != nullptr;
  // Weights, activations and the test set need memory too.
  const size_t inputs = set.input_bytes() * size_t(set.size());
  return 2 * (inputs + set.targets.view().bytes()) > runtime.free_memory();
}

}  // namespace ridgeline::engine
