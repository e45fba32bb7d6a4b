#include "ridgeline/data/source/open.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>

#include "ridgeline/data/summary.h"
#include "tests/data/array_files.h"
#include "tests/data/files.h"
#include "tests/data/image_files.h"

namespace ridgeline::data {
namespace {

using namespace testing;
using ::testing::ElementsAre;

class OpenTest : public ::testing::Test {
 protected:
  OpenedSource open(const std::string& name, const std::string& bytes,
                    const SourceOptions& options = {}) {
    return open_source(write_file(folder_ / name, bytes), options);
  }
  static std::string array(const std::string& shape, size_t bytes) {
    return npy(npy_literal("|u1", shape), std::string(bytes, '\3'));
  }

  TempFolder folder_;
};

TEST_F(OpenTest, NamesAnArrayByItsFile) {
  const OpenedSource source = open("inputs.npy", array("(2, 3)", 6));
  EXPECT_EQ(source.title, "a NumPy array (.npy)");
  ASSERT_EQ(source.parts.size(), 1u);
  EXPECT_EQ(source.parts[0].set.fields()[0].name, "inputs");
  EXPECT_EQ(open("inputs.npy.gz", gzip(array("(2, 3)", 6))).title,
            "a NumPy array (.npy), packed by gzip");
}

TEST_F(OpenTest, FindsThePartsOfAnArchive) {
  const std::string five = array("(5,)", 5), two = array("(2,)", 2);
  const OpenedSource source = open("mnist.npz", zip({{.name = "x_test.npy", .bytes = two},
                                                     {.name = "x_train.npy", .bytes = five},
                                                     {.name = "y_train.npy", .bytes = five},
                                                     {.name = "y_test.npy", .bytes = two}}));
  ASSERT_EQ(source.parts.size(), 2u);
  EXPECT_EQ(source.parts[0].name, "train");
  EXPECT_EQ(source.parts[0].set.size(), 5);
  EXPECT_EQ(source.parts[0].set.fields()[1].name, "y");
  EXPECT_EQ(source.parts[1].name, "test");
  // Names that say no part must agree in the number of samples.
  expect_error(ErrorKind::data, {"'y' has 2 samples, but 'x' has 5"}, [&] {
    (void)open("bad.npz", zip({{.name = "x.npy", .bytes = five}, {.name = "y.npy", .bytes = two}}));
  });
}

TEST_F(OpenTest, FindsThePartsOfAFolder) {
  write_image_folder(folder_ / "idx", 4, 2, 2);
  const OpenedSource idx = open_source(folder_ / "idx");
  ASSERT_EQ(idx.parts.size(), 2u);
  EXPECT_EQ(idx.parts[1].set.size(), 2);
  EXPECT_EQ(idx.parts[0].set.field("image").shape, Shape({3, 2}));
  const std::string image = png(2, 2, 8, PngColour::grey, "abcd");
  write_file(folder_ / "photos/train/cat/a.png", image);
  write_file(folder_ / "photos/val/cat/a.png", image);
  const OpenedSource photos = open_source(folder_ / "photos");
  ASSERT_EQ(photos.parts.size(), 2u);
  EXPECT_EQ(photos.parts[1].name, "validation");
  expect_error(ErrorKind::data, {"holds no images"}, [&] {
    std::filesystem::create_directory(folder_ / "void");
    (void)open_source(folder_ / "void");
  });
}

TEST_F(OpenTest, ReadsTextsLineByLine) {
  const OpenedSource source = open("book.txt", "first line\n\nthird\n");
  const Field& text = source.parts[0].set.field("text");
  EXPECT_EQ(text.samples, 3);
  EXPECT_EQ(read_text(text, 2), "third");
  const FieldSummary summary = summarise(text);
  EXPECT_EQ(summary.missing, 1);
  EXPECT_EQ(summary.most_length, 10);
}

TEST_F(OpenTest, RefusesWhatHoldsNoSamples) {
  const auto refuse = [&](const std::string& bytes, const std::vector<std::string>& parts) {
    expect_error(ErrorKind::data, parts, [&] { (void)open("x", bytes); });
  };
  refuse("", {"is empty"});
  refuse("\x80\x04\x95xx", {"a Python pickle", "can run code"});
  refuse("%PDF-1.4", {"a PDF document"});
  refuse("{\n\"a\": 1\n}", {"a JSON document", "JSON lines"});
  refuse(gzip(zip({{.name = "x.npy", .bytes = array("(1,)", 1)}})), {"packed by gzip", "once"});
  expect_error(ErrorKind::data, {"a NumPy array", "nothing but numbers"}, [&] {
    (void)open("x", array("(1,)", 1),
               {.raw_type = StoredType::of(DType::uint8), .raw_shape = Shape{1}});
  });
  expect_error(ErrorKind::data, {"No such file"}, [&] { (void)open_source(folder_ / "none"); });
}

TEST(SummaryTest, CountsWhatAFieldHolds) {
  HostTensor tensor(DType::fp32, {6});
  const float values[] = {1, 2, 2, NAN, INFINITY, -3};
  std::ranges::copy(values, tensor.span<float>().begin());
  const FieldSummary numbers = summarise(number_field("x", std::move(tensor)));
  EXPECT_EQ(numbers.missing, 1);
  EXPECT_EQ(numbers.infinite, 1);
  EXPECT_EQ(numbers.numbers, 4);
  EXPECT_EQ(numbers.least, -3);
  EXPECT_EQ(numbers.most, 2);
  EXPECT_EQ(numbers.mean, 0.5);
  EXPECT_DOUBLE_EQ(numbers.deviation, std::sqrt((0.25 + 2.25 + 2.25 + 12.25) / 4));
  EXPECT_EQ(numbers.values, (std::map<int64_t, int64_t>{{-3, 1}, {1, 1}, {2, 2}}));
  const FieldSummary words =
      summarise(category_field("c", std::vector<int32_t>{1, -1, 1, 0}, {"a", "b", "unused"}));
  EXPECT_THAT(words.counts, ElementsAre(1, 2, 0));
  EXPECT_EQ(words.missing, 1);
}

// More samples than are read at a time, and more values than are counted.
TEST(SummaryTest, TakesLargeFieldsInWindows) {
  HostTensor tensor(DType::int32, {2'000'000});
  for (int32_t i = 0; i < 2'000'000; ++i) tensor.span<int32_t>()[size_t(i)] = i;
  const Field field = number_field("x", std::move(tensor));
  const FieldSummary summary = summarise(field);
  EXPECT_EQ(summary.most, 1'999'999);
  EXPECT_DOUBLE_EQ(summary.mean, 999'999.5);
  EXPECT_TRUE(summary.values.empty());
  EXPECT_EQ(checksum(field).size(), 64u);
}

}  // namespace
}  // namespace ridgeline::data
