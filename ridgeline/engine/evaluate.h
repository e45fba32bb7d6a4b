#pragma once

#include <functional>
#include <memory>

#include "ridgeline/core/thread_pool.h"
#include "ridgeline/engine/evaluation.h"
#include "ridgeline/engine/model_io.h"
#include "ridgeline/engine/resident_set.h"
#include "ridgeline/engine/runner.h"
#include "ridgeline/engine/weights.h"

namespace ridgeline::engine {

// Returns metrics of a model's outputs, [n, outputs] for all samples of a set, besides the loss
// that it was trained with. `units` as for score_values().
Scores score(const data::SampleSet& set, std::span<const float> outputs, nn::LossKind loss,
             std::span<const double> units = {});

// Returns the size of an error of 1 of each output in the data's own units, for values that a
// preparation has scaled; empty for anything else.
std::vector<double> target_units(const data::Preparation* preparation, const data::SampleSet& set);

// Evaluates a model over a resident set: loss, accuracy and scores. Each rank computes a share. If
// the samples have weights, all are weighted means; a set of sequences then has no accuracy.
class Evaluator {
 public:
  // The set must outlive this. `pinned` are the kernels of a checkpoint, or none; `pinned_tail`
  // those of the last, smaller batch. `stays` says that the set is never replaced.
  Evaluator(Machine& machine, const Config& config, const nn::Model& model,
            const data::SampleSet& set, const data::Scaling& scaling,
            const std::vector<std::string>& pinned = {},
            const std::vector<std::string>& pinned_tail = {}, bool stays = false);

  void replace(const data::SampleSet& set);  // by another of the same shapes
  void set_units(std::vector<double> units) { units_ = std::move(units); }
  // Called after each launch of run(), on its thread; what it throws ends the evaluation.
  void set_between_batches(std::function<void()> call) { between_batches_ = std::move(call); }
  // Plans for these weights, which must be of the same model; run() does so if needed.
  void prepare(const Weights& weights);
  Evaluation run(const Weights& weights);
  const Runner& runner() const { return *main_; }     // after prepare()
  const Runner* tail() const { return tail_.get(); }  // for the samples left over, or null
  bool planned() const { return main_ != nullptr; }
  int64_t batches() const { return (samples_.end - samples_.begin) / batch_; }  // full ones
  // The outputs of the last run() for all samples, [n, outputs]; probabilities for classes. Empty
  // for sequences and for sets with too many outputs to keep, which have no scores.
  const std::vector<float>& outputs() const { return outputs_; }

 private:
  std::unique_ptr<Runner> make(int64_t batch, const Weights& weights,
                               const std::vector<std::string>& pinned);

  bool keeps_outputs() const { return base_.outputs; }
  void keep_outputs(const Runner& runner, int64_t first);
  void share_outputs();
  double loss_of_probabilities() const;
  double total_weight() const;  // of all samples

  Machine& machine_;
  const nn::Model& model_;
  const data::SampleSet* source_;
  nn::LowerOptions base_;
  ResidentSet set_;
  std::vector<std::string> pinned_, pinned_tail_;
  // Each rank computes a part. Consecutive chunks of a text depend on each other, so each rank
  // computes all.
  bool shared_;
  Range samples_;  // this rank's
  int64_t batch_;
  std::unique_ptr<Runner> main_, tail_;  // tail_: the samples left over, if any
  std::vector<float> outputs_;
  std::vector<double> units_;
  std::function<void()> between_batches_;
};

// Evaluates a model file on one part of a set. If `data_name` is empty, it is the set that the
// model was trained on. A model of a user's own data takes a file or folder; `target`, if not
// empty, is a file that holds the targets.
Evaluation evaluate_file(const std::filesystem::path& file, const std::string& data_name,
                         data::Part part, const std::filesystem::path& data_dir,
                         const ModelOptions& options, std::vector<std::string>& warnings,
                         Communicator* ranks = nullptr, const std::string& target = {});

}  // namespace ridgeline::engine
