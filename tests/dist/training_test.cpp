// Training over ranks that are threads: several ranks compute what one rank computes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <mutex>

#include "ridgeline/cpu/simd/shared_step.h"
#include "ridgeline/engine/ranks.h"
#include "ridgeline/engine/train/trainer.h"
#include "tests/dist/thread_ranks.h"
#include "tests/engine/small_set.h"

namespace ridgeline::engine {
namespace {

using dist::RankCommunicator;
using dist::testing::on_ranks;
using ::testing::HasSubstr;
using testing::small_config;
using testing::small_set;

struct Result {
  std::vector<double> losses;
  std::vector<int32_t> corrects;
  Snapshot state;
  Evaluation evaluation;
  std::vector<std::string> kernels;
};

Result train_steps(Trainer& trainer, int64_t steps) {
  Result result;
  while (trainer.step() < steps) {
    trainer.advance(steps - trainer.step());
    const auto losses = trainer.losses();
    const auto corrects = trainer.corrects();
    result.losses.insert(result.losses.end(), losses.begin(), losses.end());
    result.corrects.insert(result.corrects.end(), corrects.begin(), corrects.end());
  }
  result.state = trainer.snapshot();
  result.evaluation = trainer.evaluate();
  result.kernels = trainer.runner().kernel_names();
  return result;
}

Result alone(const Config& config, int64_t steps, int64_t samples = 203) {
  Machine machine(config.run);
  Trainer trainer(machine, config, small_set(samples));
  return train_steps(trainer, steps);
}

Result together(const Config& config, int64_t steps, int size, int64_t samples = 203) {
  Result root;
  on_ranks(size, [&](RankCommunicator& ranks) {
    Machine machine(config.run, &ranks);
    Trainer trainer(machine, config, small_set(samples));
    Result mine = train_steps(trainer, steps);
    check_replicas(ranks, mine.state, steps);
    if (ranks.is_root()) root = std::move(mine);
  });
  return root;
}

// In fp64 only a few hundred roundings of 1e-16 each may differ.
void expect_same(const Result& got, const Result& want, double bound) {
  ASSERT_EQ(got.losses.size(), want.losses.size());
  for (size_t i = 0; i < want.losses.size(); ++i) {
    EXPECT_NEAR(got.losses[i], want.losses[i], bound * std::abs(want.losses[i])) << "step " << i;
  }
  EXPECT_EQ(got.corrects, want.corrects);
  for (size_t i = 0; i < want.state.items.size(); ++i) {
    const Tensor &a = got.state.items[i].value.view(), &b = want.state.items[i].value.view();
    if (b.dtype != DType::fp64) continue;
    double off = 0, size = 0;
    for (int64_t k = 0; k < b.numel(); ++k) {
      off += std::pow(a.as<double>()[k] - b.as<double>()[k], 2);
      size += std::pow(b.as<double>()[k], 2);
    }
    EXPECT_LE(std::sqrt(off), bound * std::sqrt(size)) << want.state.items[i].name;
  }
  EXPECT_EQ(got.evaluation.correct, want.evaluation.correct);
  EXPECT_EQ(got.evaluation.samples, want.evaluation.samples);
  EXPECT_NEAR(got.evaluation.loss, want.evaluation.loss, bound * want.evaluation.loss);
}

Config fp64(std::vector<std::string> sets = {}) {
  sets.insert(sets.begin(), {"run.precision=\"fp64\"", "run.threads=1"});
  return small_config(sets);
}

class Training : public ::testing::TestWithParam<int> {};

// Dropout, Adam, clipping; batches of 16 and 11 samples do not divide evenly.
TEST_P(Training, IsThatOfOneRank) {
  const Config config = fp64();
  const Result got = together(config, 30, GetParam());
  EXPECT_THAT(got.kernels, ::testing::Contains("cpu.mlp_gradients_all_reduce.simd"));
  expect_same(got, alone(config, 30), 1e-12);
}

TEST_P(Training, SgdWithMomentumIsThatOfOneRank) {
  const Config config =
      fp64({"train.clip_norm=0", "train.optimizer={type=\"sgd\",lr=0.1,momentum=0.9}"});
  expect_same(together(config, 30, GetParam()), alone(config, 30), 1e-12);
}

// The last batch of an epoch has two samples: if there are more ranks, some compute nothing in it.
TEST_P(Training, WithMoreRanksThanSamples) {
  for (const char* optimizer : {"adam", "sgd"}) {
    const Config config =
        fp64({"train.clip_norm=0", "train.batch=8",
              fmt::format("train.optimizer={{type=\"{}\",lr=0.01}}", optimizer),
              "model.layers=[{type=\"linear\",out=17},{type=\"relu\"},{type=\"linear\",out=4}]"});
    expect_same(together(config, 9, GetParam(), 26), alone(config, 9, 26), 1e-12);
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, Training, ::testing::Values(2, 3, 5));

// Every way to sum gradients, by pinning its kernels.
TEST(Collectives, EveryKernelOfTheCollectivesComputesTheSame) {
  const std::vector<std::string> sets{"train.clip_norm=0",
                                      "train.optimizer={type=\"sgd\",lr=0.1,momentum=0.9}"};
  const Config config = fp64(sets);
  const Result want = alone(config, 14);
  const std::vector<std::string> starts{"cpu.all_reduce_start.blocking",
                                        "cpu.all_reduce_start.queued",
                                        "cpu.all_reduce_start.scatter"};
  for (const std::string& start : starts) {
    for (const bool sharded : {false, true}) {
      SCOPED_TRACE(start + (sharded ? " and sharded updates" : ""));
      on_ranks(3, [&](RankCommunicator& ranks) {
        Machine machine(config.run, &ranks);
        machine.except([&](const Kernel& kernel) {
          const bool other =
              kernel.name.starts_with("cpu.all_reduce_start") && kernel.name != start;
          const bool fused = kernel.name == "cpu.linear_grad_w_all_reduce.simd" ||
                             kernel.name.starts_with("cpu.mlp_");
          const bool wait = kernel.name == (sharded ? "cpu.all_reduce_wait.ticket"
                                                    : "cpu.all_reduce_wait_sgd.sharded");
          return other || fused || wait;
        });
        Trainer trainer(machine, config, small_set());
        const Result got = train_steps(trainer, 14);
        EXPECT_THAT(got.kernels, ::testing::Contains(start));
        expect_same(got, want, 1e-12);
      });
    }
  }
  on_ranks(3, [&](RankCommunicator& ranks) {
    Machine machine(config.run, &ranks);
    machine.except([](const Kernel& kernel) {
      return kernel.name == "cpu.linear_grad_w.simd" || kernel.name == "cpu.linear_grad_w.onednn" ||
             kernel.name == "cpu.linear_grad_w.reference" || kernel.name.starts_with("cpu.mlp_");
    });
    Trainer trainer(machine, config, small_set());
    const Result got = train_steps(trainer, 14);
    EXPECT_THAT(got.kernels, ::testing::Contains("cpu.linear_grad_w_all_reduce.simd"));
    expect_same(got, want, 1e-12);
  });
}

// Ranks that share memory help each other with a perceptron's step. Batches of 16 and 11 samples.
TEST(Collectives, AStepInSharedMemoryComputesTheSame) {
  const Config config =
      fp64({"train.clip_norm=0", "train.optimizer={type=\"sgd\",lr=0.1,momentum=0.9}",
            "model.layers=[{type=\"linear\",out=17},{type=\"relu\"},"
            "{type=\"linear\",out=4}]"});
  const Result want = alone(config, 30);
  for (const int size : {2, 3, 5}) {
    const Result got = together(config, 30, size);
    EXPECT_THAT(got.kernels, ::testing::ElementsAre("cpu.mlp_train_all_reduce.shared"));
    expect_same(got, want, 1e-12);
  }
}

// Shares of m and m + 1 samples, of which the larger, or both, are too large for shared memory.
TEST(Collectives, AllRanksOrNoneMakeAStepInSharedMemory) {
  const std::vector<cpu::simd::MlpLayer<double>> layers{
      {36, 400, ActivationKind::relu, nullptr, nullptr},
      {400, 4, ActivationKind::none, nullptr, nullptr}};
  const cpu::simd::SharedMlpStep<double> step(layers, 1);
  int64_t most = 1;
  while (step.segment_bytes(most + 1) <= dist::testing::ThreadGroup::kSegment) ++most;
  for (const int64_t batch : {2 * most - 1, 2 * most, 2 * most + 1, 2 * most + 2}) {
    SCOPED_TRACE(batch);
    const Config config =
        fp64({"train.clip_norm=0", "train.optimizer={type=\"sgd\",lr=0.1}",
              fmt::format("train.batch={}", batch),
              "model.layers=[{type=\"linear\",out=400},{type=\"relu\"},{type=\"linear\",out=4}]"});
    const Result got = together(config, 2, 2, batch);
    EXPECT_EQ(got.kernels.front() == "cpu.mlp_train_all_reduce.shared", batch <= 2 * most);
    EXPECT_LT(got.losses[1], got.losses[0]);
  }
}

TEST(Collectives, RanksChooseAlikeWhenTheyMeasure) {
  const testing::TempFolder folder;
  setenv("XDG_CACHE_HOME", (folder / "cache").c_str(), 1);
  const Config config = fp64({"run.tune=true", "train.clip_norm=0"});
  std::mutex mutex;
  std::map<int, std::vector<std::string>> kernels;
  bool busy = false;  // measuring ends early then, and the ranks must still agree
  const auto plan_and_expect = [&](const char* source, bool on_device) {
    on_ranks(
        3,
        [&](RankCommunicator& ranks) {
          Machine machine(config.run, &ranks);
          Trainer trainer(machine, config, small_set());
          const std::scoped_lock lock(mutex);
          if (ranks.is_root()) {
            const std::string& got = trainer.runner().explanation().source;
            busy = busy || got.ends_with("the machine is too busy to measure on");
            if (!busy) {
              EXPECT_EQ(got, source);
            }
          }
          kernels[ranks.rank()] = trainer.runner().kernel_names();
        },
        true, [&](int) { return on_device; });
    EXPECT_EQ(kernels[0], kernels[1]);
    EXPECT_EQ(kernels[0], kernels[2]);
  };
  plan_and_expect("measured", false);
  plan_and_expect("cache", false);
  plan_and_expect("measured", true);  // another MPI, which may have kernels of its own
}

TEST(Collectives, ANarrowWireChangesLittle) {
  const Config wide = small_config({"run.threads=1", "train.clip_norm=0"});
  const Config narrow = small_config({"run.threads=1", "train.clip_norm=0", "run.reduce=\"bf16\""});
  const Result a = together(wide, 26, 3), b = together(narrow, 26, 3);
  ASSERT_EQ(a.losses.size(), b.losses.size());
  EXPECT_NE(a.losses, b.losses);
  for (size_t i = 0; i < a.losses.size(); ++i) EXPECT_NEAR(a.losses[i], b.losses[i], 0.05);
}

template <typename F>
std::string message_on_all(int size, F f) {
  std::mutex mutex;
  std::vector<std::string> messages;
  on_ranks(size, [&](RankCommunicator& ranks) {
    try {
      f(ranks);
    } catch (const Error& error) {
      const std::scoped_lock lock(mutex);
      EXPECT_EQ(error.kind(), ErrorKind::comm);
      messages.push_back(error.what());
    }
  });
  EXPECT_EQ(messages.size(), size_t(size)) << "not all ranks threw";
  for (const std::string& message : messages) EXPECT_EQ(message, messages.front());
  return messages.empty() ? "" : messages.front();
}

TEST(Agreement, AnotherConfigIsNamed) {
  const std::string message = message_on_all(3, [](RankCommunicator& ranks) {
    Config config = small_config();
    if (ranks.rank() == 2) config.train.batch = 17;
    config.run.threads = ranks.rank();  // may differ
    check_alike(ranks, config, *small_set());
  });
  EXPECT_THAT(message, HasSubstr("rank 2"));
  EXPECT_THAT(message, HasSubstr("batch = 17"));
}

TEST(Agreement, OtherDataAreNamed) {
  const std::string message = message_on_all(2, [](RankCommunicator& ranks) {
    data::DataSet set;
    set.train.hash = uint64_t(ranks.rank());
    check_alike(ranks, small_config(), set);
  });
  EXPECT_THAT(message, HasSubstr("rank 1"));
  EXPECT_THAT(message, HasSubstr("other data for small"));
}

TEST(Agreement, AReplicaThatDriftsIsNamed) {
  const std::string message = message_on_all(3, [](RankCommunicator& ranks) {
    Machine machine(small_config().run);
    Trainer trainer(machine, small_config(), small_set());
    Snapshot state = trainer.snapshot();
    check_replicas(ranks, state, 0);
    if (ranks.rank() == 1) state.items[1].value.span<float>()[3] += 1e-7f;
    check_replicas(ranks, state, 42);
  });
  EXPECT_THAT(message, HasSubstr("rank 1"));
  EXPECT_THAT(message, HasSubstr("0.bias differs after step 42"));
}

}  // namespace
}  // namespace ridgeline::engine
