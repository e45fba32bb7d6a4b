#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ridgeline/core/feistel.h"
#include "ridgeline/core/thread_pool.h"

namespace ridgeline::data {

// Returns the samples 0 to n-1 in the order of an epoch. With `shuffle` it is a permutation that
// depends on n, seed and epoch alone: the same for any number of ranks and threads, and for a
// resumed run.
std::vector<int32_t> epoch_order(int64_t n, uint64_t seed, uint64_t epoch, bool shuffle);
// The same, written to `order`, which has a place for each sample.
void epoch_order(uint64_t seed, uint64_t epoch, bool shuffle, std::span<int32_t> order);
// What gives a large set's shuffled order, place by place, so that a device can make it; none for a
// smaller set, whose order is made by swaps.
std::optional<Feistel> epoch_network(int64_t n, uint64_t seed, uint64_t epoch);

// Where a run stands: the next batch to take.
struct Position {
  int64_t epoch = 0;
  int64_t batch = 0;

  bool operator==(const Position&) const = default;
};

// How an epoch of n samples falls into batches. The last, partial one is kept or dropped.
// Throws usage when no batch is left, or a size is not positive.
class BatchPlan {
 public:
  BatchPlan(int64_t n, int64_t batch, bool drop_last);

  int64_t samples() const { return n_; }
  int64_t batches() const { return batches_; }  // in an epoch; at least 1
  int64_t full_size() const { return batch_; }
  int64_t size(int64_t k) const;                         // of batch k
  int64_t begin(int64_t k) const { return k * batch_; }  // its first place in the epoch's order

  Position at_step(int64_t step) const { return {step / batches_, step % batches_}; }

 private:
  int64_t n_, batch_, batches_;
};

// The part of a batch that `rank` of `ranks` takes, as places in the epoch's order: contiguous, in
// rank order, sizes equal but for one sample. It may be empty when ranks outnumber samples.
Range shard(int64_t batch_begin, int64_t batch_size, int rank, int ranks);

}  // namespace ridgeline::data
