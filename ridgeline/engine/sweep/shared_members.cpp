#include "ridgeline/engine/sweep/shared_members.h"

#include <atomic>
#include <csignal>
#include <deque>
#include <future>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "ridgeline/core/file.h"
#include "ridgeline/core/json.h"
#include "ridgeline/dist/messages.h"
#include "ridgeline/engine/stream/event.h"
#include "ridgeline/engine/sweep/point_json.h"

namespace ridgeline::engine {
namespace {

using nlohmann::json;
using SteadyClock = std::chrono::steady_clock;
using std::chrono::microseconds;

// Messages are JSON. To a rank: {job}, {stop: signal or 0}. From a rank: {places} once it can
// begin, {job, score, ended, point} when a job is done, {left: signal or 0} as the last.
json packed(const Halving::Job& job) { return {job.member, job.epochs, job.prune}; }

Halving::Job read_job(const json& from) {
  return {from.at(0).get<size_t>(), from.at(1).get<int64_t>(), from.at(2).get<bool>()};
}

void send(dist::Messages& messages, int to, const json& message) {
  const std::string text = dump_json(message, -1);
  messages.send(to, {text.begin(), text.end()});
}

std::optional<std::pair<int, json>> receive(dist::Messages& messages) {
  const auto message = messages.poll();
  if (!message) return std::nullopt;
  return std::pair(message->from, parse_json({reinterpret_cast<const char*>(message->body.data()),
                                              message->body.size()}));
}

// Messages in flight need frequent polling; waiting for the next one does not.
void pause(Event& event, bool busy) { event.wait_for(microseconds(busy ? 50 : 1000)); }

// Trains on another thread, because this thread handles messages. `stop` ends it early.
PopulationResult train_on_thread(const std::vector<Member>& members, PopulationOptions options,
                                 std::atomic<int>& stop, const std::function<void()>& poll) {
  options.stop = [&] { return stop.load(); };
  auto training =
      std::async(std::launch::async, [&] { return train_population(members, options); });
  try {
    while (training.wait_for(microseconds(0)) != std::future_status::ready) poll();
  } catch (...) {
    stop = SIGTERM;
    throw;
  }
  return training.get();
}

class Root {
 public:
  Root(dist::RankCommunicator& ranks, const TakePoint& take)
      : ranks_(ranks), take_(take), messages_(ranks.transport()), peers_(size_t(ranks.size())) {}

  PopulationResult run(const std::vector<Member>& members, PopulationOptions options) {
    JobBoard board(halving_of(members, options), /*movable=*/!options.folder.empty());
    board_ = &board;
    options.jobs = &board;
    const bool kept = !options.folder.empty();
    const Hooks hooks(&ranks_,
                      {.lost =
                           [this](int rank, const std::string& what) {
                             write_stderr(fmt::format(
                                 "ridgeline: warning: {}; its members go to others\n", what));
                             lose(rank, what);
                             return true;
                           },
                       .before_exit = {},
                       .advice = {}});
    PopulationResult result = train_on_thread(members, options, stop_, [this] { poll(); });
    if (!result.failed) dismiss(result.stopped_by);
    const std::lock_guard lock(mutex_);
    // A launcher that does not tolerate lost ranks ends the others within a second or two.
    if (result.stopped_by != 0 && SteadyClock::now() - lost_at_ < std::chrono::seconds(10)) {
      throw_error(ErrorKind::comm,
                  "{}, and a signal ended the others: mpirun --enable-recovery lets them go on{}",
                  lost_, kept ? "; continue with --resume" : "");
    }
    return result;
  }

 private:
  struct Peer {
    size_t places = 0, used = 0;
    bool gone = false;  // lost, or it has left
  };

  void poll() {
    bury();
    bool moved = false;
    while (const auto message = receive(messages_)) {
      moved = true;
      handle(message->first, message->second);
    }
    for (size_t rank = 1; rank < peers_.size(); ++rank) {
      Peer& peer = peers_[rank];
      while (!peer.gone && peer.used < peer.places) {
        const auto job = board_->next_for(int(rank));
        if (!job) break;
        ++peer.used;
        send(messages_, int(rank), {{"job", packed(*job)}});
        moved = true;
      }
    }
    if (!moved) pause(event_, messages_.busy());
  }

  void handle(int rank, const json& message) {
    Peer& peer = peers_[size_t(rank)];
    if (peer.gone) return;
    if (message.contains("places")) {
      peer.places = message.at("places").get<size_t>();
    } else if (message.contains("left")) {
      peer.gone = true;
      if (const int by = message.at("left").get<int>(); by != 0) stop_ = by;
    } else {
      const Halving::Job job = read_job(message.at("job"));
      const json& score = message.at("score");
      --peer.used;
      if (message.contains("point")) take_(job.member, read_point(message.at("point")));
      board_->reached_by(
          rank, job,
          score.is_number() ? score.get<double>() : std::numeric_limits<double>::quiet_NaN(),
          message.at("ended").get<bool>());
    }
  }

  // Called by the watchdog's thread. A process that ends closes its connections, its files and
  // their locks in no defined order, so the latter get a moment.
  void lose(int rank, const std::string& what) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    {
      const std::lock_guard lock(mutex_);
      newly_lost_.insert(rank);
      lost_ = what;
      lost_at_ = SteadyClock::now();
    }
    event_.set();
  }

  void bury() {
    const std::lock_guard lock(mutex_);
    for (const int rank : newly_lost_) {
      if (std::exchange(peers_[size_t(rank)].gone, true)) continue;
      messages_.forget(rank);
      board_->lose(rank);
    }
    newly_lost_.clear();
  }

  void dismiss(int signal) {
    for (size_t rank = 1; rank < peers_.size(); ++rank) {
      peers_[rank].places = 0;
      if (!peers_[rank].gone) send(messages_, int(rank), {{"stop", signal}});
    }
    const auto here = [](const Peer& peer) { return !peer.gone; };
    while (std::any_of(peers_.begin() + 1, peers_.end(), here)) poll();
  }

  dist::RankCommunicator& ranks_;
  const TakePoint& take_;
  dist::Messages messages_;
  JobBoard* board_ = nullptr;
  std::vector<Peer> peers_;  // by rank; the first is the root itself
  std::atomic<int> stop_ = 0;
  Event event_;
  std::mutex mutex_;
  std::set<int> newly_lost_;
  std::string lost_;  // description of the last lost rank
  SteadyClock::time_point lost_at_{};
};

// The jobs that the root has for this rank, and their results.
class RankJobs final : public MemberJobs {
 public:
  RankJobs(dist::RankCommunicator& ranks,
           const std::function<SweepPoint(size_t, const MemberResult&)>& make)
      : make_(make), messages_(ranks.transport()) {}

  PopulationResult run(const std::vector<Member>& members, PopulationOptions options) {
    options.jobs = this;
    options.started = [this](const PopulationLayout& layout) {
      places_ = size_t(layout.side_by_side);
    };
    options.begins = {};
    options.finished = [this](size_t member, const MemberResult& result) {
      const std::lock_guard lock(mutex_);
      points_[member] = to_json(make_(member, result));
    };
    PopulationResult result = train_on_thread(members, options, stop_, [this] { poll(); });
    if (result.failed) return result;
    put({{"left", result.stopped_by}});
    while (!outbox_.empty() || messages_.unsent() > 0) poll();
    return result;
  }

  std::optional<Halving::Job> next() override {
    if (!asked_.exchange(true)) put({{"places", places_.load()}});
    const std::lock_guard lock(mutex_);
    if (inbox_.empty()) return std::nullopt;
    const Halving::Job job = inbox_.front();
    inbox_.pop_front();
    return job;
  }
  bool may_come() override { return !over_; }
  void wait() override {
    std::unique_lock lock(mutex_);
    came_.wait_for(lock, std::chrono::milliseconds(100));
  }
  void reached(const Halving::Job& job, double score, bool ended) override {
    json message{{"job", packed(job)}, {"score", score}, {"ended", ended}};
    {
      const std::lock_guard lock(mutex_);
      if (auto point = points_.extract(job.member)) message["point"] = std::move(point.mapped());
    }
    put(std::move(message));
  }

 private:
  void put(json message) {
    {
      const std::lock_guard lock(mutex_);
      outbox_.push_back(std::move(message));
    }
    event_.set();
  }

  void poll() {
    bool moved = false;
    while (const auto message = receive(messages_)) {
      moved = true;
      const std::lock_guard lock(mutex_);
      if (message->second.contains("job")) {
        inbox_.push_back(read_job(message->second.at("job")));
      } else {
        stop_ = message->second.at("stop").get<int>();
        over_ = true;
      }
    }
    if (moved) came_.notify_all();
    {
      const std::lock_guard lock(mutex_);
      for (; !outbox_.empty(); outbox_.pop_front()) send(messages_, 0, outbox_.front());
    }
    if (!moved) pause(event_, messages_.busy());
  }

  const std::function<SweepPoint(size_t, const MemberResult&)>& make_;
  dist::Messages messages_;
  std::atomic<size_t> places_ = 1;
  std::atomic<bool> asked_ = false, over_ = false;
  std::atomic<int> stop_ = 0;
  Event event_;
  std::mutex mutex_;
  std::condition_variable came_;
  std::deque<Halving::Job> inbox_;
  std::deque<json> outbox_;
  std::map<size_t, json> points_;  // of jobs whose end is not reported yet
};

}  // namespace

PopulationResult train_shared(dist::RankCommunicator& ranks, const std::vector<Member>& members,
                              PopulationOptions options,
                              const std::function<SweepPoint(size_t, const MemberResult&)>& make,
                              const TakePoint& take) {
  if (ranks.is_root()) return Root(ranks, take).run(members, std::move(options));
  return RankJobs(ranks, make).run(members, std::move(options));
}

}  // namespace ridgeline::engine
