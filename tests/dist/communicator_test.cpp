#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "ridgeline/core/thread_pool.h"
#include "ridgeline/dist/launcher.h"
#include "ridgeline/dist/self.h"
#include "tests/dist/thread_ranks.h"

namespace ridgeline::dist {
namespace {

using testing::on_ranks;

// Element i of rank r: sums of any few of them are exact in fp32.
float element(int rank, int64_t i) { return float((i * 7 + rank * 13) % 101 - 50); }

float exact_sum(int ranks, int64_t i) {
  float sum = 0;
  for (int r = 0; r < ranks; ++r) sum += element(r, i);
  return sum;
}

class Ranks : public ::testing::TestWithParam<std::pair<int, bool>> {};

TEST_P(Ranks, SumsAreTheSumsOnAll) {
  const auto [size, any_thread] = GetParam();
  on_ranks(
      size,
      [](RankCommunicator& ranks) {
        for (const int64_t count : {1, 2, 7, 1000, 4099}) {
          std::vector<float> from(size_t(count), 0), to(from);
          for (int64_t i = 0; i < count; ++i) from[size_t(i)] = element(ranks.rank(), i);
          const auto check = [&](const char* what) {
            for (int64_t i = 0; i < count; ++i) {
              ASSERT_EQ(to[size_t(i)], exact_sum(ranks.size(), i)) << what << ' ' << i;
            }
          };
          ranks.all_reduce(from.data(), to.data(), count, DType::fp32, Reduce::sum, DType::fp32);
          check("at once");
          std::fill(to.begin(), to.end(), 0.0f);
          // In two chunks that are both in flight.
          const int64_t half = count / 2;
          ranks.start_all_reduce(from.data(), to.data(), half, DType::fp32, DType::fp32);
          const auto ticket = ranks.start_all_reduce(from.data() + half, to.data() + half,
                                                     count - half, DType::fp32, DType::fp32);
          ranks.wait(ticket);
          EXPECT_TRUE(ranks.test(ticket));
          check("in chunks");
          std::fill(to.begin(), to.end(), 0.0f);
          ranks.wait(ranks.start_reduce_scatter(from.data(), to.data(), count, DType::fp32));
          ranks.all_gather_parts(to.data(), count, DType::fp32);
          check("scattered and gathered");
        }
      },
      any_thread);
}

// Several slots of shared memory, one after the other and alternating, in both types and in place.
TEST_P(Ranks, LongSumsAreTheSumsToo) {
  const auto [size, any_thread] = GetParam();
  on_ranks(
      size,
      [](RankCommunicator& ranks) {
        const auto count = int64_t(5 * SharedSum::kSlotBytes / sizeof(float) / 2 + 17);
        std::vector<float> values(size_t(count), 0);
        std::vector<double> doubles(size_t(count), 0);
        for (int64_t i = 0; i < count; ++i) {
          values[size_t(i)] = element(ranks.rank(), i);
          doubles[size_t(i)] = element(ranks.rank(), i);
        }
        ranks.all_reduce(values.data(), values.data(), count, DType::fp32, Reduce::sum,
                         DType::fp32);
        ranks.all_reduce(doubles.data(), doubles.data(), count, DType::fp64, Reduce::sum,
                         DType::fp64);
        std::vector<float> parts(size_t(count), 0);
        std::vector<float> shares(size_t(count), 0);
        for (int64_t i = 0; i < count; ++i) shares[size_t(i)] = element(ranks.rank(), i);
        ranks.reduce_scatter(shares.data(), parts.data(), count, DType::fp32);
        ranks.all_gather_parts(parts.data(), count, DType::fp32);
        for (int64_t i = 0; i < count; ++i) {
          ASSERT_EQ(values[size_t(i)], exact_sum(ranks.size(), i)) << i;
          ASSERT_EQ(parts[size_t(i)], exact_sum(ranks.size(), i)) << i;
          ASSERT_EQ(doubles[size_t(i)], double(exact_sum(ranks.size(), i))) << i;
        }
      },
      any_thread);
}

// Two roundings to bf16: of each share and of the sum; the additions are in fp32.
TEST_P(Ranks, NarrowSumsAreRoundedTwice) {
  const auto [size, any_thread] = GetParam();
  on_ranks(
      size,
      [](RankCommunicator& ranks) {
        constexpr int64_t kCount = 501;
        std::vector<float> from(kCount), to(kCount);
        for (int64_t i = 0; i < kCount; ++i) from[size_t(i)] = 1 + element(ranks.rank(), i) / 997;
        ranks.all_reduce(from.data(), to.data(), kCount, DType::fp32, Reduce::sum, DType::bf16);
        std::vector<float> root = to;
        ranks.broadcast(root.data(), root.size() * sizeof(float), 0);
        EXPECT_EQ(root, to);
        bool rounded = false;
        for (int64_t i = 0; i < kCount; ++i) {
          double sum = 0;
          for (int r = 0; r < ranks.size(); ++r) sum += double(1 + element(r, i) / 997);
          ASSERT_NEAR(to[size_t(i)], sum, 2.1 * unit_roundoff(DType::bf16) * sum) << i;
          rounded |= std::abs(to[size_t(i)] - sum) > 1e-4;
          EXPECT_EQ(to[size_t(i)], float(Bf16(to[size_t(i)])));
        }
        EXPECT_TRUE(rounded);
      },
      any_thread);
}

TEST_P(Ranks, OtherCollectivesFollowWhatWasStarted) {
  const auto [size, any_thread] = GetParam();
  on_ranks(
      size,
      [](RankCommunicator& ranks) {
        std::vector<double> values(10'000, double(ranks.rank() + 1)), sums(values.size());
        const int n = ranks.size();
        for (int round = 0; round < 20; ++round) {
          ranks.start_all_reduce(values.data(), sums.data(), int64_t(values.size()), DType::fp64,
                                 DType::fp64);
          ranks.barrier();
          EXPECT_EQ(sums[size_t(round) * 37], n * (n + 1) / 2);
        }
        EXPECT_EQ(ranks.reduce(int64_t(ranks.rank()), Reduce::max), n - 1);
        EXPECT_EQ(ranks.reduce(int32_t(ranks.rank() - 5), Reduce::min), -5);
        EXPECT_EQ(ranks.text_from_root(ranks.is_root() ? "from the root" : "no"), "from the root");
        const auto texts = ranks.texts(std::string(size_t(ranks.rank()), 'x'));
        ASSERT_EQ(texts.size(), size_t(n));
        EXPECT_EQ(texts.back(), std::string(size_t(n - 1), 'x'));
        EXPECT_GE(ranks.blocked_seconds(), 0);
      },
      any_thread);
}

TEST_P(Ranks, MoreTicketsThanFitAreFine) {
  const auto [size, any_thread] = GetParam();
  on_ranks(
      size,
      [](RankCommunicator& ranks) {
        std::vector<float> ones(3000, 1), sums(3000);
        Communicator::Ticket last = 0;
        for (size_t i = 0; i < sums.size(); ++i) {
          last = ranks.start_all_reduce(&ones[i], &sums[i], 1, DType::fp32, DType::fp32);
        }
        ranks.wait(last);
        for (const float sum : sums) ASSERT_EQ(sum, float(ranks.size()));
      },
      any_thread);
}

INSTANTIATE_TEST_SUITE_P(Sizes, Ranks,
                         ::testing::Values(std::pair(1, true), std::pair(2, true),
                                           std::pair(3, true), std::pair(4, true),
                                           std::pair(3, false)));

// The library itself sums GPU memory, because shared memory is the host's.
TEST_P(Ranks, SumsOfDeviceMemoryAreMadeByTheLibraryThatTakesIt) {
  const auto [size, any_thread] = GetParam();
  on_ranks(
      size,
      [](RankCommunicator& ranks) {
        EXPECT_EQ(ranks.device_refusal(), "");
        EXPECT_TRUE(takes_device_memory(ranks));
        auto& transport = static_cast<testing::ThreadTransport&>(ranks.transport());
        std::vector<float> from(1001), to(1001), in_place(1001);
        for (int64_t i = 0; i < 1001; ++i) from[size_t(i)] = element(ranks.rank(), i);
        in_place = from;
        ranks.wait(ranks.start_all_reduce(from.data(), to.data(), 1001, DType::fp32, DType::fp32));
        const int64_t before = transport.sums();
        std::fill(to.begin(), to.end(), 0.0f);
        ranks.all_reduce_device(from.data(), to.data(), 1001, DType::fp32);
        ranks.all_reduce_device(in_place.data(), in_place.data(), 1001, DType::fp32);
        ranks.all_reduce_device(nullptr, nullptr, 0, DType::fp32);
        EXPECT_EQ(transport.sums(), before + 2);
        for (int64_t i = 0; i < 1001; ++i) {
          ASSERT_EQ(to[size_t(i)], exact_sum(ranks.size(), i)) << i;
          ASSERT_EQ(in_place[size_t(i)], exact_sum(ranks.size(), i)) << i;
        }
      },
      any_thread, [](int) { return true; });
}

TEST(DeviceMemory, IsTakenByAllRanksOrNone) {
  const auto refusals = [](const std::function<bool(int)>& on_device) {
    std::vector<std::string> all(3);
    on_ranks(
        3, [&](RankCommunicator& ranks) { all[size_t(ranks.rank())] = ranks.device_refusal(); },
        true, on_device);
    return all;
  };
  using Texts = std::vector<std::string>;
  const std::string mine = "threads does not say that it takes memory of a GPU",
                    others = "threads does not say on every rank that it takes memory of a GPU";
  EXPECT_EQ(refusals([](int) { return true; }), (Texts{"", "", ""}));
  EXPECT_EQ(refusals([](int) { return false; }), (Texts{mine, mine, mine}));
  EXPECT_EQ(refusals([](int rank) { return rank != 1; }), (Texts{others, mine, others}));
}

TEST(RankFailure, IsThrownWhereItIsWaitedFor) {
  on_ranks(1, [](RankCommunicator& ranks) {
    uint8_t byte = 1;
    const auto ticket = ranks.start_all_reduce(&byte, &byte, 1, DType::uint8, DType::uint8);
    EXPECT_THROW(ranks.wait(ticket), Error);
    float good = 2;
    ranks.wait(ranks.start_all_reduce(&good, &good, 1, DType::fp32, DType::fp32));
    EXPECT_EQ(good, 2);
  });
}

TEST(Self, IsOneRank) {
  SelfCommunicator self;
  EXPECT_FALSE(takes_device_memory(self));
  EXPECT_TRUE(self.is_root());
  float from = 1.00390625f, to = 0;  // 1 + 2^-8: half way between two bf16 numbers
  self.all_reduce(&from, &to, 1, DType::fp32, Reduce::sum, DType::fp32);
  EXPECT_EQ(to, from);
  self.all_reduce(&from, &to, 1, DType::fp32, Reduce::sum, DType::bf16);
  EXPECT_EQ(to, 1.0f);
}

class Launcher : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name :
         {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS",
          "PMI_RANK", "PMI_SIZE", "PMIX_RANK", "PMIX_SIZE"}) {
      unsetenv(name);
    }
  }
  void TearDown() override { SetUp(); }
};

TEST_F(Launcher, IsFoundByItsVariables) {
  EXPECT_FALSE(find_launch());
  setenv("SLURM_PROCID", "3", 1);  // a batch script: no step
  EXPECT_FALSE(find_launch());
  setenv("SLURM_STEP_NUM_TASKS", "8", 1);
  ASSERT_TRUE(find_launch());
  EXPECT_EQ(find_launch()->by, "Slurm");
  EXPECT_EQ(find_launch()->rank, 3);
  EXPECT_EQ(find_launch()->size, 8);
  setenv("OMPI_COMM_WORLD_RANK", "1", 1);
  setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
  EXPECT_EQ(find_launch()->by, "Open MPI");
  setenv("OMPI_COMM_WORLD_SIZE", "1", 1);
  EXPECT_FALSE(find_launch()) << "one rank needs no MPI";
}

TEST_F(Launcher, NonsenseIsIgnored) {
  setenv("PMI_RANK", "x", 1);
  setenv("PMI_SIZE", "4", 1);
  EXPECT_FALSE(find_launch());
  setenv("PMIX_RANK", "2", 1);  // PMIx alone does not say how many
  ASSERT_TRUE(find_launch());
  EXPECT_EQ(find_launch()->size, 0);
}

}  // namespace
}  // namespace ridgeline::dist
