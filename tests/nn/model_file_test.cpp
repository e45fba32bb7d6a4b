#include "ridgeline/nn/model_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "ridgeline/core/file.h"
#include "ridgeline/nn/activation.h"
#include "ridgeline/nn/linear.h"
#include "tests/nn/expect_error.h"

namespace ridgeline::nn {
namespace {

Model make_model(DType weights = DType::fp32, int64_t hidden = 5) {
  Model model(
      {std::make_shared<LinearLayer>(hidden),
       std::make_shared<ActivationLayer>(ActivationKind::tanh), std::make_shared<LinearLayer>(2)},
      {3, 2}, weights);
  model.initialise(5);
  return model;
}

std::vector<std::byte> bytes_of(const Model& model, const std::string& config) {
  return to_safetensors(model_tensors(model), model_metadata(model, config));
}

TensorFile parse(const std::vector<std::byte>& bytes) {
  return TensorFile::parse(bytes, "m.safetensors");
}

TEST(ModelFile, ComesBackWithItsDescription) {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / "ridgeline-model-file-test.safetensors";
  const Model saved = make_model();
  write_file_atomic(path, bytes_of(saved, "[data]\nname = \"x\"\n"));
  const TensorFile file = TensorFile::read(path);
  std::filesystem::remove(path);

  const ModelDescription description = read_description(file);
  EXPECT_EQ(description.config, "[data]\nname = \"x\"\n");
  EXPECT_EQ(description.input, (Shape{3, 2}));
  EXPECT_EQ(file.metadata().at("format"), "pt");
  Model loaded = make_model();
  loaded.initialise(6);
  const void* before = loaded.params()[0].value.view().data;
  EXPECT_TRUE(load_weights(file, loaded, {.strict = true, .ignore_prefix = {}}).empty());
  EXPECT_EQ(loaded.params()[0].value.view().data, before);
  for (size_t i = 0; i < saved.params().size(); ++i) {
    const auto want = saved.params()[i].value.span<float>();
    const auto got = loaded.params()[i].value.span<float>();
    EXPECT_TRUE(std::equal(want.begin(), want.end(), got.begin())) << saved.params()[i].name;
  }
}

TEST(ModelFile, ConvertsBetweenFloatTypes) {
  const Model wide = make_model(DType::fp64);
  Model narrow = make_model();
  narrow.initialise(9);
  EXPECT_TRUE(load_weights(parse(bytes_of(wide, "")), narrow).empty());
  for (size_t i = 0; i < wide.params().size(); ++i) {
    const auto want = wide.params()[i].value.span<double>();
    const auto got = narrow.params()[i].value.span<float>();
    for (size_t k = 0; k < want.size(); ++k) EXPECT_EQ(got[k], float(want[k]));
  }
  // Half types, whose values are exact in the wider type.
  Model model({std::make_shared<LinearLayer>(2, false)}, {1}, DType::fp64);
  const HostTensor halves(DType::bf16, {2, 1});
  halves.span<Bf16>()[0] = Bf16(1.5f);
  halves.span<Bf16>()[1] = Bf16(-0.25f);
  const std::vector<TensorEntry> entries{entry("0.weight", halves.view())};
  load_weights(parse(to_safetensors(entries, {})), model);
  EXPECT_EQ(model.params()[0].value.span<double>()[0], 1.5);
  EXPECT_EQ(model.params()[0].value.span<double>()[1], -0.25);
}

TEST(ModelFile, ListsEverythingThatDoesNotFit) {
  const HostTensor weight(DType::fp32, {4, 6}), extra(DType::fp32, {2}),
      integers(DType::int32, {5});
  const std::vector<TensorEntry> entries{entry("0.weight", weight.view()),
                                         entry("7.gamma", extra.view()),
                                         entry("0.bias", integers.view())};
  Model model = make_model();
  const float before = model.params()[0].value.span<float>()[0];
  test::expect_error(
      ErrorKind::model,
      {"m.safetensors", "'0.weight' is [4, 6] and should be [5, 6]", "'0.bias' holds int32",
       "'2.weight' [2, 5] is missing", "'2.bias' [2] is missing", "'7.gamma' [2] is not part"},
      [&] { load_weights(parse(to_safetensors(entries, {})), model); });
  EXPECT_EQ(model.params()[0].value.span<float>()[0], before);
}

TEST(ModelFile, IgnoresAPrefixWhenTold) {
  Model model = make_model();
  std::vector<TensorEntry> entries = model_tensors(model);
  const HostTensor state(DType::fp32, {2});
  entries.push_back(entry("optimizer.0.weight.m", state.view()));
  const std::vector<std::byte> bytes = to_safetensors(entries, {});
  EXPECT_THROW(load_weights(parse(bytes), model), Error);
  EXPECT_TRUE(
      load_weights(parse(bytes), model, {.strict = false, .ignore_prefix = "optimizer."}).empty());
}

TEST(ModelFile, WarnsOfWeightsThatAreNotFinite) {
  Model bad = make_model();
  bad.params()[2].value.span<float>()[3] = NAN;
  bad.params()[2].value.span<float>()[4] = INFINITY;
  const TensorFile file = parse(bytes_of(bad, ""));
  Model model = make_model();
  const std::vector<std::string> warnings = load_weights(file, model);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("'2.weight' has 2 weights that are not finite"), std::string::npos);
  EXPECT_TRUE(std::isnan(model.params()[2].value.span<float>()[3]));

  Model untouched = make_model();
  test::expect_error(ErrorKind::model, {"'2.weight'", "not finite"},
                     [&] { load_weights(file, untouched, {.strict = true, .ignore_prefix = {}}); });
  EXPECT_TRUE(std::isfinite(untouched.params()[2].value.span<float>()[3]));
}

TEST(ModelFile, RefusesABadDescription) {
  const auto reading = [](const Metadata& metadata) {
    return [metadata] { read_description(parse(to_safetensors({}, metadata))); };
  };
  Metadata metadata = model_metadata(make_model(), "");
  using test::expect_error;
  expect_error(ErrorKind::model, {"no 'ridgeline.version'"}, reading({{"format", "pt"}}));
  metadata["ridgeline.version"] = "2";
  expect_error(ErrorKind::model, {"version '2'", "reads version 1"}, reading(metadata));
  metadata["ridgeline.version"] = "1";
  for (const char* input :
       {"", "x", "3x", "3x-2", "0", "3,2", "99999999999999999999", "1x1x1x1x1x1x1"}) {
    metadata["ridgeline.input"] = input;
    expect_error(ErrorKind::model, {"ridgeline.input", "like 28x28"}, reading(metadata));
  }
  metadata.erase("ridgeline.config");
  expect_error(ErrorKind::model, {"no 'ridgeline.config'"}, reading(metadata));
}

TEST(ModelFile, MissingFileIsNamed) {
  test::expect_error(ErrorKind::model, {"no/such.safetensors", "No such file"},
                     [] { TensorFile::read("no/such.safetensors"); });
}

}  // namespace
}  // namespace ridgeline::nn
