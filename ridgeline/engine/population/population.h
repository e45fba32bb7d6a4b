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

// One net of a population: how it is trained, and on what.
struct Member {
  Config config;
  std::shared_ptr<const data::DataSet> set;
};

struct MemberResult {
  TrainReport report;
  std::string error;         // a loss that diverged; the report is empty then
  int64_t pruned_after = 0;  // epochs after which it was stopped for others' sake; 0: it was not
  double score = 0;          // larger is better (TrainSession::score); NaN: none
  std::vector<std::byte> model{};  // the bytes of its model file, where they are wanted
};

// How the members of a population lie on the machine.
struct PopulationLayout {
  size_t members = 0, groups = 0;
  int side_by_side = 1;  // members that train at once
  int threads_each = 1;  // of the CPU
  int ranks = 1;         // that train as many each
};

struct PopulationOptions {
  // One member at a time with all threads, each planned for itself; else members of one shape share
  // a plan, and as many as there are threads train at once.
  bool one_by_one = false;
  std::optional<HalvingOptions> prune{};
  bool models = false;           // results have the bytes of model files
  std::filesystem::path folder;  // of checkpoints, one folder a member; empty: none are kept
  // Which members to train. Empty: all.
  std::vector<bool> wanted{};
  // The results that members have from before, which others are pruned by.
  struct Known {
    size_t member;
    double score;
    int64_t pruned_after;
  };
  std::vector<Known> known{};
  MemberJobs* jobs = nullptr;  // that this process shares with others (halving_of); null: its own
  std::function<int()> stop;   // asked now and then: not 0 stops it, as that signal would
  Communicator* ranks = nullptr;  // that share the work of each member, one by one; null: alone
  int threads = 0;                // of all members together where configs leave it open; 0: all
  std::function<void(const PopulationLayout&)> started;
  // One call at a time, from any thread: when a member begins, and when its result has come.
  std::function<void(size_t member)> begins;
  std::function<void(size_t member, const MemberResult& result)> finished;
};

struct PopulationResult {
  PopulationLayout layout;
  int stopped_by = 0;  // a signal's number; members under way have no result
  // What ended it early beside that, and of which member; results before it stand.
  std::optional<Error> failed;
  size_t failed_member = 0;
};

// Text that is equal for two configs exactly when one plan fits both: ops, shapes, types, data and
// run settings. Rates, decays, momenta, dropout, clipping, weights of the loss, seeds, orders and
// the length of the run may differ.
std::string shape_key(const Config& config, const data::DataSet& set);

// What decides about the members to train, as options say.
Halving halving_of(const std::vector<Member>& members, const PopulationOptions& options);

// Trains every member. Each one's result is what train() gives for it alone with as many threads;
// bit for bit with run.deterministic.
PopulationResult train_population(const std::vector<Member>& members,
                                  const PopulationOptions& options);

// The folder of a member below that of the population.
std::filesystem::path member_folder(const std::filesystem::path& folder, size_t member);

}  // namespace ridgeline::engine
