#pragma once

#include <algorithm>
#include <vector>

#include "ridgeline/plan/kernel.h"

namespace ridgeline {

// Finds a cover's entries for a value by binary search: the lists of a kernel that covers a whole
// program are as long as the program.
class CoverLookup {
 public:
  explicit CoverLookup(const Cover& cover)
      : skips_(cover.skips), reads_(sorted(cover.reads)), writes_(sorted(cover.writes)) {
    std::sort(skips_.begin(), skips_.end());
  }

  bool skips(ValueId id) const { return std::binary_search(skips_.begin(), skips_.end(), id); }
  const FormatUse* read(ValueId id) const { return find(reads_, id); }  // null: plain
  const FormatUse* write(ValueId id) const { return find(writes_, id); }

 private:
  static std::vector<FormatUse> sorted(std::vector<FormatUse> uses) {
    std::ranges::stable_sort(uses, {}, &FormatUse::value);
    return uses;
  }
  static const FormatUse* find(const std::vector<FormatUse>& uses, ValueId id) {
    const auto found = std::ranges::lower_bound(uses, id, {}, &FormatUse::value);
    return found != uses.end() && found->value == id ? &*found : nullptr;
  }

  std::vector<ValueId> skips_;
  std::vector<FormatUse> reads_, writes_;  // by value
};

}  // namespace ridgeline
