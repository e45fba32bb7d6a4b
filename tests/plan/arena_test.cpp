#include "ridgeline/plan/arena.h"

#include <gtest/gtest.h>

#include <random>

#include "ridgeline/core/buffer.h"

namespace ridgeline {
namespace {

void expect_disjoint(const std::vector<Lifetime>& lives, const Packing& packing) {
  for (size_t i = 0; i < lives.size(); ++i) {
    EXPECT_EQ(packing.offsets[i] % kAlignment, 0u);
    EXPECT_LE(packing.offsets[i] + lives[i].bytes, packing.total);
    for (size_t j = 0; j < i; ++j) {
      const bool together = lives[i].first <= lives[j].last && lives[j].first <= lives[i].last;
      const bool apart = packing.offsets[i] + lives[i].bytes <= packing.offsets[j] ||
                         packing.offsets[j] + lives[j].bytes <= packing.offsets[i];
      EXPECT_TRUE(!together || apart) << i << " and " << j;
    }
  }
}

TEST(Arena, ReusesMemoryOfEndedValues) {
  const std::vector<Lifetime> chain{{1000, 0, 1}, {1000, 1, 2}, {1000, 2, 3}, {1000, 3, 4}};
  const Packing packing = pack(chain);
  expect_disjoint(chain, packing);
  EXPECT_EQ(packing.total, 2 * align_up(1000));
  EXPECT_EQ(peak_of(chain).bytes, packing.total);
  EXPECT_EQ(peak_of(chain).step, 1u);
}

// Forward activations live until their backward step: nested lifetimes, as every training step has.
TEST(Arena, NestedLifetimesPackWithoutWaste) {
  for (const size_t layers : {1u, 2u, 5u, 20u}) {
    std::vector<Lifetime> lives;
    for (size_t i = 0; i < layers; ++i) {
      const size_t backward = 2 * layers - i;
      lives.push_back({64 * (i * 7 % 5 + 1), i, backward});             // the activation
      lives.push_back({64 * (i * 3 % 4 + 1), backward - 1, backward});  // its gradient
    }
    const Packing packing = pack(lives);
    expect_disjoint(lives, packing);
    EXPECT_EQ(packing.total, peak_of(lives).bytes) << layers;
  }
}

TEST(Arena, RandomLifetimesNeverOverlapAndStayNearThePeak) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    std::vector<Lifetime> lives;
    for (size_t n = random() % 30; n > 0; --n) {
      const size_t first = random() % 20;
      lives.push_back({random() % 5000, first, first + random() % 8});
    }
    const Packing packing = pack(lives);
    expect_disjoint(lives, packing);
    EXPECT_GE(packing.total, peak_of(lives).bytes);
    EXPECT_LE(double(packing.total), 1.35 * double(peak_of(lives).bytes) + 64);
  }
}

// A training step of many layers: most blocks live together with most others.
std::vector<Lifetime> deep_step(size_t layers) {
  std::vector<Lifetime> lives;
  for (size_t i = 0; i < layers; ++i) {
    const size_t backward = 2 * layers - i;
    lives.push_back({64 * (i * 7 % 5 + 1), i, backward});
    lives.push_back({64 * (i * 3 % 4 + 1), backward - 1, backward});
    lives.push_back({i % 2 == 0 ? size_t{0} : size_t{128}, i, i});  // workspaces
  }
  return lives;
}

TEST(Arena, DeepStepsPackWithoutWasteInProportionalTime) {
  size_t before = 0;
  for (const size_t layers : {500u, 1000u, 2000u, 4000u, 8000u}) {
    const std::vector<Lifetime> lives = deep_step(layers);
    const Packing packing = pack(lives);
    if (layers == 500) expect_disjoint(lives, packing);
    EXPECT_LE(double(packing.total), 1.05 * double(peak_of(lives).bytes)) << layers;
    // Twice the work, and a little more for the depth of the tree of gaps.
    if (before > 0) {
      EXPECT_LE(packing.steps, before * 5 / 2) << layers;
    }
    before = packing.steps;
  }
}

// The orders in time place blocks as if each were compared with all others.
TEST(Arena, GapsOfOneMomentAreTheGapsBetweenAll) {
  std::mt19937 random(2);
  for (int round = 0; round < 50; ++round) {
    std::vector<Lifetime> lives;
    for (size_t n = kMostCompared + 1 + random() % 100; n > 0; --n) {
      const size_t first = random() % 60;
      lives.push_back({random() % 3 == 0 ? 0 : random() % 5000, first, first + random() % 12});
    }
    const Packing packing = pack(lives);
    expect_disjoint(lives, packing);
    EXPECT_LE(double(packing.total), 1.3 * double(peak_of(lives).bytes));
  }
}

TEST(Arena, NoValuesTakeNoMemory) {
  EXPECT_EQ(pack({}).total, 0u);
  EXPECT_EQ(peak_of({}).bytes, 0u);
}

}  // namespace
}  // namespace ridgeline
