#include "ridgeline/engine/population/population.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <thread>

#include "ridgeline/core/launch_group.h"
#include "ridgeline/core/machine_limits.h"
#include "ridgeline/core/thread_pool.h"
#include "ridgeline/engine/machine.h"
#include "ridgeline/engine/signals.h"
#include "ridgeline/engine/train/session.h"

namespace ridgeline::engine {
namespace fs = std::filesystem;
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr int kAbandoned = -1;  // stops the other members when one has failed

// The state that the members of a group share, taken from the first of them.
struct Group {
  size_t members = 0;
  KernelNames kernels{};
  std::optional<prof::Ceilings> ceilings{};
};

// The most members with joint launches on a GPU, one thread each. Other members run one after
// another: with threads and streams of their own, a graph that one thread captured was invalidated
// by another (cudaErrorStreamCaptureInvalidated; the call that does it is unknown).
constexpr size_t kMostTogether = 1024;

std::vector<size_t> members_to_train(size_t members, const std::vector<bool>& wanted) {
  std::vector<size_t> list;
  for (size_t i = 0; i < members; ++i) {
    if (wanted.empty() || wanted[i]) list.push_back(i);
  }
  return list;
}

// Enters a thread into the joint launches of a GPU, from the start of its work until it ends or is
// idle for a while.
class LaunchGroupEntry {
 public:
  explicit LaunchGroupEntry(LaunchGroup* group) : group_(group) { enter(); }
  ~LaunchGroupEntry() { leave(); }
  LaunchGroupEntry(const LaunchGroupEntry&) = delete;
  LaunchGroupEntry& operator=(const LaunchGroupEntry&) = delete;
  void enter() const {
    if (group_ != nullptr) group_->enter();
  }
  void leave() const noexcept {
    if (group_ != nullptr) group_->leave();
  }

 private:
  LaunchGroup* group_;
};

// The state of one call of train_population(): threads take jobs until none is left.
// A member's session belongs to the thread that has its job, and between jobs to no thread.
class Training {
 public:
  Training(const std::vector<Member>& members, const PopulationOptions& options)
      : members_(members),
        options_(options),
        list_(members_to_train(members.size(), options.wanted)),
        sessions_(members.size()),
        group_of_(members.size()),
        own_jobs_(halving_of(members, options), /*movable=*/true),
        jobs_(options.jobs != nullptr ? *options.jobs : own_jobs_) {
    form_groups();
    lay_out();
  }

  PopulationResult run() {
    const SignalGuard signals;
    if (launches_) {
      plan_on_gpu();
      if (options_.started) options_.started(result_.layout);
    } else {
      if (options_.started) options_.started(result_.layout);
      plan_groups();
    }
    if (result_.layout.side_by_side == 1) {
      work();  // on this thread, because a GPU belongs to the thread that opened it
    } else {
      work_on_threads();
    }
    if (thrown_) std::rethrow_exception(thrown_);
    if (stopped_ > 0) {
      result_.stopped_by = stopped_;
    } else if (results_ < list_.size() && !result_.failed) {
      result_.stopped_by = asked_to_stop();
    }
    return std::move(result_);
  }

 private:
  void form_groups() {
    std::map<std::string, size_t> known;
    for (const size_t i : list_) {
      const std::string key = shape_key(members_[i].config, *members_[i].set);
      group_of_[i] = known.try_emplace(key, known.size()).first->second;
    }
    groups_.resize(known.size());
    for (const size_t i : list_) ++groups_[group_of_[i]].members;
  }

  void lay_out() {
    PopulationLayout& layout = result_.layout;
    layout.members = list_.size();
    layout.groups = groups_.size();
    if (list_.empty()) return;
    const RunConfig& run = members_[list_.front()].config.run;
    layout.threads_each = run.threads;
    // A sweep over devices or threads compares times: its runs must not disturb each other.
    const bool alike = std::ranges::all_of(list_, [&](size_t i) {
      const RunConfig& each = members_[i].config.run;
      return each.threads == run.threads && each.device == run.device;
    });
    one_by_one_ = options_.one_by_one || options_.ranks != nullptr || !alike;
    if (one_by_one_) return;
    if (const Device device = choose_device(run.device); !device.is_host()) {
      if (list_.size() > 1) launches_ = make_launch_group(device);
      return;
    }
    const int given = run.threads == 0 ? options_.threads : run.threads;
    const int threads = affordable_threads(resolve_threads(given));
    layout.side_by_side = int(std::min(size_t(threads), list_.size()));
    layout.threads_each = threads / layout.side_by_side;
  }

  // Plans the first member of each group while nothing else disturbs the measurements. Members that
  // run one after another are planned when they start.
  void plan_groups() {
    if (result_.layout.side_by_side == 1) return;
    std::vector<bool> planned(groups_.size());
    int kept = 0;
    for (const size_t i : list_) {
      if (planned[group_of_[i]]) continue;
      planned[group_of_[i]] = true;
      try {
        sessions_[i] = open(i, /*alone=*/options_.jobs == nullptr);
      } catch (const Error&) {
        continue;  // the member's own job will hit and report it
      }
      learn(i, *sessions_[i]);
      // More than can run at once would only fill the memory, and another process may train it.
      if (++kept > result_.layout.side_by_side || options_.jobs != nullptr) sessions_[i].reset();
    }
  }

  // Plans the first member of each group, with the jointly launched kernel if that covers the
  // program. The GPU memory of a session decides how many run side by side.
  void plan_on_gpu() {
    const LaunchGroupEntry entry(launches_.get());
    std::vector<bool> planned(groups_.size());
    bool joint = true;
    size_t most_bytes = 1;
    for (const size_t i : list_) {
      Group& group = groups_[group_of_[i]];
      if (planned[group_of_[i]]) continue;
      planned[group_of_[i]] = true;
      const std::vector<std::string> wanted{launches_->kernel()};
      if (group.members > 1) group.kernels.train = group.kernels.tail = wanted;
      const size_t before = launches_->free_bytes();
      try {
        auto session = open(i, /*alone=*/options_.jobs == nullptr);
        if (group.members > 1 && session->kernels().train != wanted) {
          session.reset();
          group.kernels = {};
          session = open(i, /*alone=*/options_.jobs == nullptr);
        }
        joint = joint && session->kernels().train == wanted;
        group.kernels = {};
        learn(i, *session);
        const size_t after = launches_->free_bytes();
        most_bytes = std::max(most_bytes, before - std::min(before, after));
      } catch (const Error&) {
        group.kernels = {};
        joint = false;  // the member's own job will hit and report it
      }
    }
    const size_t room = std::max<size_t>(1, launches_->free_bytes() / 4 * 3 / most_bytes);
    const size_t most = joint ? std::min({kMostTogether, room, list_.size()}) : 1;
    result_.layout.side_by_side = most > 1 ? affordable_threads(int(most)) : 1;
    result_.layout.threads_each = 1;
  }

  void learn(size_t member, const TrainSession& session) {
    Group& group = groups_[group_of_[member]];
    if (!group.kernels.train.empty()) return;
    group.kernels = session.kernels();
    group.ceilings = session.report().ceilings;
  }

  int asked_to_stop() const {
    if (const int stopped = stopped_; stopped != 0) return stopped;
    const int signal = SignalGuard::caught();
    return signal == 0 && options_.stop ? options_.stop() : signal;
  }
  // Ranks continue until all have agreed to stop, which a session does.
  bool is_stopped() const {
    return options_.ranks != nullptr ? stopped_ != 0 : asked_to_stop() != 0;
  }

  // `alone`: no other process may use the member's folder.
  std::unique_ptr<TrainSession> open(size_t member, bool alone = true) {
    Config config = members_[member].config;
    TrainOptions options;
    options.set = members_[member].set;
    options.ranks = options_.ranks;
    options.progress = Progress::Style::none;
    options.signals = false;
    options.stop = [this] { return asked_to_stop(); };
    if (!one_by_one_) {
      config.run.threads = result_.layout.threads_each;
      options.any_ceilings = true;
      options.kernels = groups_[group_of_[member]].kernels;
      options.ceilings = groups_[group_of_[member]].ceilings;
    }
    if (!options_.folder.empty() && alone) {
      options.out = member_folder(options_.folder, member);
      options.only_checkpoints = true;
      std::error_code ignored;
      options.resume = fs::exists(options.out / "config.toml", ignored);
    }
    return std::make_unique<TrainSession>(config, options);
  }

  void work() {
    const LaunchGroupEntry entry(launches_.get());
    while (!is_stopped()) {
      const std::optional<Halving::Job> job = jobs_.next();
      if (!job && !jobs_.may_come()) break;
      if (!job) {
        entry.leave();
        jobs_.wait();
        entry.enter();
        continue;
      }
      const Outcome outcome = make(*job);
      if (outcome.made) jobs_.reached(*job, outcome.score, outcome.ended);
    }
  }

  // This thread works too. If the system now grants fewer threads than before, those that exist do
  // all the work.
  void work_on_threads() {
    std::vector<std::jthread> others;
    try {
      while (int(others.size()) + 1 < result_.layout.side_by_side) {
        others.emplace_back([this] { work_on_thread(); });
      }
    } catch (const std::system_error&) {  // NOLINT: fewer will do
    }
    work_on_thread();
  }

  // An exception that is no Error (out of memory) must end the population, not the process.
  void work_on_thread() {
    try {
      work();
    } catch (...) {
      const std::lock_guard lock(results_mutex_);
      if (!thrown_) thrown_ = std::current_exception();
      stopped_ = kAbandoned;
    }
  }

  struct Outcome {
    double score = kNone;
    bool ended = true;
    bool made = false;  // else the job was stopped
  };

  // Trains a member up to a rung or to its end. An exception becomes its result, or ends all.
  Outcome make(const Halving::Job& job) {
    const size_t member = job.member;
    Outcome outcome;
    outcome.made = guard(member, [&] {
      auto& session = sessions_[member];
      if (!session) session = open(member);
      if (!one_by_one_ && result_.layout.side_by_side == 1) learn(member, *session);
      if (session->step() == 0 && options_.begins) {
        const std::lock_guard lock(results_mutex_);
        options_.begins(member);
      }
      session->run_to_epoch(job.epochs);
      if (const int by = session->stopped_by(); by != 0) {
        session->finish();  // writes a checkpoint
        session.reset();
        int none = 0;
        stopped_.compare_exchange_strong(none, by);
        return false;
      }
      outcome.score = session->score();
      outcome.ended = job.prune || session->has_ended();
      if (outcome.ended) {
        conclude(member, job.prune);
      } else if (!options_.folder.empty()) {
        session->save();  // limits the files and memory of members that may never go on
        session.reset();
      }
      return true;
    });
    return outcome;
  }

  void conclude(size_t member, bool pruned) {
    TrainSession& session = *sessions_[member];
    MemberResult result;
    result.pruned_after = pruned ? session.epoch() : 0;
    result.report = session.finish();
    result.score = session.score();
    if (options_.models) result.model = session.model_bytes();
    sessions_[member].reset();
    report_finished(member, result);
  }

  // Returns the result of f; if it throws, returns whether the member has a result.
  template <typename F>
  bool guard(size_t member, F f) {
    try {
      return f();
    } catch (const Error& error) {
      sessions_[member].reset();
      // A rate that diverges is a result of the study; anything else is a fault.
      if (error.kind() == ErrorKind::numeric) {
        MemberResult result;
        result.error = error.what();
        result.score = kNone;
        report_finished(member, result);
        return true;
      }
      const std::lock_guard lock(results_mutex_);
      if (result_.failed) return false;
      result_.failed.emplace(error.kind(), error.what());
      result_.failed_member = member;
      int none = 0;
      stopped_.compare_exchange_strong(none, kAbandoned);
      return false;
    }
  }

  void report_finished(size_t member, const MemberResult& result) {
    const std::lock_guard lock(results_mutex_);
    ++results_;
    if (options_.finished) options_.finished(member, result);
  }

  const std::vector<Member>& members_;
  const PopulationOptions& options_;
  const std::vector<size_t> list_;
  PopulationResult result_;
  bool one_by_one_ = true;
  std::unique_ptr<LaunchGroup> launches_;  // for a GPU; outlives the sessions
  std::vector<std::unique_ptr<TrainSession>> sessions_;
  std::vector<size_t> group_of_;
  std::vector<Group> groups_;
  std::atomic<int> stopped_ = 0;  // a signal's number, or kAbandoned
  std::mutex results_mutex_;      // results_, result_.failed, thrown_ and the callbacks
  std::exception_ptr thrown_;
  size_t results_ = 0;
  JobBoard own_jobs_;
  MemberJobs& jobs_;
};

}  // namespace

fs::path member_folder(const fs::path& folder, size_t member) {
  return folder / fmt::format("{:05}", member);
}

Halving halving_of(const std::vector<Member>& members, const PopulationOptions& options) {
  std::vector<int64_t> epochs;
  for (const Member& member : members) epochs.push_back(member.config.train.epochs);
  Halving halving(std::move(epochs), members_to_train(members.size(), options.wanted),
                  options.prune);
  for (const auto& known : options.known) {
    halving.know(known.member, known.score, known.pruned_after);
  }
  return halving;
}

PopulationResult train_population(const std::vector<Member>& members,
                                  const PopulationOptions& options) {
  return Training(members, options).run();
}

}  // namespace ridgeline::engine
