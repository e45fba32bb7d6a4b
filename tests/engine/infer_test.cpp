#include "ridgeline/engine/infer/infer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>

#include "ridgeline/engine/train/train.h"
#include "ridgeline/nn/safetensors.h"
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
    const auto bytes = set_->test.inputs.span<const char>();
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
  options_.batch = 64;  // 150 samples: the last chunk is partial
  infer(temp_ / "run", raw_, temp_ / "labels.csv", options_);
  std::istringstream lines(slurp(temp_ / "labels.csv"));
  std::string line;
  std::getline(lines, line);
  EXPECT_EQ(line, "index,label,p0,p1,p2,p3");
  int64_t samples = 0, correct = 0;
  while (std::getline(lines, line)) {
    std::istringstream fields(line);
    std::vector<double> values;
    for (std::string field; std::getline(fields, field, ',');) values.push_back(std::stod(field));
    ASSERT_EQ(values.size(), 6u);
    EXPECT_EQ(int64_t(values[0]), samples);
    EXPECT_NEAR(values[2] + values[3] + values[4] + values[5], 1.0, 1e-6);
    const auto best = std::max_element(values.begin() + 2, values.end()) - values.begin() - 2;
    EXPECT_EQ(int64_t(values[1]), best);
    correct += int32_t(values[1]) == set_->test.targets.span<int32_t>()[size_t(samples)];
    ++samples;
  }
  EXPECT_EQ(samples, 150);
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
  int64_t samples = 0;
  bool differ = false;
  const auto fields = [](const std::string& line) {
    std::istringstream text(line);
    std::vector<double> values;
    for (std::string field; std::getline(text, field, ',');) values.push_back(std::stod(field));
    return values;
  };
  for (; std::getline(wide, a) && std::getline(half, b); ++samples) {
    const auto x = fields(a), y = fields(b);
    ASSERT_EQ(x.size(), y.size());
    differ |= a != b;
    for (size_t i = 2; i < x.size(); ++i) EXPECT_NEAR(x[i], y[i], 0.05) << a << "; " << b;
  }
  EXPECT_EQ(samples, 150);
  EXPECT_TRUE(differ);  // otherwise nothing was rounded
  options_.model.precision = Precision::fp64;
  EXPECT_THROW(infer(temp_ / "run", raw_, temp_ / "fp64.csv", options_), Error);
}

TEST_F(Infer, JsonLines) {
  infer(temp_ / "run", idx_, temp_ / "labels.jsonl", options_);
  std::istringstream lines(slurp(temp_ / "labels.jsonl"));
  int64_t samples = 0;
  for (std::string line; std::getline(lines, line); ++samples) {
    const auto json = nlohmann::json::parse(line);
    EXPECT_EQ(json["index"], samples);
    EXPECT_EQ(json["p"].size(), 4u);
  }
  EXPECT_EQ(samples, 150);
}

// A model of one linear layer, whose outputs a few lines of this test compute as well.
class InferMse : public Infer {
 protected:
  void SetUp() override {
    Infer::SetUp();
    TrainOptions options;
    options.out = temp_ / "mse";
    options.progress = Progress::Style::none;
    options.set = set_;
    report_ =
        train(small_config({"model.layers=[{type=\"linear\",out=4}]", "train.loss=mse"}), options);
    const nn::TensorFile file = nn::TensorFile::read(temp_ / "mse/model.safetensors");
    const auto read = [&](const char* name) {
      const nn::TensorEntry* entry = file.find(name);
      std::vector<float> values(entry->data.size() / sizeof(float));
      std::memcpy(values.data(), entry->data.data(), entry->data.size());
      return values;
    };
    const auto w = read("0.weight"), b = read("0.bias");
    const auto x = set_->test.inputs.span<const uint8_t>();
    for (size_t sample = 0; sample < 150; ++sample) {
      auto& y = want_.emplace_back(b.begin(), b.end());
      for (size_t i = 0; i < 4; ++i) {
        for (size_t p = 0; p < 36; ++p) y[i] += double(w[i * 36 + p]) * x[sample * 36 + p] / 255.0;
      }
    }
  }
  void expect_outputs(const nlohmann::json& got, size_t sample, double bound) const {
    ASSERT_EQ(got.size(), 4u);
    for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(got[i].get<double>(), want_[sample][i], bound);
  }

  std::vector<std::vector<double>> want_;
};

TEST_F(InferMse, OutputsAreRawAndHaveTheirOwnName) {
  infer(temp_ / "mse", raw_, temp_ / "out.csv", options_);
  std::istringstream lines(slurp(temp_ / "out.csv"));
  std::string line;
  std::getline(lines, line);
  EXPECT_EQ(line, "index,label,y0,y1,y2,y3");
  bool outside = false;  // whether a value is outside the range of probabilities
  for (size_t sample = 0; std::getline(lines, line); ++sample) {
    const auto values = nlohmann::json::parse("[" + line + "]");
    const auto& want = want_[sample];
    expect_outputs({values[2], values[3], values[4], values[5]}, sample, 1e-5);
    EXPECT_EQ(values[1], std::max_element(want.begin(), want.end()) - want.begin());
    outside |= *std::min_element(want.begin(), want.end()) < 0;
  }
  EXPECT_TRUE(outside);

  infer(temp_ / "mse", raw_, temp_ / "out.jsonl", options_);
  std::istringstream objects(slurp(temp_ / "out.jsonl"));
  size_t sample = 0;
  for (; std::getline(objects, line); ++sample) {
    const auto json = nlohmann::json::parse(line);
    EXPECT_FALSE(json.contains("p"));
    expect_outputs(json["y"], sample, 1e-5);
  }
  EXPECT_EQ(sample, 150u);

  options_.model.precision = Precision::bf16;  // outputs are halves, which are printed as well
  infer(temp_ / "mse", raw_, temp_ / "half.jsonl", options_);
  std::istringstream halves(slurp(temp_ / "half.jsonl"));
  for (sample = 0; std::getline(halves, line); ++sample) {
    expect_outputs(nlohmann::json::parse(line)["y"], sample, 0.05);
  }
  EXPECT_EQ(sample, 150u);
}

TEST_F(InferMse, LabelsAloneAndTheEvaluationAgreeWithTheOutputs) {
  options_.outputs = false;
  infer(temp_ / "mse", raw_, temp_ / "labels.csv", options_);
  std::istringstream lines(slurp(temp_ / "labels.csv"));
  std::string line;
  std::getline(lines, line);
  EXPECT_EQ(line, "index,label");
  double loss = 0;
  int64_t correct = 0;
  for (size_t sample = 0; std::getline(lines, line); ++sample) {
    const auto& y = want_[sample];
    const auto label = size_t(set_->test.targets.span<int32_t>()[sample]);
    for (size_t i = 0; i < 4; ++i) loss += std::pow(y[i] - double(i == label), 2) / (4 * 150);
    const auto best = size_t(std::max_element(y.begin(), y.end()) - y.begin());
    EXPECT_EQ(line, fmt::format("{},{}", sample, best));
    correct += best == label;
  }
  EXPECT_NEAR(report_.test.loss, loss, 1e-6 * loss);
  EXPECT_EQ(report_.test.correct, correct);
}

// For values that are not probabilities, the page shows no confidence in per cent.
TEST_F(InferMse, ThePageShowsValues) {
  options_.report = temp_ / "page";
  infer(temp_ / "mse", raw_, temp_ / "out.csv", options_);
  const std::string mse = slurp(temp_ / "page/report.html");
  EXPECT_EQ(mse.find("Certainty"), std::string::npos);
  EXPECT_NE(mse.find("Least certain"), std::string::npos);
  infer(temp_ / "run", raw_, temp_ / "p.csv", options_);
  EXPECT_NE(slurp(temp_ / "page/report.html").find("Certainty"), std::string::npos);
}

TEST_F(Infer, CodesThatTheModelDoesNotKnowAreRefused) {
  TrainOptions options;
  options.out = temp_ / "codes";
  options.progress = Progress::Style::none;
  options.set = set_;
  train(small_config({"model.layers=[{type=\"embedding\",vocabulary=240,out=3},"
                      "{type=\"linear\",out=4}]",
                      "train.epochs=1"}),
        options);
  infer(temp_ / "codes", raw_, temp_ / "good.csv", options_);
  std::string bytes = slurp(raw_);
  bytes[70 * 36 + 7] = char(240);
  std::ofstream(temp_ / "bad.raw", std::ios::binary) << bytes;
  options_.batch = 64;
  try {
    infer(temp_ / "codes", temp_ / "bad.raw", temp_ / "bad.csv", options_);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(exit_code(error.kind()), 3);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("bad.raw: sample 70 holds the code 240"));
  }
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
