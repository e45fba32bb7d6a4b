#include "ridgeline/serve/infer_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "ridgeline/serve/http_error.h"

namespace ridgeline::serve {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<TensorSpec> kInputs = {{"x", Datatype::fp32, {-1, 2}},
                                         {"pixels", Datatype::uint8, {-1, 2}},
                                         {"words", Datatype::bytes, {-1, 1}}};
const std::vector<TensorSpec> kOutputs = {{"probabilities", Datatype::fp32, {-1, 3}},
                                          {"label", Datatype::int64, {-1}}};

InferRequest parse(std::string body, std::optional<size_t> header = {}) {
  RequestParser parser(1 << 16);
  InferRequest request;
  parser.parse(body, header, kInputs, kOutputs, request);
  return request;
}

// The status and the message of a refused request.
std::pair<int, std::string> refusal(std::string body, std::optional<size_t> header = {}) {
  try {
    parse(std::move(body), header);
  } catch (const HttpError& error) {
    return {error.status, error.what()};
  }
  return {200, ""};
}

std::vector<float> floats(const InputTensor& tensor) {
  std::vector<float> values(tensor.values.size() / sizeof(float));
  std::memcpy(values.data(), tensor.values.data(), tensor.values.size());
  return values;
}

TEST(InferRequest, KeysComeInAnyOrder) {
  const InferRequest request = parse(
      R"({"parameters":{"binary_data_output":true},"inputs":[{"data":[1,2.5,-3,4e1],"datatype":"FP32","shape":[2,2],"name":"x"}],"id":"7"})");
  EXPECT_EQ(request.id, "7");
  EXPECT_THAT(floats(request.inputs.at(0)), ElementsAre(1, 2.5, -3, 40));
  ASSERT_EQ(request.outputs.size(), 2u);
  EXPECT_TRUE(request.outputs[0].binary && request.outputs[1].binary);
}

TEST(InferRequest, MissingNumbersAreNan) {
  const InferRequest request =
      parse(R"({"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[null,1]}]})");
  EXPECT_TRUE(std::isnan(floats(request.inputs.at(0))[0]));
}

TEST(InferRequest, TextsOfJsonAndBinaryAreAlike) {
  const InferRequest json = parse(
      R"({"inputs":[{"name":"words","shape":[2,1],"datatype":"BYTES","data":["a\u00e9",""]}]})");
  std::string head =
      R"({"inputs":[{"name":"words","shape":[2,1],"datatype":"BYTES","parameters":{"binary_data_size":11}}]})";
  const std::string binary("\3\0\0\0a\xc3\xa9\0\0\0\0", 11);
  const InferRequest other = parse(head + binary, head.size());
  for (const InferRequest& request : {json, other}) {
    EXPECT_EQ(request.inputs.at(0).text(0), "a\xc3\xa9");
    EXPECT_EQ(request.inputs.at(0).text(1), "");
  }
}

TEST(InferRequest, BinaryTensorsFollowInOrder) {
  const std::string head =
      R"({"inputs":[{"name":"pixels","shape":[1,2],"datatype":"INT16","parameters":{"binary_data_size":4}},)"
      R"({"name":"x","shape":[1,2],"datatype":"FP32","parameters":{"binary_data_size":8}}]})";
  const float values[] = {0.5f, -2.0f};
  std::string body = head + std::string("\7\0\xff\0", 4);
  body.append(reinterpret_cast<const char*>(values), sizeof values);
  const InferRequest request = parse(body, head.size());
  EXPECT_THAT(request.inputs.at(0).values, ElementsAre(7, 255));
  EXPECT_THAT(floats(request.inputs.at(1)), ElementsAre(0.5f, -2.0f));
}

TEST(InferRequest, FaultsNameTheField) {
  const auto input = [](const std::string& rest) { return "{\"inputs\":[{" + rest + "}]}"; };
  const std::tuple<std::string, int, const char*> cases[] = {
      {"", 400, "JSON"},
      {"null", 400, "object"},
      {"{}", 400, "inputs"},
      {input(""), 400, "inputs[0].name"},
      {input(R"("name":"y")"), 400, "it has x, pixels, words"},
      {input(R"("name":"x","datatype":"BOOL","shape":[1,2],"data":[1,2])"), 400, "value 1 is 2"},
      {input(R"("name":"x","datatype":"INT8","shape":[1,2],"data":[-128,128])"), 400,
       "value 1 is 128"},
      {input(R"("name":"x","datatype":"INT8","shape":[1,2],"data":[-129,1])"), 400,
       "value 0 is -129"},
      {input(R"("name":"x","datatype":"UINT16","shape":[1,2],"data":[65535,65536])"), 400,
       "value 1 is 65536, but the datatype is UINT16"},
      {input(R"("name":"x","datatype":"INT64","shape":[1,2],"data":[1,9223372036854775808])"), 400,
       "value 1 is 9223372036854775808"},
      {input(R"("name":"x","datatype":"UINT64","shape":[1,2],"data":[18446744073709551615,-1])"),
       400, "value 1 is -1"},
      {input(R"("name":"x","shape":[1,2],"data":[1,2])"), 400, "inputs[0].datatype"},
      {input(R"("name":"x","datatype":"FP32","data":[1,2])"), 400, "inputs[0].shape"},
      {input(R"("name":"x","datatype":"FP32","shape":[1,2])"), 400, "neither data"},
      {input(R"("name":"x","datatype":"FP32","shape":[1,3],"data":[1,2,3])"), 400, "[-1, 2]"},
      {input(R"("name":"x","datatype":"FP32","shape":[1,2],"data":[1,1e39])"), 400, "value 1"},
      {input(R"("name":"x","datatype":"FP32","shape":[1,2],"data":[1,1e999])"), 400, "JSON"},
      {input(R"("name":"x","datatype":"INT8","shape":[1,2],"data":[1,1.5])"), 400, "value 1"},
      {input(R"("name":"x","datatype":"FP32","shape":[9223372036854775807,2],"data":[1])"), 413,
       "larger"},
      {input(R"("name":"x","datatype":"FP32","shape":[1,9223372036854775807,4],"data":[1])"), 413,
       "larger"},
      {input(R"("name":"x","datatype":"FP32","shape":[8193,2],"data":[1])"), 413, "65536 bytes"},
      {input(R"("name":"pixels","datatype":"UINT8","shape":[1,2],"data":[0,256])"), 400,
       "0 to 255"},
      {input(R"("name":"words","datatype":"BYTES","shape":[1,1],"data":[5])"), 400, "no string"},
  };
  for (const auto& [body, status, says] : cases) {
    const auto [code, message] = refusal(body);
    EXPECT_EQ(code, status) << body;
    EXPECT_THAT(message, HasSubstr(says)) << body;
  }
}

TEST(InferRequest, BinaryLengthsMustFitExactly) {
  const auto words = [](int size) {
    return R"({"inputs":[{"name":"words","shape":[1,1],"datatype":"BYTES","parameters":{"binary_data_size":)" +
           std::to_string(size) + "}}]}";
  };
  const std::string bytes[] = {std::string("\1\0\0", 3), std::string("\2\0\0\0a", 5),
                               std::string("\1\0\0\0ab", 6), std::string("\xff\xff\xff\xff", 4)};
  for (const std::string& binary : bytes) {
    const std::string head = words(int(binary.size()));
    EXPECT_EQ(refusal(head + binary, head.size()).first, 400);
  }
  EXPECT_EQ(refusal(words(4) + "123", words(4).size()).first, 400);
  EXPECT_EQ(refusal(words(4), 100000).first, 400);
  EXPECT_EQ(refusal("1234", 0).first, 400);  // several inputs: which one would it be?
}

// A damaged request is either refused or understood.
TEST(InferRequest, AnyDamageIsAnError) {
  const std::string head =
      R"({"inputs":[{"name":"x","shape":[2,2],"datatype":"FP32","data":[1,2,3,4]},)"
      R"({"name":"pixels","shape":[2,2],"datatype":"UINT8","parameters":{"binary_data_size":4}}],"outputs":[{"name":"label"}]})";
  const std::string good = head + "abcd";
  ASSERT_EQ(refusal(good, head.size()).first, 200);
  uint32_t draw = 12345;
  const auto next = [&] { return draw = draw * 1664525u + 1013904223u, draw >> 8; };
  RequestParser parser(1 << 16);
  InferRequest request;
  for (int i = 0; i < 20000; ++i) {
    std::string body = good;
    for (uint32_t n = next() % 3 + 1; n > 0; --n) body[next() % body.size()] = char(next());
    if (next() % 4 == 0) body.resize(next() % body.size());
    try {
      parser.parse(body, next() % 2 == 0 ? std::optional<size_t>(head.size()) : std::nullopt,
                   kInputs, kOutputs, request);
    } catch (const HttpError& error) {
      EXPECT_TRUE(error.status == 400 || error.status == 413);
    }
  }
}

}  // namespace
}  // namespace ridgeline::serve
