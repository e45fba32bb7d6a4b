#include "ridgeline/data/batches.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "ridgeline/core/error.h"
#include "ridgeline/core/philox.h"

namespace ridgeline::data {

std::vector<int32_t> epoch_order(int64_t n, uint64_t seed, uint64_t epoch, bool shuffle) {
  if (n < 0 || n > std::numeric_limits<int32_t>::max()) {
    throw_error(ErrorKind::data, "{} rows: a set holds at most {}", n,
                std::numeric_limits<int32_t>::max());
  }
  std::vector<int32_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  if (!shuffle) return order;
  const Philox random{seed, streams::kShuffle + epoch};
  for (uint64_t left = order.size(); left > 1; --left) {  // Fisher-Yates, from the back
    std::swap(order[left - 1], order[random.below(left, left)]);
  }
  return order;
}

BatchPlan::BatchPlan(int64_t n, int64_t batch, bool drop_last) : n_(n), batch_(batch) {
  if (n < 1 || batch < 1) {
    throw_error(ErrorKind::usage, "batch {} of {} rows: both must be at least 1", batch, n);
  }
  batches_ = n / batch + (!drop_last && n % batch != 0 ? 1 : 0);
  if (batches_ == 0) {
    throw_error(ErrorKind::usage,
                "batch {} is larger than the {} rows, and the last partial batch is dropped: no "
                "batch is left; make the batch smaller or keep the last one",
                batch, n);
  }
}

int64_t BatchPlan::size(int64_t k) const { return std::min(batch_, n_ - begin(k)); }

Position BatchPlan::next(Position at) const {
  return at.batch + 1 < batches_ ? Position{at.epoch, at.batch + 1} : Position{at.epoch + 1, 0};
}

void BatchPlan::check(Position at) const {
  if (at.epoch < 0 || at.batch < 0 || at.batch >= batches_) {
    throw_error(ErrorKind::data,
                "position (epoch {}, batch {}) lies outside the {} batches of an epoch; was the "
                "data or the batch size changed?",
                at.epoch, at.batch, batches_);
  }
}

Range shard(int64_t batch_begin, int64_t batch_size, int rank, int ranks) {
  const Range part = split(batch_size, rank, ranks);
  return {batch_begin + part.begin, batch_begin + part.end};
}

void BatchSource::seek(Position at) {
  plan_.check(at);
  position_ = at;
}

std::span<const int32_t> BatchSource::order(int64_t epoch) {
  if (epoch != held_epoch_) {
    order_ = epoch_order(plan_.rows(), seed_, uint64_t(epoch), shuffle_);
    held_epoch_ = epoch;
  }
  return order_;
}

std::span<const int32_t> BatchSource::take(int rank, int ranks) {
  const Position at = position_;
  const Range part = shard(plan_.begin(at.batch), plan_.size(at.batch), rank, ranks);
  position_ = plan_.next(at);
  return order(at.epoch).subspan(size_t(part.begin), size_t(part.end - part.begin));
}

}  // namespace ridgeline::data
