#pragma once

#include <memory>
#include <optional>

#include "ridgeline/engine/bound_predictor.h"
#include "ridgeline/engine/plain_inputs.h"

namespace ridgeline::engine {

struct PrepareOptions {
  int64_t batch = 1;                // the most samples per call; with `timesteps`, parallel streams
  std::string device = "auto";      // auto | cpu | cuda | cuda:N
  int threads = 1;                  // 0: all that this process may use
  bool tune = true;                 // measures which kernels are fastest here; else a fixed order
  std::optional<DType> inputs;      // of the samples: fp32 or uint8; none: the model's own
  Answer answer = Answer::outputs;  // or logits
  // Each call brings one timestep per stream, and recurrent state is carried from call to call.
  bool timesteps = false;
  // The weights stay on a GPU's chip, whose multiprocessors poll for the next call.
  OneSampleOptions one_sample{};
};

// A model prepared to predict up to `batch` samples: a plan bound to memory, which run() copies
// samples to and outputs from. On a CPU with one thread, run() allocates nothing, takes no lock,
// wakes no thread and makes no system call, unless it throws. One call at a time.
class PreparedPredictor {
 public:
  // Copies what it needs from `loaded`. Throws Error(usage) if the model does not support the
  // options, Error(device) if the device does not exist.
  PreparedPredictor(const LoadedModel& loaded, const PrepareOptions& options);

  int64_t batch() const { return batch_; }
  bool timesteps() const { return timesteps_; }
  DType input_type() const { return inputs_.given(); }
  const Shape& input_shape() const { return inputs_.shape(); }  // of one sample
  int64_t codes() const { return inputs_.codes(); }             // see PlainInputs
  int64_t inputs() const { return inputs_.elements(); }         // numbers of one sample
  int64_t outputs() const { return predictor_->width(); }       // numbers for one sample

  // Computes outputs [count][outputs()] of samples [count][inputs()] of input_type(), 0 <= count <=
  // batch (count == batch if calls bring timesteps): probabilities for a classifier, values in the
  // units of its targets for a regressor. Throws Error(usage) for a wrong count, Error(data) for a
  // sample that the model does not accept.
  void run(const void* samples, int64_t count, float* outputs);
  // Does the same in memory of the GPU that it computes on, and does not wait. Throws Error(usage)
  // if the host takes part in preparing samples or outputs.
  void run_on_gpu(const void* samples, int64_t count, float* outputs);
  Runtime& runtime() { return machine_.runtime(); }

  // The recurrent state of all streams, as one block of bytes for a predictor of the same model,
  // batch and precision. 0 bytes: the model has none.
  size_t state_bytes() const { return predictor_->state_bytes(); }
  void save_state(void* bytes) const { predictor_->save_state(bytes); }
  void restore_state(const void* bytes) { predictor_->restore_state(bytes); }
  void reset_state() { predictor_->reset_state(); }  // as before the first timestep

  std::vector<std::string> kernel_names() const { return predictor_->kernel_names(); }

 private:
  void check_count(int64_t count) const;

  int64_t batch_ = 1;
  bool timesteps_ = false;
  PlainInputs inputs_;
  Machine machine_;
  std::unique_ptr<BoundPredictor> predictor_;
  std::vector<float> unscale_, unshift_;  // for values, one per output; empty: unchanged
};

}  // namespace ridgeline::engine
