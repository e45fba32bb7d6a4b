#pragma once

#include <memory>
#include <optional>

#include "ridgeline/engine/bound_predictor.h"
#include "ridgeline/engine/plain_inputs.h"

namespace ridgeline::engine {

struct PrepareOptions {
  int64_t batch = 1;  // the most samples of a call; with `timesteps`, streams side by side
  std::string device = "auto";      // auto | cpu | cuda | cuda:N
  int threads = 1;                  // 0: all that this process may use
  bool tune = true;                 // measure which kernels are fastest here; else a fixed order
  std::optional<DType> inputs;      // of the samples: fp32 or uint8; none: the model's own
  Answer answer = Answer::outputs;  // or logits
  // A call brings one timestep of each stream, and recurrent state stays from call to call.
  bool timesteps = false;
  // The weights stay on a GPU's chip, whose multiprocessors wait for the next call.
  OneSampleOptions one_sample{};
};

// A model that is ready to answer for up to `batch` samples: a plan bound to memory, which run()
// copies samples to and outputs from. On a CPU with one thread, run() allocates nothing, takes no
// lock, wakes no thread and makes no system call, but for what it throws. One call at a time.
class PreparedPredictor {
 public:
  // `loaded` is copied from, and not needed afterwards. Throws usage where the model cannot be
  // asked in the way of the options, device where the device is not there.
  PreparedPredictor(const LoadedModel& loaded, const PrepareOptions& options);

  int64_t batch() const { return batch_; }
  bool timesteps() const { return timesteps_; }
  DType input_type() const { return inputs_.given(); }
  const Shape& input_shape() const { return inputs_.shape(); }  // of one sample
  int64_t inputs() const { return inputs_.elements(); }         // numbers of one sample
  int64_t outputs() const { return predictor_->width(); }       // numbers for one sample

  // Outputs [count][outputs()] of samples [count][inputs()] of input_type(), 0 <= count <= batch
  // (count == batch where calls bring timesteps): probabilities of a classifier, values of a
  // regressor in the units of its targets. Throws usage for a wrong count, data for a sample that
  // the model does not take.
  void run(const void* samples, int64_t count, float* outputs);
  // The same for memory of the GPU that it computes on, which it does not wait for. Throws usage
  // where the host has a part in preparing samples or outputs.
  void run_on_gpu(const void* samples, int64_t count, float* outputs);
  Runtime& runtime() { return machine_.runtime(); }

  // Recurrent state of all streams, as one block of bytes that means something to a predictor of
  // the same model, batch and precision. 0 bytes: the model carries none.
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
  std::vector<float> unscale_, unshift_;  // one an output, of values; empty: as they are
};

}  // namespace ridgeline::engine
