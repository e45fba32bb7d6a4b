#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>

#include "ridgeline/plan/kernel.h"

namespace ridgeline {

// The formats that hold each value's current contents, for values that are not held in the plain
// format alone. The search copies it at every step of every path, and in a training step the values
// of all layers may be alive at once, so it is a trie whose copies share their nodes: a copy is
// free and a change costs a few nodes, however many values there are.
class HeldFormats {
 public:
  using Set = std::set<Format>;

  const Set& of(ValueId id) const;    // {""} when the value is held in the plain format alone
  void set(ValueId id, Set formats);  // {""} forgets the value
  void forget(ValueId id) { replace(id, nullptr); }

  // Calls f(id, set) for each value, by growing id.
  void each(const std::function<void(ValueId, const Set&)>& f) const;

  // Compares contents, up to collisions of two 64-bit sums over the entries.
  bool operator==(const HeldFormats& other) const {
    return sum_ == other.sum_ && second_sum_ == other.second_sum_;
  }
  size_t hash() const { return size_t(sum_); }

 private:
  static constexpr int kBits = 3;  // of an id, for each level
  static constexpr size_t kFan = size_t{1} << kBits;
  struct Node {
    std::array<std::shared_ptr<const Node>, kFan> below;
    std::shared_ptr<const Set> set;  // at the last level
  };
  using NodeRef = std::shared_ptr<const Node>;

  const Node* find(ValueId id) const;
  void replace(ValueId id, std::shared_ptr<const Set> set);
  static NodeRef replaced(const NodeRef& node, int level, ValueId id,
                          const std::shared_ptr<const Set>& set);
  static void walk(const Node& node, int level, ValueId first,
                   const std::function<void(ValueId, const Set&)>& f);

  NodeRef root_;
  int levels_ = 0;  // ids below kFan ^ levels_ have a place
  uint64_t sum_ = 0, second_sum_ = 0;
};

}  // namespace ridgeline
