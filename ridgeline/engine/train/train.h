#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "ridgeline/data/sample_set.h"
#include "ridgeline/engine/config.h"
#include "ridgeline/engine/evaluate.h"
#include "ridgeline/engine/mpi_info.h"
#include "ridgeline/engine/progress.h"
#include "ridgeline/engine/train/kernel_names.h"
#include "ridgeline/engine/train/observer.h"
#include "ridgeline/prof/limit.h"
#include "ridgeline/prof/network.h"

namespace ridgeline::engine {

struct TrainOptions {
  std::filesystem::path out;           // empty: no files are written
  std::filesystem::path data;          // --data; empty: the default places
  std::filesystem::path init;          // a model file to start from; empty: from the initialisers
  const nn::Model* initial = nullptr;  // initial weights, of a model with the same layers
  bool resume = false;
  // What a stopped run says after "train --resume"; empty: its folder.
  std::string continued_by;
  bool force = false;            // replace the run in `out`
  bool histograms = false;       // of the weights, in TensorBoard's event files
  std::filesystem::path trace;   // a timeline of the run as trace-event JSON; empty: none
  std::filesystem::path report;  // folder for report.html; empty: none
  Progress::Style progress = Progress::Style::automatic;
  std::shared_ptr<const data::DataSet> set;  // already loaded; else by config.data.name
  std::shared_ptr<TrainObserver> observer;   // an additional one of the caller
  bool signals = true;                       // SIGINT, SIGTERM and SIGHUP end the run normally
  // Polled between launches: a number other than 0 ends the run normally, as that signal would.
  std::function<int()> stop;
  // The kernels and ceilings of another run of the same shape, so that nothing is measured.
  KernelNames kernels{};
  std::optional<prof::Ceilings> ceilings{};
  bool only_checkpoints = false;  // `out` gets neither metrics.jsonl nor TensorBoard's events
  // Uses kept ceilings even if the machine was busy when they were measured, so that short runs of
  // one program do not each measure for a second.
  bool any_ceilings = false;
  // All ranks call train() with the same config; the root writes files and messages. Null: one
  // rank.
  Communicator* ranks = nullptr;
};

struct TrainReport {
  int64_t steps = 0;                          // in total, including those before a resume
  int64_t steps_here = 0;                     // in this process
  double train_loss = 0, train_accuracy = 0;  // mean over the last epoch's steps of this process
  Evaluation test;                            // at the end
  std::optional<Evaluation> validation;       // the last one
  // The best value of train.monitor on the validation set, and its step; -1: there was none.
  Metric monitor = Metric::loss;
  double best_value = 0;
  int64_t best_step = -1;
  bool kept_best = false;      // the model is that of best_step, not of the last step
  bool stopped_early = false;  // by train.patience
  int64_t clipped_steps = 0;
  int64_t skipped_steps = 0;  // because of overflowing gradients; in a run with a loss scale
  double loss_scale = 0;      // at the end; 0: none
  // Seconds of this process; train_seconds excludes evaluations and checkpoints.
  double startup_seconds = 0, tuning_seconds = 0, train_seconds = 0, test_seconds = 0;
  double inputs_per_second = 0, flops_per_second = 0;
  std::optional<prof::Ceilings> ceilings;
  std::optional<prof::Limit> limit;  // of one full step
  double limit_fraction = 0;         // over all steps of this process
  std::string device, precision, data;
  bool texts = false;      // the set holds texts; else images
  bool user_data = false;  // samples are a user's own data of any kind
  int threads = 0;
  int64_t parameters = 0;
  MemoryUse memory;  // of the training plan
  KernelNames kernels;
  std::string plan_source;  // of the training plan
  int stopped_by = 0;       // a signal's number; 0: ran to its end
  int ranks = 1;
  prof::Network network;  // for several ranks, measured between them
  MpiInfo mpi;            // for several ranks
  // Per full step: the bytes that a rank sends, and the seconds that they should take on this
  // network without overlap.
  double network_bytes = 0, network_seconds = 0;
  // Per rank: seconds of train_seconds, and the part of them in which it could only wait for others
  // (in steps; on a GPU collectives run in the graph and are not counted here).
  std::vector<double> rank_seconds, rank_blocked_seconds;

  double seconds_per_step() const {
    return steps_here > 0 ? train_seconds / double(steps_here) : 0;
  }
};

// Trains, evaluates and writes checkpoints. Throws Error(numeric) if the loss stays NaN or
// infinite, naming the step and the layer, and if gradients overflow at every loss scale.
TrainReport train(const Config& config, const TrainOptions& options);

nlohmann::json to_json(const TrainReport& report);
std::string summary(const TrainReport& report);  // a few lines for people

}  // namespace ridgeline::engine
