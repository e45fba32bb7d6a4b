// A text classifier from a folder of labelled files: it is trained, saved in a model file that
// describes how texts become codes, and read again.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "ridgeline/engine/evaluate.h"
#include "ridgeline/engine/load_data.h"
#include "ridgeline/engine/train/train.h"
#include "tests/engine/small_set.h"
#include "tests/nn/expect_error.h"

namespace ridgeline::engine {
namespace {

using testing::TempFolder;

// The class is the letter that occurs three times in a row, anywhere in the text.
void write_texts(const std::filesystem::path& file, int samples, uint64_t seed) {
  std::ofstream out(file);
  out << "topic,body\n";
  const Philox random{seed, streams::kSample};
  for (int i = 0; i < samples; ++i) {
    const auto label = random.below(3, uint64_t(i));
    std::string text;
    for (int j = 0; j < 12; ++j)
      text += char('a' + (j + random.below(2, uint64_t(i * 64 + j))) % 9);
    text.replace(random.below(9, uint64_t(i * 64 + 63)), 3, std::string(3, char('x' + label)));
    out << "xyz"[label] << ",\"" << text << "\"\n";
  }
}

Config text_config(const TempFolder& folder, const std::vector<std::string>& sets) {
  std::vector<std::string> all{"run.tune=false", "run.device=\"cpu\"", "run.threads=1"};
  all.insert(all.end(), sets.begin(), sets.end());
  return parse_config("[data]\nname = \"" + folder.path().string() + R"("
text = { columns = "body", label = "topic", classes = ["x", "y", "z"], length = 16, backward = false }
[model]
layers = [
  { type = "onehot_conv1d", symbols = 70, out = 8, kernel = 3 },
  { type = "relu" },
  { type = "maxpool1d", kernel = 14 },
  { type = "linear", out = 3 },
]
[train]
batch = 16
epochs = 20
optimizer = { type = "adam", lr = 0.02 }
)",
                      "text.toml", all);
}

TEST(TextTraining, LearnsAndKeepsItsCodingInTheModel) {
  const TempFolder folder;
  write_texts(folder.path() / "train.csv", 300, 1);
  write_texts(folder.path() / "test.csv", 100, 2);
  TrainOptions options;
  options.progress = Progress::Style::none;
  options.out = folder.path() / "run";
  const TrainReport report = train(text_config(folder, {}), options);
  EXPECT_GT(report.test.accuracy, 0.95);

  const LoadedModel loaded = load_model(options.out, {});
  ASSERT_TRUE(loaded.config.data.text);
  EXPECT_EQ(loaded.config.data.text->coding.length, 16);
  EXPECT_FALSE(loaded.config.data.text->coding.backward);
  EXPECT_EQ(loaded.config.data.text->coding.class_names, (std::vector<std::string>{"x", "y", "z"}));
  ModelOptions model;
  model.run.threads = 1;
  model.run.tune = false;
  model.run.device = "cpu";
  std::vector<std::string> warnings;
  const Evaluation again = evaluate_file(options.out, "", data::Part::test, {}, model, warnings);
  EXPECT_EQ(again.correct, std::lround(report.test.accuracy * 100));
}

TEST(TextTraining, MovedTextsAreLearntToo) {
  const TempFolder folder;
  write_texts(folder.path() / "train.csv", 300, 1);
  write_texts(folder.path() / "test.csv", 100, 2);
  TrainOptions options;
  options.progress = Progress::Style::none;
  const TrainReport report = train(text_config(folder, {"data.augment.shift=2"}), options);
  EXPECT_GT(report.test.accuracy, 0.9);
}

TEST(TextTraining, RefusesANetworkThatTakesNoCodes) {
  const TempFolder folder;
  write_texts(folder.path() / "train.csv", 20, 1);
  write_texts(folder.path() / "test.csv", 20, 2);
  TrainOptions options;
  options.progress = Progress::Style::none;
  test::expect_error(ErrorKind::usage, {"codes of 70 symbols", "onehot_conv1d"}, [&] {
    train(text_config(folder, {"model.layers.0={ type = \"linear\", out = 14 }"}), options);
  });
}

void write_numbered(const std::filesystem::path& file, int classes) {
  std::ofstream out(file);
  out << "topic,body\n";
  for (int i = 0; i < 4 * classes; ++i) out << i % classes << ",text " << i << "\n";
}

// Without names, the training set determines the number of classes.
TEST(TextTraining, TestLabelsAreThoseOfTheTrainingSet) {
  const TempFolder folder;
  const Config config = text_config(folder, {"data.text.classes=[]"});
  write_numbered(folder.path() / "train.csv", 3);
  write_numbered(folder.path() / "test.csv", 4);
  test::expect_error(ErrorKind::data, {"test.csv", "line 5", "label 3 is outside the 3 classes"},
                     [&] { load_data(config, {}); });
  write_numbered(folder.path() / "test.csv", 2);
  EXPECT_EQ(load_data(config, {}).test.classes, 3);
  const auto part = load_data_part(config, config.data.name, data::Part::test, {}, 3, {});
  EXPECT_EQ(part.classes, 3);
}

TEST(TextTraining, SetsThatAreReadDifferentlyAreDifferentSets) {
  const TempFolder folder;
  const auto key = [&](const char* set) { return data_key(text_config(folder, {set})); };
  EXPECT_EQ(key("train.batch=8"), key("train.batch=16"));
  EXPECT_NE(key("data.text.label=\"body\""), key("data.text.label=\"topic\""));
  EXPECT_NE(key("data.text.test=\"other.csv\""), key("data.text.length=16"));
}

}  // namespace
}  // namespace ridgeline::engine
