#pragma once

#include <memory>
#include <optional>

#include "ridgeline/data/batches.h"
#include "ridgeline/data/image_set.h"
#include "ridgeline/engine/evaluate.h"

namespace ridgeline::engine {

// Names of the rows that each plan of a run is made of; kept in checkpoints.
struct RowNames {
  std::vector<std::string> train, tail, evaluate;
};

// A run's model, weights, data and plans on one machine. It steps and evaluates; when to do so, and
// what to keep, is train()'s business.
class Trainer {
 public:
  Trainer(Machine& machine, const Config& config, std::shared_ptr<const data::DataSet> set,
          const RowNames& pinned = {});

  // Makes up to `most` steps (at least one) in one launch, never past the end of an epoch. Returns
  // how many.
  int64_t advance(int64_t most);

  // Of the last advance(), one number a step; waits for the device.
  std::span<const double> losses() { return last_->losses(); }
  std::span<const int32_t> corrects() { return last_->corrects(); }
  int64_t last_batch() const { return last_batch_; }  // rows of each step of the last advance()

  void prepare_evaluation() { evaluator_.prepare(weights_); }  // ahead of time: it plans
  Evaluation evaluate() { return evaluator_.run(weights_); }

  int64_t step() const { return step_; }  // steps made
  int64_t steps_per_epoch() const { return batches_.batches(); }
  int64_t total_steps() const;  // by epochs and max_steps
  double lr(int64_t step) const;
  int64_t clipped_steps() const;
  std::optional<double> gradient_norm() const;  // of the last step, where clipping computes it
  const data::BatchPlan& batches() const { return batches_; }

  Snapshot snapshot() const { return weights_.download(); }
  void restore(const Snapshot& snapshot, int64_t step);
  // The model with the weights of this moment.
  const nn::Model& model();

  Machine& machine() { return machine_; }
  const Config& config() const { return config_; }
  const data::DataSet& set() const { return *set_; }
  const data::Scaling& scaling() const { return scaling_; }
  nn::LowerOptions train_options(int64_t batch, int64_t repeats) const;

  Runner& runner() { return *full_; }  // of a full batch (the only one, if all fit in one)
  Runner* tail() { return tail_.get(); }
  RowNames rows() const;
  double tuning_seconds() const;

 private:
  std::unique_ptr<Runner> make_runner(int64_t batch, int64_t repeats,
                                      const std::vector<std::string>& pinned);

  Machine& machine_;
  Config config_;
  std::shared_ptr<const data::DataSet> set_;
  data::Scaling scaling_;
  data::BatchPlan batches_;
  nn::Model model_;
  ResidentSet resident_;
  Weights weights_;
  Evaluator evaluator_;
  std::unique_ptr<Runner> full_, tail_;
  Runner* last_ = nullptr;
  int64_t last_batch_ = 0;
  int64_t step_ = 0;
  int64_t held_epoch_ = -1;  // whose order the device has
  RowNames pinned_;
  std::vector<double> rates_;
};

}  // namespace ridgeline::engine
