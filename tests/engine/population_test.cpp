#include "ridgeline/engine/population/population.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>

#include "ridgeline/engine/evaluate.h"
#include "ridgeline/engine/population/ensemble.h"
#include "ridgeline/engine/train/session.h"
#include "tests/engine/small_run.h"

namespace ridgeline::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::quiet;
using testing::slurp;
using testing::small_config;
using testing::small_set;
using testing::TempFolder;

const char* const kOptimizers[] = {
    R"({type="sgd",lr=0.1})",
    R"({type="sgd",lr=0.05,momentum=0.9,weight_decay=1e-4})",
    R"({type="sgd",lr=0.05,momentum=0.9,nesterov=true})",
    R"({type="adam",lr=0.01})",
    R"({type="adamw",lr=0.01,weight_decay=0.05})",
};

struct Outcome {
  PopulationResult population;
  std::map<size_t, MemberResult> members;
};

Outcome train_all(const std::vector<Config>& configs, PopulationOptions options = {}) {
  const auto set = small_set();
  std::vector<Member> members;
  for (const Config& config : configs) members.push_back({config, set});
  Outcome outcome;
  options.models = true;
  options.finished = [&](size_t member, const MemberResult& result) {
    EXPECT_TRUE(outcome.members.emplace(member, result).second) << "two results of one member";
  };
  outcome.population = train_population(members, options);
  return outcome;
}

// The model file of a separate run of one config with one thread.
std::string alone(Config config) {
  config.run.threads = 1;
  TrainOptions options = quiet();
  options.any_ceilings = true;
  TrainSession session(config, options);
  session.run_to_epoch(config.train.epochs);
  session.finish();
  const auto bytes = session.model_bytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string text(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// A separate run for every optimizer, with and without settings that exclude the whole-step kernel.
class PopulationOptimizers : public ::testing::TestWithParam<const char*> {};

TEST_P(PopulationOptimizers, MembersEqualTheirSoloRunsBitForBit) {
  const TempFolder folder;
  std::vector<Config> configs;
  for (const char* more : {"train.clip_norm=0.5", "train.clip_norm=0",
                           "train.loss={type=\"cross-entropy\",smoothing=0.1}"}) {
    for (const char* seed : {"train.seed=1", "train.seed=2"}) {
      configs.push_back(small_config({"run.deterministic=true", "run.threads=3", seed, more,
                                      std::string("train.optimizer=") + GetParam()}));
    }
  }
  const Outcome together = train_all(configs);
  EXPECT_EQ(together.population.layout.members, 6u);
  EXPECT_EQ(together.population.layout.side_by_side, 3);
  ASSERT_EQ(together.members.size(), configs.size());
  std::set<std::string> models;
  for (size_t i = 0; i < configs.size(); ++i) {
    EXPECT_EQ(together.members.at(i).error, "");
    configs[i].run.threads = 1;  // which the model's own config says
    EXPECT_EQ(text(together.members.at(i).model), alone(configs[i])) << i;
    models.insert(text(together.members.at(i).model));
  }
  EXPECT_EQ(models.size(), configs.size());
}

INSTANTIATE_TEST_SUITE_P(Each, PopulationOptimizers, ::testing::ValuesIn(kOptimizers));

TEST(Population, ConvolutionalAndRecurrentMembersEqualTheirSoloRuns) {
  const TempFolder folder;
  for (
      const char* layers :
      {R"(model.layers=[{type="conv2d",out=4,kernel=3,padding=1},{type="batchnorm"},{type="relu"},)"
       R"({type="maxpool2d",kernel=2},{type="linear",out=4}])",
       R"(model.layers=[{type="lstm",hidden=7,layers=2,dropout=0.2},{type="select"},)"
       R"({type="linear",out=4}])",
       R"(model.layers=[{type="gru",hidden=5,bidirectional=true},{type="select"},)"
       R"({type="linear",out=4}])"}) {
    std::vector<Config> configs;
    for (const char* more : {"train.seed=1", "train.seed=2", "train.optimizer.lr=0.003"}) {
      configs.push_back(small_config({"run.deterministic=true", "train.epochs=2", layers, more}));
    }
    const Outcome together = train_all(configs);
    EXPECT_EQ(together.population.layout.groups, 1u);
    ASSERT_EQ(together.members.size(), configs.size());
    for (size_t i = 0; i < configs.size(); ++i) {
      configs[i].run.threads = 1;
      EXPECT_EQ(text(together.members.at(i).model), alone(configs[i])) << layers << i;
    }
  }
}

TEST(Population, ValuesShareAGroupAndShapesMakeNewOnes) {
  const TempFolder folder;
  const auto set = small_set();
  const auto key = [&](const std::string& more) { return shape_key(small_config({more}), *set); };
  const std::string base = key("train.seed=1");
  for (const char* value : {"train.seed=2", "train.optimizer.lr=0.5", "train.optimizer.beta1=0.5",
                            "model.layers.2.p=0.5", "train.clip_norm=3", "train.epochs=9",
                            "train.shuffle=false", "train.optimizer.weight_decay=0.1"}) {
    EXPECT_EQ(key(value), base) << value;
  }
  for (const char* shape : {"train.batch=8", "model.layers.0.out=18", "run.precision=\"bf16\"",
                            "train.optimizer={type=\"sgd\",lr=0.1}", "train.clip_norm=0"}) {
    EXPECT_NE(key(shape), base) << shape;
  }
}

TEST(Population, AMemberThatDivergesLeavesTheOthersAlone) {
  const TempFolder folder;
  const std::vector<Config> configs{
      small_config({"run.deterministic=true", "train.clip_norm=0", "train.seed=1"}),
      small_config({"run.deterministic=true", "train.clip_norm=0", "train.optimizer.lr=1e30"}),
      small_config({"run.deterministic=true", "train.clip_norm=0", "train.seed=2"})};
  const Outcome outcome = train_all(configs);
  EXPECT_FALSE(outcome.population.failed);
  ASSERT_EQ(outcome.members.size(), 3u);
  EXPECT_THAT(outcome.members.at(1).error, HasSubstr("try a smaller train.optimizer.lr"));
  for (const size_t i : {0u, 2u}) {
    Config config = configs[i];
    config.run.threads = 1;
    EXPECT_EQ(text(outcome.members.at(i).model), alone(config));
  }
}

TEST(Population, AFaultOfOneEndsAllAndIsNamed) {
  const TempFolder folder;
  std::vector<Config> configs{small_config(), small_config({"train.batch=5000"}), small_config()};
  const Outcome outcome = train_all(configs);
  ASSERT_TRUE(outcome.population.failed);
  EXPECT_THAT(outcome.population.failed->what(), HasSubstr("train.batch 5000"));
  EXPECT_EQ(outcome.population.failed_member, 1u);
}

TEST(Population, EarlyStoppingIsEachMembersOwn) {
  const TempFolder folder;
  auto set = std::make_shared<data::DataSet>();
  set->train = testing::small_part(203, 7);
  set->test = testing::small_part(150, 8);
  set->validation = testing::small_part(60, 9);
  std::vector<Member> members;
  for (const char* lr : {"train.optimizer.lr=1e-30", "train.optimizer.lr=0.01"}) {
    members.push_back({small_config({"train.patience=1", "train.epochs=6", lr}), set});
  }
  std::map<size_t, int64_t> steps;
  PopulationOptions options;
  options.finished = [&](size_t member, const MemberResult& result) {
    steps[member] = result.report.steps;
  };
  train_population(members, options);
  EXPECT_EQ(steps[0], 2 * 13);  // nothing is ever better than the first evaluation
  EXPECT_GT(steps[1], 2 * 13);
}

TEST(Population, PrunedMembersAreThoseThatWouldBeStoppedThere) {
  const TempFolder folder;
  std::vector<Config> configs;
  for (const char* lr : {"1e-6", "0.01", "1e-5", "2e-6", "1e-3", "1e-7"}) {
    configs.push_back(small_config({"run.deterministic=true", "train.epochs=4",
                                    "train.schedule={type=\"constant\"}",
                                    std::string("train.optimizer.lr=") + lr}));
  }
  for (const bool kept : {false, true}) {
    PopulationOptions options;
    options.prune = HalvingOptions{.factor = 2, .first_epochs = 1, .synchronous = true};
    if (kept) options.folder = folder / "members";
    const Outcome outcome = train_all(configs, options);
    ASSERT_EQ(outcome.members.size(), 6u);
    std::map<size_t, int64_t> after;
    for (const auto& [member, result] : outcome.members) after[member] = result.pruned_after;
    EXPECT_EQ(after[1], 0);  // the rate that learns
    EXPECT_EQ(after[5], 1);
    EXPECT_EQ(after[0], 1);
    EXPECT_EQ(std::ranges::count_if(after, [](const auto& each) { return each.second == 1; }), 3);
    EXPECT_EQ(std::ranges::count_if(after, [](const auto& each) { return each.second == 2; }), 2);
    Config config = configs[1];
    config.run.threads = 1;
    EXPECT_EQ(text(outcome.members.at(1).model), alone(config)) << kept;
  }
}

// The one program gives the mean of the members' probabilities.
TEST(Ensemble, GivesTheMeanOfProbabilities) {
  const TempFolder folder;
  for (const char* precision : {"run.precision=\"fp32\"", "run.precision=\"bf16\""}) {
    std::vector<Config> configs;
    for (const char* more : {"train.seed=1", "train.seed=2", "model.layers.0.out=9"}) {
      configs.push_back(small_config({"run.deterministic=true", precision, more}));
    }
    const Outcome outcome = train_all(configs);
    std::vector<std::vector<std::byte>> files;
    for (const auto& [member, result] : outcome.members) files.push_back(result.model);
    const auto set = small_set();
    const auto evaluate = [&](const std::vector<std::byte>& file) {
      ModelOptions options;
      options.run.device = "cpu";
      options.run.tune = false;
      LoadedModel loaded = load_model(file, "a model", options);
      Machine machine(loaded.config.run);
      nn::LowerOptions lower = lower_options(loaded.config, loaded.scaling, set->test);
      lower.mode = nn::Mode::evaluate;
      const Weights weights(machine.runtime(), loaded.model, nn::lower(loaded.model, lower));
      Evaluator evaluator(machine, loaded.config, loaded.model, set->test, loaded.scaling);
      const Evaluation result = evaluator.run(weights);
      return std::pair(result, evaluator.outputs());
    };
    std::vector<double> mean(150 * 4);
    for (const auto& file : files) {
      const auto [result, outputs] = evaluate(file);
      for (size_t i = 0; i < mean.size(); ++i) mean[i] += double(outputs[i]) / 3;
    }
    const auto [result, outputs] = evaluate(make_ensemble(files));
    const bool half = std::string(precision).find("bf16") != std::string::npos;
    const double bound = half ? 0.01 : 1e-6;  // probabilities are kept in bf16 between layers
    double loss = 0;
    int64_t correct = 0;
    for (size_t i = 0; i < 150; ++i) {
      const auto label = size_t(set->test.targets.span<int32_t>()[i]);
      for (size_t c = 0; c < 4; ++c) EXPECT_NEAR(outputs[4 * i + c], mean[4 * i + c], bound);
      loss -= std::log(mean[4 * i + label]) / 150;
      const auto* row = mean.data() + 4 * i;
      correct += std::max_element(row, row + 4) - row == ptrdiff_t(label) ? 1 : 0;
    }
    EXPECT_NEAR(result.loss, loss, half ? 0.05 * loss : 1e-5);
    if (!half) {
      EXPECT_EQ(result.correct, correct);
    }
  }
}

TEST(Ensemble, RefusesWhatCannotBeJoined) {
  const TempFolder folder;
  const Outcome outcome = train_all({small_config({"train.epochs=1"}),
                                     small_config({"train.epochs=1", "run.precision=\"bf16\""})});
  using Files = std::vector<std::vector<std::byte>>;
  const Files one{outcome.members.at(0).model};
  const Files two{outcome.members.at(0).model, outcome.members.at(1).model};
  EXPECT_THROW(make_ensemble(one), Error);
  EXPECT_THROW(make_ensemble(two), Error);
}

// In any order of results: every member ends once, stages get their shares, and none waits for
// ever.
TEST(Halving, EveryMemberEndsOnce) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    const size_t members = 1 + random() % 30;
    HalvingOptions options{.factor = int64_t(2 + random() % 3),
                           .first_epochs = int64_t(1 + random() % 2),
                           .synchronous = random() % 2 == 0};
    std::vector<int64_t> epochs;
    std::vector<size_t> list;
    for (size_t i = 0; i < members; ++i) {
      epochs.push_back(int64_t(1 + random() % 12));
      list.push_back(i);
    }
    Halving halving(epochs, list, options);
    std::vector<Halving::Job> under_way;
    std::multiset<size_t> ended;
    std::map<size_t, int64_t> made;
    while (true) {
      while (under_way.size() < 3) {
        const auto job = halving.next();
        if (!job) break;
        EXPECT_GT(job->epochs, made[job->member]) << "no progress";
        under_way.push_back(*job);
      }
      if (under_way.empty()) break;
      const size_t i = random() % under_way.size();
      const Halving::Job job = under_way[i];
      under_way.erase(under_way.begin() + int64_t(i));
      made[job.member] = job.epochs;
      const bool fails = random() % 10 == 0, over = job.epochs == epochs[job.member];
      if (fails || over) ended.insert(job.member);
      halving.reached(job.member,
                      fails ? std::numeric_limits<double>::quiet_NaN() : double(random() % 5),
                      fails || over);
      for (const Halving::Job& pruned : halving.take_pruned()) ended.insert(pruned.member);
    }
    EXPECT_FALSE(halving.may_come());
    EXPECT_EQ(ended.size(), members);
    EXPECT_EQ(std::set<size_t>(ended.begin(), ended.end()).size(), members);
  }
}

TEST(Halving, TheBestOfTheRungGoOnWhateverTheOrderOfArrival) {
  std::vector<size_t> orders[] = {{0, 1, 2, 3, 4, 5, 6, 7, 8}, {8, 3, 1, 7, 0, 5, 2, 6, 4}};
  for (const auto& order : orders) {
    std::vector<size_t> list(9);
    for (size_t i = 0; i < 9; ++i) list[i] = i;
    Halving halving(std::vector<int64_t>(9, 9), list, HalvingOptions{.synchronous = true});
    for (size_t i = 0; i < 9; ++i) EXPECT_EQ(halving.next()->epochs, 1);
    EXPECT_FALSE(halving.next());
    for (const size_t member : order) halving.reached(member, double(member % 5), false);
    EXPECT_EQ(halving.take_pruned().size(), 6u);
    std::vector<size_t> promoted;
    while (const auto job = halving.next()) {
      EXPECT_EQ(job->epochs, 3);
      promoted.push_back(job->member);
    }
    EXPECT_THAT(promoted, ElementsAre(4, 3, 8));  // 4, 3 and, of 3 and 8, both
  }
}

// Whatever was known before, the rest ends in the same way.
TEST(Halving, KnownResultsCountAtTheirRungs) {
  const std::vector<int64_t> epochs(9, 9);
  const auto score = [](size_t member) { return double((member * 5) % 9); };
  const auto run = [&](Halving halving) {
    std::map<size_t, int64_t> pruned_after;
    while (const auto job = halving.next()) {
      halving.reached(job->member, score(job->member), job->epochs == 9);
      for (const Halving::Job& each : halving.take_pruned()) {
        EXPECT_TRUE(each.prune);
        pruned_after[each.member] = each.epochs;
      }
    }
    EXPECT_FALSE(halving.may_come());
    return pruned_after;
  };
  const HalvingOptions options{.synchronous = true};
  const auto want = run(Halving(epochs, {0, 1, 2, 3, 4, 5, 6, 7, 8}, options));
  EXPECT_EQ(want.size(), 8u);
  for (unsigned known = 0; known < 1 << 9; ++known) {
    std::vector<size_t> waiting;
    for (size_t i = 0; i < 9; ++i) {
      if ((known >> i & 1) == 0) waiting.push_back(i);
    }
    Halving halving(epochs, waiting, options);
    auto expected = want;
    for (size_t i = 0; i < 9; ++i) {
      if ((known >> i & 1) == 0) continue;
      const auto pruned = want.find(i);
      halving.know(i, score(i), pruned == want.end() ? 0 : pruned->second);
      expected.erase(i);
    }
    EXPECT_EQ(run(std::move(halving)), expected) << known;
  }
}

TEST(JobBoard, GivesTheJobsOfALostRankToOthers) {
  std::vector<size_t> list{0, 1, 2, 3, 4, 5};
  for (const bool movable : {false, true}) {
    JobBoard board(Halving(std::vector<int64_t>(6, 2), list,
                           HalvingOptions{.factor = 2, .first_epochs = 1, .synchronous = true}),
                   movable);
    std::map<size_t, int> at;
    for (int rank : {0, 1, 2, 0, 1, 2}) at[board.next_for(rank)->member] = rank;
    EXPECT_FALSE(board.next_for(0));
    for (size_t i = 0; i < 6; ++i) {
      if (i != 1) board.reached_by(at[i], {i, 1}, double(i), false);
    }
    EXPECT_TRUE(board.may_come());
    board.lose(1);  // it had members 1, under way, and 4, at the rung
    const auto again = board.next_for(2);
    ASSERT_TRUE(again);
    EXPECT_EQ(again->member, 1u);
    EXPECT_EQ(again->epochs, 1);
    board.reached_by(2, *again, 1, false);
    std::map<size_t, bool> ended;
    for (int rank : {0, 2, 0, 2}) {
      while (const auto job = board.next_for(rank)) {
        // A member in a rank's memory is for that rank; one that was in a lost rank's memory is for
        // any.
        if (!movable && job->member != 1 && job->member != 4) {
          EXPECT_EQ(at[job->member], rank);
        }
        ended[job->member] = job->prune;
        board.reached_by(rank, *job, double(job->member), true);
      }
    }
    EXPECT_FALSE(board.may_come());
    EXPECT_EQ(ended, (std::map<size_t, bool>{
                         {0, true}, {1, true}, {2, true}, {3, false}, {4, false}, {5, false}}));
  }
}

}  // namespace
}  // namespace ridgeline::engine
