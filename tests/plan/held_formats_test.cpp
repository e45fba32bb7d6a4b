// Compares the search's representation of the formats of values with a plain map.
#include "ridgeline/plan/held_formats.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace ridgeline {
namespace {

using Set = HeldFormats::Set;
using Map = std::map<ValueId, Set>;

Map contents(const HeldFormats& held) {
  Map all;
  ValueId before = -1;
  held.each([&](ValueId id, const Set& set) {
    EXPECT_GT(id, before);
    before = id;
    all[id] = set;
  });
  return all;
}

TEST(HeldFormats, IsAMapWhoseCopiesStay) {
  const Set kinds[] = {{""}, {"a"}, {"a", "b"}, {"", "a"}};
  std::mt19937 random(1);
  HeldFormats held;
  Map map;
  std::vector<std::pair<HeldFormats, Map>> kept;
  for (int i = 0; i < 3000; ++i) {
    const auto id = ValueId(i % 7 == 0 ? random() % 100'000 : random() % 40);
    const Set& set = kinds[random() % 4];
    held.set(id, set);
    map.erase(id);
    if (set != kinds[0]) map[id] = set;
    EXPECT_EQ(held.of(id), set);
    if (i % 100 == 0) kept.emplace_back(held, map);
  }
  kept.emplace_back(held, map);
  for (const auto& [copy, then] : kept) EXPECT_EQ(contents(copy), then);
}

TEST(HeldFormats, EqualContentsAreEqualWhateverTheirHistory) {
  HeldFormats one, other;
  EXPECT_EQ(one, other);
  one.set(1, {"a"});
  EXPECT_FALSE(one == other);
  one.set(70'000, {"b"});
  other.set(70'000, {"c"});
  other.set(70'000, {"b"});
  other.set(1, {"a"});
  EXPECT_EQ(one, other);
  EXPECT_EQ(one.hash(), other.hash());
  one.set(2, {"a"});
  other.set(3, {"a"});
  EXPECT_FALSE(one == other);
  one.forget(2);
  other.forget(3);
  EXPECT_EQ(one, other);
  one.forget(1);
  one.forget(70'000);
  one.forget(5);
  EXPECT_EQ(one, HeldFormats());
}

}  // namespace
}  // namespace ridgeline
