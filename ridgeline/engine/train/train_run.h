#pragma once

#include "ridgeline/engine/train/checkpoint.h"
#include "ridgeline/engine/train/observer.h"
#include "ridgeline/engine/train/run_folder.h"
#include "ridgeline/engine/train/train.h"
#include "ridgeline/engine/train/trainer.h"

// Only files of this folder include this. A run is set up in train_run_setup.cpp, trains and ends
// in train.cpp, and writes its report in train_run_report.cpp.
namespace ridgeline::engine {

// Returns how many steps the next launch makes, at most `most`, if one step takes `step_seconds`
// (0: not known yet). A shortened launch makes a power of two: a device keeps a graph for each size
// so far, and varying times would otherwise create ever new ones.
int64_t launch_steps(int64_t most, double step_seconds);

// The state of one call of train().
class TrainRun {
 public:
  TrainRun(const Config& config, const TrainOptions& options);
  TrainReport run();

  // The parts of run(): begin, run_to any number of times, finish.
  void begin();
  // Makes steps up to this step, or until the run ends for another reason. Launches end with their
  // epoch, so it should be the end of an epoch.
  void run_to(int64_t step);
  bool has_ended() const {
    return trainer_->step() >= end_ || report_.stopped_by != 0 || out_of_patience();
  }
  void end_here() { end_ = trainer_->step(); }
  TrainReport finish();
  // The score by which runs are compared, larger is better: train.monitor on the validation set,
  // which is evaluated if needed, or else the last epoch's mean loss. NaN: none.
  double score();
  void save();
  Trainer& trainer() { return *trainer_; }
  const TrainReport& report() const { return report_; }

 private:
  void announce();
  int64_t steps_to_make() const;
  void advance();
  void read_results(int64_t before);
  [[noreturn]] void give_up(std::string_view which, double loss, int64_t end);
  void check_loss_scale();
  std::string kept_checkpoint() const;
  void log();
  void keep_safe();
  void require_finite(const Snapshot& now);
  bool is_finite(const Snapshot& now);
  // Evaluates on the validation set if there is one, else on the test set. `scheduled`: at a
  // multiple of eval_every; the end of a run may be elsewhere.
  void evaluate(bool scheduled);
  void evaluate_test();
  bool evaluates() const { return trainer_->has_validation() || trainer_->has_test(); }
  void ask_observers();  // ends the run here if one of them wants to stop
  std::string show_evaluation(const Evaluation& result, bool validation, const Clock& clock);
  bool consider_best(const Evaluation& result);
  bool out_of_patience() const;
  void restore_best();
  void check_monitor() const;
  void show();
  void watch(std::shared_ptr<TrainObserver> observer) { observers_.push_back(std::move(observer)); }
  // Reports to the observers what has just taken `clock`'s seconds.
  void report_span(const char* what, const Clock& clock, int64_t steps = 0);
  CheckpointInfo share_info(CheckpointInfo info);
  void gather_times();
  void gather_spans();
  void measure_network();

  // agreed() gives every rank the root's value, for things that only the root can know or decide.
  bool root() const { return ranks_ == nullptr || ranks_->is_root(); }
  template <typename T>
  T agreed(T value) const {
    return ranks_ != nullptr ? ranks_->from_root(value) : value;
  }

  Config config_;
  const TrainOptions options_;
  Communicator* const ranks_;  // null: alone
  const Clock since_start_;
  Progress progress_;
  std::unique_ptr<RunFolder> folder_;
  std::vector<std::shared_ptr<TrainObserver>> observers_;
  std::vector<HostSpan> spans_;  // of a rank that is not the root
  double blocked_before_ = 0;
  std::unique_ptr<Machine> machine_;
  std::unique_ptr<Trainer> trainer_;
  TrainReport report_;

  int64_t end_ = 0;
  prof::Limit full_limit_, tail_limit_;
  double flops_ = 0, limit_seconds_ = 0, blocked_seconds_ = 0;
  double step_seconds_ = 0;  // recent average
  int64_t samples_here_ = 0;
  Tally epoch_, since_log_;
  double logged_seconds_ = 0,
         logged_limit_ = 0;  // train_seconds and limit_seconds_ at the last log
  int64_t logged_samples_ = 0;
  bool evaluated_ = false;     // at this step
  BestWeights best_;           // by the validation set
  std::string last_score_;     // of the last evaluation, for the bar
  int64_t scale_checked_ = 0;  // the step of the last check of the loss scale
  double last_save_ = 0;
  int64_t saved_step_ = -1;

  Snapshot safe_;  // the last known good state
  int64_t safe_step_ = 0;
  double safe_at_ = 0;
  int64_t bad_since_ = 0;  // the first of the latest steps with losses that are not finite; 0: none
  int64_t ruined_step_ = 0;  // the first step after which weights were not finite; 0: none
};

}  // namespace ridgeline::engine
