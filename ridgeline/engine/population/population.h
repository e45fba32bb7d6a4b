#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ridgeline/engine/population/member_jobs.h"
#include "ridgeline/engine/train/train.h"

namespace ridgeline::engine {

// One net of a population: its config and its data.
struct Member {
  Config config;
  std::shared_ptr<const data::DataSet> set;
};

struct MemberResult {
  TrainReport report;
  std::string error;               // set if the loss diverged; the report is then empty
  int64_t pruned_after = 0;        // epochs after which it was pruned; 0: it was not
  double score = 0;                // larger is better (TrainSession::score); NaN: none
  std::vector<std::byte> model{};  // the bytes of its model file, if wanted
};

// How the members of a population are placed on the machine.
struct PopulationLayout {
  size_t members = 0, groups = 0;
  int side_by_side = 1;  // members that train at once
  int threads_each = 1;  // CPU threads per member
  int ranks = 1;         // each trains as many
};

struct PopulationOptions {
  // If true, members train one at a time with all threads, each planned for itself; else members of
  // one shape share a plan, and as many as there are threads train at once.
  bool one_by_one = false;
  std::optional<HalvingOptions> prune{};
  bool models = false;           // results include the bytes of model files
  std::filesystem::path folder;  // of checkpoints, one folder per member; empty: no checkpoints
  // The members to train. Empty: all.
  std::vector<bool> wanted{};
  // Results that members have from an earlier run, and by which others are pruned.
  struct EarlierResult {
    size_t member;
    double score;
    int64_t pruned_after;
  };
  std::vector<EarlierResult> known{};
  MemberJobs* jobs = nullptr;     // shared with other processes (halving_of); null: its own
  std::function<int()> stop;      // polled: a value other than 0 stops it, as that signal would
  Communicator* ranks = nullptr;  // share the work of each member, one by one; null: alone
  int threads = 0;                // of all members together if the configs leave it open; 0: all
  std::function<void(const PopulationLayout&)> started;
  // Called when a member begins and when its result is complete; one call at a time, from any
  // thread.
  std::function<void(size_t member)> begins;
  std::function<void(size_t member, const MemberResult& result)> finished;
};

struct PopulationResult {
  PopulationLayout layout;
  int stopped_by = 0;  // a signal's number; members under way have no result
  // The error that ended it early, and its member; earlier results are valid.
  std::optional<Error> failed;
  size_t failed_member = 0;
};

// Returns a text that is equal for two configs exactly if one plan fits both: ops, shapes, types,
// data and run settings. Rates, decays, momenta, dropout, clipping, weights of the loss, seeds,
// orders and the length of the run may differ.
std::string shape_key(const Config& config, const data::DataSet& set);

// Returns the scheduler of the members to train, by the options.
Halving halving_of(const std::vector<Member>& members, const PopulationOptions& options);

// Trains every member. Each one's result is that of train() for it alone with as many threads; bit
// for bit with run.deterministic.
PopulationResult train_population(const std::vector<Member>& members,
                                  const PopulationOptions& options);

// Returns the folder of a member inside that of the population.
std::filesystem::path member_folder(const std::filesystem::path& folder, size_t member);

}  // namespace ridgeline::engine
