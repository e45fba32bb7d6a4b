#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "ridgeline/data/batches.h"
#include "ridgeline/data/sample_set.h"
#include "ridgeline/engine/evaluate.h"
#include "ridgeline/engine/train/kernel_names.h"
#include "ridgeline/engine/train/streamed_set.h"

namespace ridgeline::engine {

// A run's model, weights, data and plans on one machine. It makes steps and evaluates; train()
// decides when, and what to keep.
class Trainer {
 public:
  Trainer(Machine& machine, const Config& config, std::shared_ptr<const data::DataSet> set,
          const KernelNames& pinned = {});

  // Makes up to `most` steps (at least one) in one launch, never past the end of an epoch. Returns
  // how many.
  int64_t advance(int64_t most);

  // One number for each step of the last advance(), over all ranks. Waits for the device.
  // Collective.
  std::span<const double> losses() { return fetch(), losses_; }
  std::span<const int32_t> corrects() { return fetch(), corrects_; }
  int64_t last_batch() const { return last_batch_; }  // samples of each step of the last advance()
  // Seconds of the last advance() in which this rank could only wait for others.
  double blocked_seconds() const { return blocked_; }

  void prepare_evaluation();  // in advance, because it plans
  bool has_test() const { return evaluator_.has_value(); }
  Evaluation evaluate() { return evaluator_->run(weights_); }  // on the test set
  bool has_validation() const { return validator_.has_value(); }
  Evaluation validate() { return validator_->run(weights_); }
  const std::vector<float>& test_outputs() const { return evaluator_->outputs(); }

  int64_t step() const { return step_; }  // steps made
  int64_t steps_per_epoch() const { return batches_.batches(); }
  int64_t total_steps() const;  // by epochs and max_steps
  nn::RunLength run_length() const { return {steps_per_epoch(), total_steps()}; }
  double lr(int64_t step) const;
  // Changes the rate that the schedule gives a step; none: it is unchanged.
  using RateChange = std::function<double(int64_t step, double scheduled)>;
  void change_rates(RateChange change) { rate_change_ = std::move(change); }
  int64_t clipped_steps() const;
  std::optional<double> gradient_norm() const;  // of the last step, if clipping computes it
  // For a run with a loss scale; 0 without. These wait for the device.
  double loss_scale() const;
  int64_t skipped_steps() const;  // whose gradients overflowed
  const data::BatchPlan& batches() const { return batches_; }

  Snapshot snapshot() const { return weights_.download(); }
  void restore(const Snapshot& snapshot, int64_t step);
  // The weights of the model alone, as in a snapshot, and their restoration.
  Snapshot model_snapshot() const;
  void restore_model(const Snapshot& weights);
  // Takes the weights of a model with the same layers; throws Error(usage) if they do not fit.
  void start_from(const nn::Model& model);
  // The model with the current weights.
  const nn::Model& model();

  Machine& machine() { return machine_; }
  const Config& config() const { return config_; }
  const data::DataSet& set() const { return *set_; }
  const data::Scaling& scaling() const { return scaling_; }
  // The options for this rank's share of a batch, and for the whole batch.
  nn::LowerOptions train_options(int64_t batch, int64_t repeats) const;
  nn::LowerOptions whole_options(int64_t batch, int64_t repeats) const;
  int ranks() const { return ranks_; }
  bool streams_data() const { return streams_; }  // the set is not on the device

  Runner& runner() { return *full_; }  // of a full batch (the only one if all samples fit)
  Runner* tail() { return tail_.get(); }
  KernelNames kernels() const;
  double tuning_seconds() const;

 private:
  void fetch();
  void local_order(int64_t epoch, std::span<int32_t> order) const;
  int64_t local_samples(int64_t batch) const;  // samples that this rank computes, at least one
  bool order_on_device(int64_t epoch);
  void hold_order(int64_t epoch);
  void make_order(int64_t epoch);
  void make_next_order(int64_t epoch);
  void prefetch_next(int64_t epoch);
  int64_t launch_steps() const;  // of full batches, at most
  std::unique_ptr<Runner> make_runner(int64_t batch, int64_t repeats,
                                      const std::vector<std::string>& pinned);

  Machine& machine_;
  int rank_, ranks_;
  Config config_;
  std::shared_ptr<const data::DataSet> set_;
  data::Scaling scaling_;
  data::BatchPlan batches_;
  nn::Model model_;
  bool streams_;
  std::optional<ResidentSet> resident_;  // one of these two
  std::optional<StreamedSet> streamed_;
  Weights weights_;
  std::optional<Evaluator> evaluator_, validator_;
  std::unique_ptr<Runner> full_, tail_;
  Runner* last_ = nullptr;
  int64_t last_batch_ = 0;
  int64_t step_ = 0;
  int64_t held_epoch_ = -1;          // the epoch whose order is on the device
  bool on_device_ = false;           // the device computed it
  int64_t next_epoch_ = -1;          // the epoch whose order was made last and is in flight
  std::vector<int32_t> next_order_;  // for a set that is streamed
  KernelNames pinned_;
  RateChange rate_change_;
  std::vector<double> rates_;
  std::vector<double> losses_;
  std::vector<int32_t> corrects_;
  bool fetched_ = true;
  double blocked_ = 0;
};

}  // namespace ridgeline::engine
