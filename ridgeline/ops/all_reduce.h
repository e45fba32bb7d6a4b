#pragma once

#include <fmt/core.h>

#include "ridgeline/ops/value.h"

namespace ridgeline {

// The gradients of a layer, summed over all ranks of a run. A start and a wait are separate ops, so
// that the ops between them hide the communication:
//   sums[k] = sum over ranks of grads[k], available after the wait
// The grads must not change until then, so the wait reads them too. Each rank's share was scaled by
// 1 over the global batch, so the sum is the mean over it.

struct AllReduceStart {
  Values grads, sums;  // same count and shapes
  Value token;         // [1] int64: the ticket that the start passes to the wait (0: all is done)
  int ranks = 1;
  DType wire = DType::fp32;  // fp32 gradients may travel as bf16

  static constexpr const char* kName = "all_reduce_start";
  Values reads() const { return grads; }
  Values writes() const {
    Values all = sums;
    all.push_back(token);
    return all;
  }
  std::string attributes() const { return fmt::format("ranks={},wire={}", ranks, name(wire)); }
  int64_t elements() const {
    int64_t count = 0;
    for (const Value& grad : grads) count += grad.shape.numel();
    return count;
  }
  // This rank's share of the additions, of which there are (ranks - 1) per element in total.
  double flops() const { return double(elements()) * double(ranks - 1) / double(ranks); }
  double bytes() const { return size_of(grads) + size_of(sums); }
  // The least that a rank must send, and receive: its share of all elements except its own, twice,
  // once to be added and once as a sum.
  double network_bytes() const {
    const bool narrow = !grads.empty() && grads.front().dtype == DType::fp32;
    const DType travels = grads.empty() ? wire : narrow ? wire : grads.front().dtype;
    return 2.0 * double(elements()) * double(size_of(travels)) * double(ranks - 1) / double(ranks);
  }
};

struct AllReduceWait {
  Values grads, sums;  // those of the start
  Value token;

  static constexpr const char* kName = "all_reduce_wait";
  Values reads() const {
    Values all = grads;
    all.insert(all.end(), sums.begin(), sums.end());
    all.push_back(token);
    return all;
  }
  Values writes() const { return sums; }
  std::string attributes() const { return {}; }
  double flops() const { return 0; }
  double bytes() const { return 8; }  // the token; the sums were counted at the start
};

}  // namespace ridgeline
