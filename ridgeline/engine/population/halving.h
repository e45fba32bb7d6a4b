#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace ridgeline::engine {

// Successive halving: members train to a first rung, and the best 1 / `factor` of those that have
// reached it go on to the next, which has `factor` times as many epochs, and so on.
struct HalvingOptions {
  int64_t factor = 3;        // at least 2
  int64_t first_epochs = 1;  // of the first rung
  // Asynchronous (ASHA): a member goes on as soon as it is among the best 1 / factor of those that
  // have arrived, so that no thread waits; the choice then depends on timing. Synchronous: when all
  // have arrived, so that the choice is reproducible.
  bool synchronous = false;
};

// Decides which member trains next, and how far. Without options every member trains to its end.
// It is not thread-safe.
class Halving {
 public:
  // `epochs` is the length of each member's run, `waiting` the members to train, in order.
  Halving(std::vector<int64_t> epochs, std::vector<size_t> waiting,
          const std::optional<HalvingOptions>& options);

  struct Job {
    size_t member;
    int64_t epochs;      // to reach
    bool prune = false;  // the member ends there
  };
  std::optional<Job> next();  // none: no job now
  bool may_come() const;      // whether next() may return a job later, for members under way

  // Reports the end of a job. `ended`: the member's run is over, whatever the others do. A larger
  // score is better; NaN is the worst.
  void reached(size_t member, double score, bool ended);

  // Returns the members that stopped at a rung and will never go on; each is returned once.
  std::vector<Job> take_pruned();

  // Adds a member whose result is known from an earlier run: pruned after so many epochs (0: not
  // pruned). Call it before the first job.
  void know(size_t member, double score, int64_t pruned_after);

 private:
  struct Arrival {
    size_t member;
    double score;
    bool gone;  // has ended, or goes on already
  };
  struct Rung {
    int64_t epochs;
    std::vector<Arrival> arrivals{};  // the best first
    size_t promoted = 0;              // number promoted to the next rung
  };
  void arrive(Rung& rung, const Arrival& arrival);
  bool is_complete(size_t rung) const;  // all members that can arrive have arrived
  size_t quota(size_t rung) const;      // how many of those that have arrived may go on

  std::vector<int64_t> epochs_;
  std::vector<size_t> waiting_;
  size_t begun_ = 0, known_ = 0;
  bool synchronous_ = false;
  size_t factor_ = 1;
  std::vector<Rung> rungs_;  // the last one is the end of every run
  std::vector<size_t> rung_of_;
  size_t running_ = 0;
};

}  // namespace ridgeline::engine
