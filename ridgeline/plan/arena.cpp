#include "ridgeline/plan/arena.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "ridgeline/core/buffer.h"

namespace ridgeline {
namespace {

// A 64-byte load at a piece's last element may run past it; the piece behind it may then not be
// written by another thread's step, but reading it is harmless. So pieces need no padding between.
size_t padded(const Lifetime& lifetime) { return align_up(lifetime.bytes); }

bool together(const Lifetime& a, const Lifetime& b) {
  return a.first <= b.last && b.first <= a.last;
}

Packing place_in_order(std::span<const Lifetime> lifetimes, std::span<const size_t> order) {
  Packing packing{std::vector<size_t>(lifetimes.size()), 0};
  std::vector<size_t> placed;  // by offset
  for (const size_t i : order) {
    size_t offset = 0;
    for (const size_t other : placed) {
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

}  // namespace

Packing pack(std::span<const Lifetime> lifetimes) {
  using Before = std::function<bool(const Lifetime&, const Lifetime&)>;
  const auto length = [](const Lifetime& l) { return l.last - l.first; };
  const Before orders[] = {
      [](const auto& a, const auto& b) { return a.bytes > b.bytes; },
      [&](const auto& a, const auto& b) {
        return length(a) != length(b) ? length(a) > length(b) : a.bytes > b.bytes;
      },
      [](const auto& a, const auto& b) {
        return a.first != b.first ? a.first < b.first : a.bytes > b.bytes;
      },
      [](const auto& a, const auto& b) {
        return a.last != b.last ? a.last > b.last : a.bytes > b.bytes;
      },
  };
  Packing best;
  for (const Before& before : orders) {
    std::vector<size_t> order(lifetimes.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t i, size_t j) { return before(lifetimes[i], lifetimes[j]); });
    Packing packing = place_in_order(lifetimes, order);
    if (best.offsets.empty() || packing.total < best.total) best = std::move(packing);
  }
  return best;
}

Peak peak_of(std::span<const Lifetime> lifetimes) {
  Peak peak;
  for (const Lifetime& at : lifetimes) {
    size_t live = 0;
    for (const Lifetime& other : lifetimes) {
      if (other.first <= at.first && at.first <= other.last) live += padded(other);
    }
    if (live > peak.bytes || (live == peak.bytes && at.first < peak.step)) peak = {live, at.first};
  }
  return peak;
}

}  // namespace ridgeline
