#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ridgeline/core/dtype.h"

namespace ridgeline::dist {

// Sums over the ranks of one host, through shared memory: each copies its numbers there, sums one
// part of everyone's, and fetches the other parts. Waiting ranks poll counters, and yield their
// core if that takes long.
class SharedSum {
 public:
  static constexpr size_t kSlotBytes = size_t{1} << 20;  // a core's L2 holds its two slots
  static constexpr size_t kHeadBytes = 128;
  static constexpr size_t kBytes = kHeadBytes + 2 * kSlotBytes;  // a rank's segment

  // segments[r] is rank r's: kBytes, aligned to 64, initially zero, the same memory for all ranks.
  SharedSum(std::vector<std::byte*> segments, int rank);

  // Collective: to[i] = the sum of from[i], added in the order of the ranks, so all get the same
  // bits. fp32 or fp64; `to` may be `from`.
  void all_reduce(const void* from, void* to, int64_t count, DType dtype);
  // Collective: sums likewise, but a rank gets only its part, split(count, rank, size), at to[0].
  void reduce_scatter(const void* from, void* to, int64_t count, DType dtype);
  // Collective: fills `data` with every rank's part, split(count, rank, size), as its owner has it.
  void all_gather_parts(void* data, int64_t count, size_t element_bytes);

 private:
  template <typename T>
  void add_up(const T* from, T* to, int64_t count);
  template <typename T>
  void add_up_parts(const T* from, T* to, int64_t count);
  // to[0 .. count) = the sums of all slots' elements at `at`
  template <typename T>
  void sum_slots(int64_t at, int64_t count, T* to) const;
  template <typename T>
  T* slot(size_t rank) const;
  void meet();  // returns when all ranks have called it as often as this one

  std::vector<std::byte*> segments_;
  size_t rank_;
  uint64_t meetings_ = 0;
  int slot_ = 0;  // which of the two slots is in use
};

}  // namespace ridgeline::dist
