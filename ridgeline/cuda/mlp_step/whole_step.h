#pragma once

#include "ridgeline/cuda/captured_step.h"
#include "ridgeline/cuda/kernel.h"
#include "ridgeline/cuda/mlp_step/head.h"
#include "ridgeline/cuda/plain/gather.h"
#include "ridgeline/cuda/tile/product.h"
#include "ridgeline/cuda/workspace.h"

// Helpers of the kernels that run a whole training step of a perceptron as several launches.
namespace ridgeline::cuda {

// Offsets of the slices of a workspace.
struct StepLayout {
  WorkspaceSlices slices;
  HeadLayout head;

  size_t take(size_t bytes) { return slices.take_offset(bytes); }
};

// The cover of a matched step that uses this workspace.
inline Cover step_cover(const MlpStepOps& step, const StepLayout& layout) {
  if (layout.head.parts == 0) return Cover::no("the last layer does not fit on chip");
  Cover cover = Cover::of(step.ops);
  cover.skips = step.inside;
  cover.workspace = layout.slices.total();
  return cover;
}

inline std::string describe(const MlpStepOps& step) {
  std::string text = fmt::format("mlp_step of {} samples, {}", step.inputs->y.shape[0],
                                 step.layers.front().linear->in());
  for (const MlpStepOps::Layer& layer : step.layers) {
    text += fmt::format("-{}", layer.linear->out());
  }
  return text;
}

class MlpWholeStep : public CapturedStep {
 public:
  // `counters`: words that are 0 between launches.
  MlpWholeStep(const MlpStepOps& step, int counters, const Binding& binding)
      : CapturedStep(binding, describe(step)),
        base_(reinterpret_cast<std::byte*>(
            WorkspaceSlices::aligned(reinterpret_cast<uintptr_t>(binding.workspace())))),
        counters_(binding.runtime(), counters) {}

 protected:
  unsigned* counters() const { return counters_.get(); }
  template <typename U>
  U* at(size_t offset) const {
    return reinterpret_cast<U*>(base_ + offset);
  }

  // Everything except the destination of the images.
  GatherArgs bind_gather(const MlpStepOps& step, size_t label, const Binding& binding) const {
    GatherArgs gather;
    gather.set = binding.read(step.inputs->set).as<uint8_t>();
    gather.labels = binding.read(step.targets->set).as<int32_t>();
    gather.label = at<int32_t>(label);
    gather.order = binding.read(step.inputs->order).as<int32_t>();
    gather.first = binding.read(step.inputs->first).as<int64_t>();
    gather.tick = binding.read(step.inputs->tick).as<int32_t>();
    gather.n = step.inputs->y.shape[0];
    gather.sample_size = step.inputs->y.shape.numel() / gather.n;
    gather.scale = step.inputs->scale;
    gather.shift = step.inputs->shift;
    return gather;
  }

 private:
  std::byte* base_;
  TileCounters counters_;
};

}  // namespace ridgeline::cuda
