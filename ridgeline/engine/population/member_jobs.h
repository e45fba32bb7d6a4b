#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <vector>

#include "ridgeline/engine/population/halving.h"

namespace ridgeline::engine {

// Gives the threads of a population their next jobs. Thread-safe.
class MemberJobs {
 public:
  virtual ~MemberJobs() = default;
  virtual std::optional<Halving::Job> next() = 0;  // none: no job now
  virtual bool may_come() = 0;                     // whether next() may return one later
  virtual void wait() = 0;  // until that may have changed, or briefly: signals wake nobody
  virtual void reached(const Halving::Job& job, double score, bool ended) = 0;
};

// The jobs of a whole population, distributed to the ranks that ask for them. Its MemberJobs
// interface serves rank 0, the process itself.
class JobBoard final : public MemberJobs {
 public:
  // `movable`: any rank can continue a member that waits at a rung, from its checkpoint. Otherwise
  // only the rank that has it in memory can.
  JobBoard(Halving halving, bool movable) : halving_(std::move(halving)), movable_(movable) {}

  std::optional<Halving::Job> next_for(int rank);
  void reached_by(int rank, const Halving::Job& job, double score, bool ended);
  void lose(int rank);  // its jobs go to other ranks, which start from a checkpoint or anew

  std::optional<Halving::Job> next() override { return next_for(0); }
  bool may_come() override;
  void wait() override;
  void reached(const Halving::Job& job, double score, bool ended) override {
    reached_by(0, job, score, ended);
  }

 private:
  struct Place {
    int rank;
    Halving::Job job;
  };
  bool fits(int rank, size_t member) const;

  std::mutex mutex_;
  std::condition_variable changed_;
  Halving halving_;
  const bool movable_;
  std::vector<Halving::Job> open_;  // for any rank that may take them, before the halving's next
  std::vector<Place> under_way_;
  std::vector<Place> held_;  // waiting at a rung, in the memory of a rank
};

}  // namespace ridgeline::engine
