#include "ridgeline/engine/population/halving.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ridgeline::engine {
namespace {

constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();

}  // namespace

Halving::Halving(std::vector<int64_t> epochs, std::vector<size_t> waiting,
                 const std::optional<HalvingOptions>& options)
    : epochs_(std::move(epochs)), waiting_(std::move(waiting)), rung_of_(epochs_.size(), 0) {
  if (options) {
    synchronous_ = options->synchronous;
    factor_ = size_t(std::max<int64_t>(2, options->factor));
    const int64_t longest = epochs_.empty() ? 0 : std::ranges::max(epochs_);
    for (int64_t at = std::max<int64_t>(1, options->first_epochs); at < longest;) {
      rungs_.push_back({at});
      at = at > kEnd / int64_t(factor_) ? kEnd : at * int64_t(factor_);
    }
  }
  rungs_.push_back({kEnd});
}

bool Halving::is_complete(size_t rung) const {
  const size_t come = rungs_[rung].arrivals.size();
  if (rung == 0) return come == waiting_.size() + known_;
  if (come < rungs_[rung - 1].promoted || !is_complete(rung - 1)) return false;
  const auto& below = rungs_[rung - 1].arrivals;
  return std::all_of(below.begin(), below.begin() + int64_t(quota(rung - 1)),
                     [](const Arrival& each) { return each.gone; });
}

size_t Halving::quota(size_t rung) const {
  const auto& arrivals = rungs_[rung].arrivals;
  const auto able = size_t(
      std::ranges::count_if(arrivals, [](const Arrival& each) { return !std::isnan(each.score); }));
  const size_t share = arrivals.size() / factor_;
  // In the end the best member always goes on.
  if (is_complete(rung)) return std::min(able, std::max<size_t>(1, share));
  return synchronous_ ? 0 : std::min(able, share);
}

std::optional<Halving::Job> Halving::next() {
  for (size_t r = rungs_.size() - 1; r-- > 0;) {
    Rung& rung = rungs_[r];
    for (size_t i = 0, best = quota(r); i < best; ++i) {
      Arrival& arrival = rung.arrivals[i];
      if (arrival.gone) continue;
      arrival.gone = true;
      ++rung.promoted;
      ++running_;
      rung_of_[arrival.member] = r + 1;
      return Job{arrival.member, std::min(rungs_[r + 1].epochs, epochs_[arrival.member])};
    }
  }
  if (begun_ == waiting_.size()) return std::nullopt;
  const size_t member = waiting_[begun_++];
  ++running_;
  return Job{member, std::min(rungs_.front().epochs, epochs_[member])};
}

bool Halving::may_come() const { return begun_ < waiting_.size() || running_ > 0; }

void Halving::reached(size_t member, double score, bool ended) {
  --running_;
  arrive(rungs_[rung_of_[member]], {member, score, ended});
}

// Sorted by score; among equal scores the lower member number comes first, so that the order of
// arrival does not matter.
void Halving::arrive(Rung& rung, const Arrival& arrival) {
  const auto better = [](const Arrival& a, const Arrival& b) {
    const double low = -std::numeric_limits<double>::infinity();
    const double x = std::isnan(a.score) ? low : a.score, y = std::isnan(b.score) ? low : b.score;
    return x != y ? x > y : a.member < b.member;
  };
  rung.arrivals.insert(std::ranges::upper_bound(rung.arrivals, arrival, better), arrival);
}

// Its scores at the rungs that it passed are unknown, but it was among the best there.
void Halving::know(size_t member, double score, int64_t pruned_after) {
  ++known_;
  for (Rung& rung : rungs_) {
    const bool last = std::isnan(score) || rung.epochs >= epochs_[member] ||
                      (pruned_after > 0 && rung.epochs >= pruned_after);
    arrive(rung, {member, last ? score : std::numeric_limits<double>::infinity(), true});
    if (last) return;
    ++rung.promoted;
  }
}

std::vector<Halving::Job> Halving::take_pruned() {
  std::vector<Job> pruned;
  for (size_t r = 0; r + 1 < rungs_.size(); ++r) {
    // Later arrivals cannot improve anybody's rank.
    const size_t safe =
        is_complete(r) ? quota(r) : std::max<size_t>(1, (waiting_.size() + known_) / factor_);
    for (size_t i = 0; i < rungs_[r].arrivals.size(); ++i) {
      Arrival& arrival = rungs_[r].arrivals[i];
      if (arrival.gone || (i < safe && !std::isnan(arrival.score))) continue;
      arrival.gone = true;
      pruned.push_back({arrival.member, rungs_[r].epochs, true});
    }
  }
  return pruned;
}

}  // namespace ridgeline::engine
