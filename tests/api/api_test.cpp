#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <random>

#include "ridgeline/ridgeline.h"

namespace ridgeline {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kSamples = 120, kFeatures = 6, kClasses = 3;

// Points around one centre per class.
struct Points {
  std::vector<float> x;
  std::vector<int32_t> label;
  std::vector<float> value;

  explicit Points(unsigned seed, int32_t first_label = 0) {
    std::mt19937 random(seed);
    std::normal_distribution<float> noise(0.0f, 0.3f);
    for (int64_t i = 0; i < kSamples; ++i) {
      const auto c = int32_t(i % kClasses);
      for (int64_t f = 0; f < kFeatures; ++f) x.push_back(float(f % kClasses == c) + noise(random));
      label.push_back(first_label + c);
      value.push_back(x[size_t(i * kFeatures)] * 2 - 1);
    }
  }
  Array inputs() const { return {x, {kSamples, kFeatures}}; }
  Samples classes() const { return {inputs(), {label, {kSamples}}}; }
  Samples values() const { return {inputs(), {value, {kSamples}}}; }
};

Config small(int64_t out = kClasses) {
  Config config;
  config.add("linear", {{"out", 16}}).add("relu").add("linear", {{"out", out}});
  config.set("train.epochs", 4).set("train.batch", 20).set("train.optimizer.type", "adam");
  config.set("train.optimizer.lr", 0.02).set("run.device", "cpu").set("run.tune", false);
  return config;
}

DeviceOptions plain() {
  DeviceOptions options;
  options.device = "cpu";
  options.tune = false;
  return options;
}

template <typename F>
std::string message_of(F f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::filesystem::path scratch(const char* name) {
  return std::filesystem::path(testing::TempDir()) / name;
}

TEST(Api, SavedModelAnswersTheSame) {
  const Points points(1);
  Model model = train(small(), points.classes()).model;
  const auto want = model.predict(points.inputs());
  const auto file = scratch("api_test.safetensors");
  model.save(file);
  EXPECT_EQ(Model::load(file, plain()).predict(points.inputs()), want);
  EXPECT_EQ(Model::from_bytes(model.to_bytes(), plain()).predict(points.inputs()), want);
  std::vector<float> into(want.size());
  model.predict(points.inputs(), into);
  EXPECT_EQ(into, want);
  std::filesystem::remove(file);
}

TEST(Api, ClassesAreThoseOfTheTargets) {
  const Points points(1, /*first_label=*/7);
  Model model = train(small(), points.classes()).model;
  EXPECT_THAT(model.classes(), ElementsAre("7", "8", "9"));
  EXPECT_GT(model.evaluate(points.classes()).accuracy.value(), 0.9);
  const auto best = model.predict_classes(points.inputs());
  EXPECT_EQ(best.size(), size_t(kSamples));
  EXPECT_EQ(best[1], 1);  // a number of classes()
}

TEST(Api, PartsOfALargeArrayMakeTheSameAnswers) {
  const Points points(1);
  Model model = train(small(), points.classes()).model;
  DeviceOptions options = plain();
  options.batch = 7;  // 120 samples end in a partial batch of one
  const auto parts = Model::from_bytes(model.to_bytes(), options).predict(points.inputs());
  const auto whole = model.predict(points.inputs());
  ASSERT_EQ(parts.size(), whole.size());
  for (size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(parts[i], whole[i], 1e-5) << i;
}

TEST(Api, PredictorAnswersAsTheModel) {
  const Points points(1);
  Model model = train(small(), points.classes()).model;
  const auto want = model.predict(points.inputs());
  PredictorOptions options;
  options.device = "cpu";
  options.tune = false;
  options.batch = 8;
  Predictor predictor(model, options);
  EXPECT_THAT(predictor.input_shape(), ElementsAre(kFeatures));
  std::vector<float> out(8 * kClasses);
  for (const int64_t count : {1, 8}) {
    predictor.run(points.x.data(), count, out.data());
    for (int64_t i = 0; i < count * kClasses; ++i)
      EXPECT_NEAR(out[size_t(i)], want[size_t(i)], 1e-5);
  }
  EXPECT_THAT(message_of([&] { predictor.run(points.x.data(), 9, out.data()); }),
              HasSubstr("9 samples"));
}

TEST(Api, UntrainedModelTakesSamplesAsTheyAre) {
  Model model = Model::create(Config(small()).set("train.loss", "mse"), {kFeatures}, plain());
  EXPECT_THAT(model.input_shape(), ElementsAre(kFeatures));
  EXPECT_TRUE(model.classes().empty());
  const std::vector<LayerInfo> layers = model.layers();
  ASSERT_EQ(layers.size(), 3u);
  EXPECT_EQ(layers[0].path + layers[0].type, "0linear");
  EXPECT_THAT(layers[0].output_shape, ElementsAre(16));
  EXPECT_EQ(layers[0].parameters, 16 * kFeatures + 16);
  EXPECT_EQ(layers[1].parameters, 0);
  const Points points(2);
  const auto answers = model.predict(points.inputs());
  // The prediction is computed by hand, too, from the weights by their names.
  const auto weights = model.weights();
  ASSERT_EQ(weights.size(), 4u);
  EXPECT_EQ(weights[0].name, "0.weight");
  EXPECT_THAT(weights[0].values.shape, ElementsAre(16, kFeatures));
  const auto at = [&](size_t w) { return static_cast<const float*>(weights[w].values.data); };
  for (const int64_t i : {int64_t{0}, kSamples - 1}) {
    std::vector<double> hidden;
    for (int64_t h = 0; h < 16; ++h) {
      double sum = at(1)[h];
      for (int64_t f = 0; f < kFeatures; ++f) {
        sum += double(at(0)[h * kFeatures + f]) * points.x[size_t(i * kFeatures + f)];
      }
      hidden.push_back(std::max(0.0, sum));
    }
    for (int64_t o = 0; o < kClasses; ++o) {
      double sum = at(3)[o];
      for (int64_t h = 0; h < 16; ++h) sum += double(at(2)[o * 16 + h]) * hidden[size_t(h)];
      EXPECT_NEAR(answers[size_t(i * kClasses + o)], sum, 1e-5);
    }
  }
}

TEST(Api, WeightsMoveBetweenModels) {
  const Points points(3);
  Model from = train(small(), points.classes()).model;
  Model to = Model::create(small(), {kFeatures}, plain());
  const auto before = to.predict(points.inputs());
  to.set_weights(from.weights());
  EXPECT_NE(to.predict(points.inputs()), before) << "the plan still has the old weights";
  // Doubles are weights as well.
  std::vector<NamedArray> wide = from.weights();
  const auto* first = static_cast<const float*>(wide[1].values.data);
  const std::vector<double> doubles(first, first + 16);
  wide[1].values = Array(doubles, {16});
  to.set_weights(wide);
}

TEST(Api, WeightsThatDoNotFitAreListedAndChangeNothing) {
  Model model = Model::create(small(), {kFeatures}, plain());
  const Points points(3);
  const auto before = model.predict(points.inputs());
  std::vector<NamedArray> weights = model.weights();
  weights[0].values.shape = {kFeatures, 16};
  weights[1].name = "0.offset";
  const std::string message = message_of([&] { model.set_weights(weights); });
  EXPECT_THAT(message, HasSubstr("0.weight is"));
  EXPECT_THAT(message, HasSubstr("0.offset is no weight"));
  EXPECT_THAT(message, HasSubstr("0.bias is missing"));
  EXPECT_EQ(model.predict(points.inputs()), before);
}

TEST(Api, WrongShapesAreRefused) {
  const Points points(1);
  Model model = train(small(), points.classes()).model;
  const Array wide(points.x, {kSamples * 2, kFeatures / 2});
  EXPECT_THAT(message_of([&] { model.predict(wide); }), HasSubstr("takes [6]"));
  EXPECT_THAT(message_of([&] { model.predict(Array()); }), HasSubstr("no samples"));
  EXPECT_THAT(message_of([&] { Array(points.x, {kSamples, kFeatures + 1}); }), HasSubstr("shape"));
  std::vector<float> little(5);
  EXPECT_THAT(message_of([&] { model.predict(points.inputs(), little); }), HasSubstr("5 numbers"));
  EXPECT_THAT(message_of([&] { train(small(4), points.classes()); }), HasSubstr("out to 3"));
  EXPECT_THAT(message_of([&] { Model::create(small(), {0}, plain()); }), HasSubstr("extent of 0"));
  EXPECT_THAT(message_of([&] { Model::create(small(), {}, plain()); }), HasSubstr("dimensions"));
  EXPECT_THAT(
      message_of([&] { train(small(1), points.values()).model.predict_classes(points.inputs()); }),
      HasSubstr("use predict()"));
}

TEST(Api, MissingAndDamagedFilesAreErrorsOfTheModel) {
  EXPECT_THAT(message_of([] { Model::load(scratch("nowhere.safetensors"), plain()); }),
              HasSubstr("nowhere.safetensors"));
  std::vector<std::byte> bytes = Model::create(small(), {kFeatures}, plain()).to_bytes();
  bytes[bytes.size() - 5] ^= std::byte{1};
  EXPECT_THAT(message_of([&] { Model::from_bytes(bytes, plain()); }), HasSubstr("in memory"));
  bytes.resize(bytes.size() / 2);
  EXPECT_THAT(message_of([&] { Model::from_bytes(bytes, plain()); }), HasSubstr("in memory"));
  EXPECT_THAT(message_of([&] { Model::from_bytes({}, plain()); }), HasSubstr("in memory"));
}

TEST(Api, CallbacksEndARunInOrder) {
  const Points points(1);
  Config config = small();
  config.set("train.epochs", 50).set("train.log_steps", 1);
  TrainOptions options;
  options.progress = [](const Progress& now) { return now.step < 4; };
  EXPECT_LT(train(config, points.classes(), options).steps, 50);
  options = {};
  options.epoch_ended = [](const Epoch& epoch) { return epoch.number < 2; };
  for (const bool hold_out : {true, false}) {
    options.hold_out = hold_out;
    const TrainResult result = train(config, points.classes(), options);
    // 120 samples, or those left when a tenth is set aside, in batches of 20.
    EXPECT_EQ(result.steps, 2 * 6) << hold_out;
    EXPECT_EQ(result.test_loss.has_value(), hold_out);
  }
  options = {};
  options.keep_going = [] { return false; };
  EXPECT_LT(train(config, points.classes(), options).steps, 50);
}

TEST(Api, EpochsTellOfTheValidationSamples) {
  const Points points(1), others(2);
  TrainOptions options;
  options.validation = others.classes();
  options.hold_out = false;
  std::vector<Epoch> epochs;
  std::vector<double> losses;  // of the model as it was when each epoch ended
  options.epoch_ended = [&](const Epoch& epoch) {
    epochs.push_back(epoch);
    losses.push_back(epoch.model().evaluate(others.classes()).loss);
    return true;
  };
  Model model = train(Config(small()).set("train.eval_every", 3), points.classes(), options).model;
  ASSERT_EQ(epochs.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(epochs[i].number, int64_t(i) + 1);
    EXPECT_EQ(epochs[i].step, (int64_t(i) + 1) * 6);
    EXPECT_EQ(epochs[i].evaluation.has_value(), i == 2 || i == 3) << i;
    EXPECT_NEAR(epochs[i].learning_rate, 0.02, 1e-9);
    if (epochs[i].evaluation) {
      EXPECT_NEAR(losses[i], epochs[i].evaluation->loss, 1e-5);
    }
  }
  EXPECT_GT(losses[0], losses[3]);
  EXPECT_LT(epochs[3].loss, epochs[0].loss);
  EXPECT_NEAR(model.evaluate(others.classes()).loss, epochs[3].evaluation->loss, 1e-5);
  EXPECT_EQ(model.evaluate(others.classes()).samples, kSamples);
}

TEST(Api, PopulationsTrainEachConfigAsAlone) {
  const Points points(4);
  std::vector<Config> configs;
  for (const int seed : {1, 2, 3}) {
    configs.push_back(Config(small()).set("train.seed", seed).set("run.deterministic", true));
    configs.back().set("run.threads", 2);
  }
  PopulationOptions options;
  options.hold_out = false;
  size_t came = 0;
  options.finished = [&](size_t, const MemberResult& result) { came += result.trained ? 1 : 0; };
  std::vector<MemberResult> members = train_population(configs, points.classes(), options);
  ASSERT_EQ(members.size(), 3u);
  EXPECT_EQ(came, 3u);
  TrainOptions alone;
  alone.hold_out = false;
  std::vector<float> mean(members[0].trained->model.predict(points.inputs()).size());
  std::vector<Model> models;
  for (size_t i = 0; i < 3; ++i) {
    configs[i].set("run.threads", 1);
    const TrainResult solo = train(configs[i], points.classes(), alone);
    EXPECT_EQ(solo.train_loss, members[i].trained->train_loss);
    const auto each = members[i].trained->model.predict(points.inputs());
    // Predictions may come from other kernels; the weights are the same bits.
    const auto here = members[i].trained->model.weights(), there = solo.model.weights();
    ASSERT_EQ(here.size(), there.size());
    for (size_t w = 0; w < here.size(); ++w) {
      const auto floats = [](const Array& array) {
        int64_t count = 1;
        for (const int64_t extent : array.shape) count *= extent;
        const auto* first = static_cast<const float*>(array.data);
        return std::vector<float>(first, first + count);
      };
      EXPECT_EQ(floats(here[w].values), floats(there[w].values)) << here[w].name;
    }
    for (size_t k = 0; k < each.size(); ++k) mean[k] += each[k] / 3;
    models.push_back(members[i].trained->model);
  }
  Model together = ensemble(models);
  const auto given = together.predict(points.inputs());
  for (size_t k = 0; k < mean.size(); ++k) EXPECT_NEAR(given[k], mean[k], 1e-5);
}

TEST(Api, TrainingGoesOnFromAModel) {
  const Points points(4);
  Config config = small(1);
  config.set("train.loss", "mse");
  TrainOptions options;
  options.hold_out = false;
  const TrainResult first = train(config, points.values(), options);
  options.start = first.model;
  Model second = train(config, points.values(), options).model;
  EXPECT_LT(second.evaluate(points.values()).mse.value(),
            Model(first.model).evaluate(points.values()).mse.value());
  // With no step to make it is the same model.
  config.set("train.epochs", 0);
  Model same = train(config, points.values(), options).model;
  EXPECT_EQ(same.predict(points.inputs()), Model(first.model).predict(points.inputs()));
  options.start = Model::create(small(2), {kFeatures}, plain());
  EXPECT_THAT(message_of([&] { train(config, points.values(), options); }), HasSubstr("2 classes"));
}

}  // namespace
}  // namespace ridgeline
