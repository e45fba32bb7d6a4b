#include "ridgeline/engine/infer/infer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "ridgeline/engine/train/train.h"
#include "tests/engine/small_set.h"

namespace ridgeline::engine {
namespace {

using testing::slurp;
using testing::small_config;
using testing::small_set;
using testing::TempFolder;

// A trained run and its test images as raw bytes and as IDX.
class Infer : public ::testing::Test {
 protected:
  void SetUp() override {
    set_ = small_set();
    TrainOptions options;
    options.out = temp_ / "run";
    options.progress = Progress::Style::none;
    options.set = set_;
    report_ = train(small_config({"train.epochs=20"}), options);
    const auto bytes = set_->test.images.span<const char>();
    raw_ = temp_ / "images.raw";
    std::ofstream(raw_, std::ios::binary).write(bytes.data(), std::streamsize(bytes.size()));
    idx_ = temp_ / "images-idx3-ubyte";
    std::ofstream idx(idx_, std::ios::binary);
    const unsigned char head[] = {0, 0, 8, 3, 0, 0, 0, 150, 0, 0, 0, 6, 0, 0, 0, 6};
    idx.write(reinterpret_cast<const char*>(head), sizeof head);
    idx.write(bytes.data(), std::streamsize(bytes.size()));
    options_.model.run.tune = false;
  }

  TempFolder temp_;
  std::shared_ptr<const data::DataSet> set_;
  TrainReport report_;
  std::filesystem::path raw_, idx_;
  InferOptions options_;
};

TEST_F(Infer, CsvAgreesWithTheEvaluation) {
  options_.batch = 64;  // 150 rows: the last chunk is partial
  infer(temp_ / "run", raw_, temp_ / "labels.csv", options_);
  std::istringstream lines(slurp(temp_ / "labels.csv"));
  std::string line;
  std::getline(lines, line);
  EXPECT_EQ(line, "index,label,p0,p1,p2,p3");
  int64_t rows = 0, correct = 0;
  while (std::getline(lines, line)) {
    std::istringstream fields(line);
    std::vector<double> values;
    for (std::string field; std::getline(fields, field, ',');) values.push_back(std::stod(field));
    ASSERT_EQ(values.size(), 6u);
    EXPECT_EQ(int64_t(values[0]), rows);
    EXPECT_NEAR(values[2] + values[3] + values[4] + values[5], 1.0, 1e-6);
    const auto best = std::max_element(values.begin() + 2, values.end()) - values.begin() - 2;
    EXPECT_EQ(int64_t(values[1]), best);
    correct += int32_t(values[1]) == set_->test.labels.span<int32_t>()[size_t(rows)];
    ++rows;
  }
  EXPECT_EQ(rows, 150);
  EXPECT_EQ(correct, report_.test.correct);
}

TEST_F(Infer, IdxRawAndBatchSizesGiveTheSame) {
  infer(temp_ / "run", raw_, temp_ / "raw.csv", options_);
  infer(temp_ / "run/model.safetensors", idx_, temp_ / "idx.csv", options_);
  EXPECT_EQ(slurp(temp_ / "raw.csv"), slurp(temp_ / "idx.csv"));
  // A checkpoint is a model too.
  infer(temp_ / "run/checkpoint.safetensors", idx_, temp_ / "checkpoint.csv", options_);
  EXPECT_EQ(slurp(temp_ / "raw.csv"), slurp(temp_ / "checkpoint.csv"));
}

TEST_F(Infer, AnotherPrecisionThanTheTrainingsGivesNearlyTheSame) {
  infer(temp_ / "run", raw_, temp_ / "fp32.csv", options_);
  options_.model.precision = Precision::bf16;
  infer(temp_ / "run", raw_, temp_ / "bf16.csv", options_);
  std::istringstream wide(slurp(temp_ / "fp32.csv")), half(slurp(temp_ / "bf16.csv"));
  std::string a, b;
  std::getline(wide, a);
  std::getline(half, b);
  int64_t rows = 0;
  bool differ = false;
  const auto fields = [](const std::string& line) {
    std::istringstream text(line);
    std::vector<double> values;
    for (std::string field; std::getline(text, field, ',');) values.push_back(std::stod(field));
    return values;
  };
  for (; std::getline(wide, a) && std::getline(half, b); ++rows) {
    const auto x = fields(a), y = fields(b);
    ASSERT_EQ(x.size(), y.size());
    differ |= a != b;
    for (size_t i = 2; i < x.size(); ++i) EXPECT_NEAR(x[i], y[i], 0.05) << a << "; " << b;
  }
  EXPECT_EQ(rows, 150);
  EXPECT_TRUE(differ);  // else nothing was rounded
  options_.model.precision = Precision::fp64;
  EXPECT_THROW(infer(temp_ / "run", raw_, temp_ / "fp64.csv", options_), Error);
}

TEST_F(Infer, JsonLines) {
  infer(temp_ / "run", idx_, temp_ / "labels.jsonl", options_);
  std::istringstream lines(slurp(temp_ / "labels.jsonl"));
  int64_t rows = 0;
  for (std::string line; std::getline(lines, line); ++rows) {
    const auto json = nlohmann::json::parse(line);
    EXPECT_EQ(json["index"], rows);
    EXPECT_EQ(json["p"].size(), 4u);
  }
  EXPECT_EQ(rows, 150);
}

TEST_F(Infer, WrongSizesAreRefusedAndNothingIsWritten) {
  std::ofstream(temp_ / "odd.raw") << std::string(37, 'x');
  try {
    infer(temp_ / "run", temp_ / "odd.raw", temp_ / "odd.csv", options_);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(exit_code(error.kind()), 3) << error.what();
  }
  EXPECT_FALSE(std::filesystem::exists(temp_ / "odd.csv"));
}

}  // namespace
}  // namespace ridgeline::engine
