#include "ridgeline/engine/population/member_jobs.h"

#include <algorithm>
#include <chrono>

namespace ridgeline::engine {

using std::chrono::milliseconds;

bool JobBoard::fits(int rank, size_t member) const {
  return std::ranges::none_of(
      held_, [&](const Place& each) { return each.job.member == member && each.rank != rank; });
}

std::optional<Halving::Job> JobBoard::next_for(int rank) {
  const std::lock_guard lock(mutex_);
  const auto mine = [&](const Halving::Job& job) { return fits(rank, job.member); };
  for (auto found = std::ranges::find_if(open_, mine);;) {
    if (found != open_.end()) {
      const Halving::Job job = *found;
      open_.erase(found);
      std::erase_if(held_, [&](const Place& each) { return each.job.member == job.member; });
      under_way_.push_back({rank, job});
      return job;
    }
    const auto job = halving_.next();
    if (!job) return std::nullopt;
    open_.push_back(*job);
    found = mine(*job) ? open_.end() - 1 : open_.end();
  }
}

void JobBoard::reached_by(int rank, const Halving::Job& job, double score, bool ended) {
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(under_way_, [&](const Place& each) { return each.job.member == job.member; });
    if (!movable_ && !ended) held_.push_back({rank, job});
    if (!job.prune) halving_.reached(job.member, score, ended);
    std::ranges::copy(halving_.take_pruned(), std::back_inserter(open_));
  }
  changed_.notify_all();
}

void JobBoard::lose(int rank) {
  {
    const std::lock_guard lock(mutex_);
    const auto its = [&](const Place& each) { return each.rank == rank; };
    for (const Place& each : under_way_) {
      if (its(each)) open_.insert(open_.begin(), each.job);
    }
    std::erase_if(under_way_, its);
    std::erase_if(held_, its);
  }
  changed_.notify_all();
}

bool JobBoard::may_come() {
  const std::lock_guard lock(mutex_);
  return halving_.may_come() || !open_.empty() || !under_way_.empty();
}

void JobBoard::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, milliseconds(100));
}

}  // namespace ridgeline::engine
