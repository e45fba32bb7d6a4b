#include "ridgeline/plan/arena.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <queue>
#include <vector>

#include "ridgeline/core/buffer.h"
#include "ridgeline/plan/first_fit.h"

namespace ridgeline {
namespace {

// A 64-byte load at a block's last element may run past it. Reading the next block is harmless,
// even if another thread's step writes it, so blocks need no padding between them.
size_t padded(const Lifetime& lifetime) { return align_up(lifetime.bytes); }

bool together(const Lifetime& a, const Lifetime& b) {
  return a.first <= b.last && b.first <= a.last;
}

Packing place_in_order(std::span<const Lifetime> lifetimes, std::span<const size_t> order) {
  Packing packing{std::vector<size_t>(lifetimes.size()), 0, 0};
  std::vector<size_t> placed;  // by offset
  for (const size_t i : order) {
    if (lifetimes[i].bytes == 0) continue;
    size_t offset = 0;
    for (const size_t other : placed) {
      ++packing.steps;
      if (!together(lifetimes[i], lifetimes[other])) continue;
      if (offset + padded(lifetimes[i]) <= packing.offsets[other]) break;  // the gap holds it
      offset = std::max(offset, packing.offsets[other] + padded(lifetimes[other]));
    }
    packing.offsets[i] = offset;
    packing.total = std::max(packing.total, offset + padded(lifetimes[i]));
    const auto at = std::upper_bound(placed.begin(), placed.end(), offset,
                                     [&](size_t o, size_t j) { return o < packing.offsets[j]; });
    placed.insert(at, i);
  }
  return packing;
}

// Like place_in_order(), for an order by growing `first`: whatever was placed before and has not
// ended is alive at the same time as the new block, so only the gaps of one moment have to be
// looked at.
Packing place_in_time(std::span<const Lifetime> lifetimes, std::span<const size_t> order) {
  Packing packing{std::vector<size_t>(lifetimes.size()), 0, 0};
  FirstFit memory;
  using Ending = std::pair<size_t, size_t>;  // last step, block
  std::priority_queue<Ending, std::vector<Ending>, std::greater<>> alive;
  for (const size_t i : order) {
    ++packing.steps;
    for (; !alive.empty() && alive.top().first < lifetimes[i].first; alive.pop()) {
      const size_t ended = alive.top().second;
      memory.give(packing.offsets[ended], padded(lifetimes[ended]));
    }
    const size_t bytes = padded(lifetimes[i]);
    if (bytes == 0) continue;
    packing.offsets[i] = memory.take(bytes);
    packing.total = std::max(packing.total, packing.offsets[i] + bytes);
    alive.emplace(lifetimes[i].last, i);
  }
  packing.steps += memory.steps();
  return packing;
}

// Returns the lifetimes with time reversed.
std::vector<Lifetime> reversed(std::span<const Lifetime> lifetimes) {
  size_t end = 0;
  for (const Lifetime& life : lifetimes) end = std::max(end, life.last);
  std::vector<Lifetime> all;
  all.reserve(lifetimes.size());
  for (const Lifetime& life : lifetimes) {
    all.push_back({life.bytes, end - life.last, end - life.first});
  }
  return all;
}

}  // namespace

Packing pack(std::span<const Lifetime> lifetimes) {
  using Before = std::function<bool(const Lifetime&, const Lifetime&)>;
  const auto length = [](const Lifetime& l) { return l.last - l.first; };
  const Before largest = [](const auto& a, const auto& b) { return a.bytes > b.bytes; };
  const Before longest = [&](const auto& a, const auto& b) {
    return length(a) != length(b) ? length(a) > length(b) : a.bytes > b.bytes;
  };
  const Before earliest = [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first < b.first : a.bytes > b.bytes;
  };
  const auto ordered = [](std::span<const Lifetime> lives, const Before& before) {
    std::vector<size_t> order(lives.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t i, size_t j) { return before(lives[i], lives[j]); });
    return order;
  };
  Packing best;
  size_t steps = 0;
  const auto consider = [&](Packing packing) {
    steps += packing.steps;
    if (best.offsets.empty() || packing.total < best.total) best = std::move(packing);
  };
  const auto sized =
      std::ranges::count_if(lifetimes, [](const Lifetime& l) { return l.bytes > 0; });
  if (size_t(sized) <= kMostCompared) {
    consider(place_in_order(lifetimes, ordered(lifetimes, largest)));
    consider(place_in_order(lifetimes, ordered(lifetimes, longest)));
  }
  consider(place_in_time(lifetimes, ordered(lifetimes, earliest)));
  const std::vector<Lifetime> backwards = reversed(lifetimes);
  consider(place_in_time(backwards, ordered(backwards, earliest)));
  best.steps = steps;
  return best;
}

Peak peak_of(std::span<const Lifetime> lifetimes) {
  // A block counts from the step at which it begins to live, and no more at the step after its end.
  std::map<size_t, std::pair<size_t, size_t>>
      changes;  // by step: bytes that begin, bytes that have ended
  for (const Lifetime& life : lifetimes) {
    changes[life.first].first += padded(life);
    changes[life.last + 1].second += padded(life);
  }
  Peak peak;
  size_t live = 0;
  for (const auto& [step, change] : changes) {
    live += change.first;
    live -= change.second;
    if (live > peak.bytes) peak = {live, step};
  }
  return peak;
}

}  // namespace ridgeline
