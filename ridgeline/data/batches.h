#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ridgeline/core/feistel.h"
#include "ridgeline/core/thread_pool.h"

namespace ridgeline::data {

// Returns the samples 0 to n-1 in the order of an epoch. With `shuffle` it is a permutation that
// depends only on n, seed and epoch: the same for any number of ranks and threads, and for a
// resumed run.
std::vector<int32_t> epoch_order(int64_t n, uint64_t seed, uint64_t epoch, bool shuffle);
// Writes the same to `order`, which has an element for each sample.
void epoch_order(uint64_t seed, uint64_t epoch, bool shuffle, std::span<int32_t> order);
// Returns the network that computes any element of a large set's shuffled order, so that a device
// can make it; none for a smaller set, whose order is made by swaps.
std::optional<Feistel> epoch_network(int64_t n, uint64_t seed, uint64_t epoch);

// The position of a run: the next batch to take.
struct Position {
  int64_t epoch = 0;
  int64_t batch = 0;

  bool operator==(const Position&) const = default;
};

// Divides an epoch of n samples into batches. The last, partial one is kept or dropped.
// Throws Error(usage) if no batch is left, or a size is not positive.
class BatchPlan {
 public:
  BatchPlan(int64_t n, int64_t batch, bool drop_last);

  int64_t samples() const { return n_; }
  int64_t batches() const { return batches_; }  // in an epoch; at least 1
  int64_t full_size() const { return batch_; }
  int64_t size(int64_t k) const;                         // of batch k
  int64_t begin(int64_t k) const { return k * batch_; }  // its first position in the epoch's order

  Position at_step(int64_t step) const { return {step / batches_, step % batches_}; }

 private:
  int64_t n_, batch_, batches_;
};

// Returns the part of a batch that `rank` of `ranks` takes, as positions in the epoch's order:
// contiguous, in rank order, with sizes that differ by at most one. It may be empty if there are
// more ranks than samples.
Range shard(int64_t batch_begin, int64_t batch_size, int rank, int ranks);

}  // namespace ridgeline::data
