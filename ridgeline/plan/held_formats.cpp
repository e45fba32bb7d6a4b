#include "ridgeline/plan/held_formats.h"

#include <algorithm>

namespace ridgeline {
namespace {

const HeldFormats::Set kPlain{Format{}};

// The finaliser of SplitMix64: every bit of the result depends on every bit of the input.
uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

uint64_t entry_hash(ValueId id, const HeldFormats::Set& set, uint64_t seed) {
  uint64_t hash = mixed(seed + uint64_t(id));
  for (const Format& format : set) hash = mixed(hash + std::hash<Format>{}(format) + 1);
  return hash;
}

constexpr uint64_t kSeeds[] = {0x9e3779b97f4a7c15ull, 0xd1b54a32d192ed03ull};

}  // namespace

const HeldFormats::Node* HeldFormats::find(ValueId id) const {
  if ((uint64_t(id) >> (kBits * levels_)) != 0) return nullptr;
  const Node* node = root_.get();
  for (int level = levels_; node != nullptr && level-- > 0;) {
    node = node->below[(size_t(id) >> (kBits * level)) % kFan].get();
  }
  return node;
}

const HeldFormats::Set& HeldFormats::of(ValueId id) const {
  const Node* node = find(id);
  return node == nullptr ? kPlain : *node->set;
}

void HeldFormats::set(ValueId id, Set formats) {
  if (formats == kPlain) return forget(id);
  replace(id, std::make_shared<const Set>(std::move(formats)));
}

void HeldFormats::replace(ValueId id, std::shared_ptr<const Set> set) {
  const Node* old = find(id);
  if (old == nullptr && set == nullptr) return;
  if (old != nullptr) {
    sum_ -= entry_hash(id, *old->set, kSeeds[0]);
    second_sum_ -= entry_hash(id, *old->set, kSeeds[1]);
  }
  if (set != nullptr) {
    sum_ += entry_hash(id, *set, kSeeds[0]);
    second_sum_ += entry_hash(id, *set, kSeeds[1]);
  }
  while ((uint64_t(id) >> (kBits * levels_)) != 0) {
    if (root_ != nullptr) {
      auto above = std::make_shared<Node>();
      above->below[0] = root_;
      root_ = std::move(above);
    }
    ++levels_;
  }
  root_ = replaced(root_, levels_, id, set);
}

// Copies the path to `id`; returns null if nothing is left below.
HeldFormats::NodeRef HeldFormats::replaced(const NodeRef& node, int level, ValueId id,
                                           const std::shared_ptr<const Set>& set) {
  if (level == 0) {
    return set == nullptr ? nullptr : std::make_shared<const Node>(Node{{}, set});
  }
  auto copy = node != nullptr ? std::make_shared<Node>(*node) : std::make_shared<Node>();
  NodeRef& below = copy->below[(size_t(id) >> (kBits * (level - 1))) % kFan];
  below = replaced(below, level - 1, id, set);
  const bool empty =
      std::ranges::all_of(copy->below, [](const NodeRef& n) { return n == nullptr; });
  return empty ? nullptr : NodeRef(std::move(copy));
}

void HeldFormats::each(const std::function<void(ValueId, const Set&)>& f) const {
  if (root_ != nullptr) walk(*root_, levels_, 0, f);
}

void HeldFormats::walk(const Node& node, int level, ValueId first,
                       const std::function<void(ValueId, const Set&)>& f) {
  if (level == 0) return f(first, *node.set);
  for (size_t i = 0; i < kFan; ++i) {
    const ValueId id = ValueId(size_t(first) + (i << (kBits * (level - 1))));
    if (node.below[i] != nullptr) walk(*node.below[i], level - 1, id, f);
  }
}

}  // namespace ridgeline
