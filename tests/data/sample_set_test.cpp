#include "ridgeline/data/sample_set.h"

#include "tests/data/files.h"

namespace ridgeline::data {
namespace {

using namespace testing;
namespace fs = std::filesystem;

class ImageSetTest : public ::testing::Test {
 protected:
  fs::path images(uint32_t count) {
    return write_file(folder_ / "images",
                      idx_header(8, {count, 2, 2}) + std::string(4 * count, 'p'));
  }
  fs::path labels(std::string_view values) {
    return write_file(folder_ / "labels",
                      idx_header(8, {uint32_t(values.size())}) + std::string(values));
  }
  TempFolder folder_;
};

TEST_F(ImageSetTest, LoadsAPair) {
  const SampleSet set = load_pair(images(3), labels({"\2\0\1", 3}), "tiny");
  EXPECT_EQ(set.size(), 3);
  EXPECT_EQ(set.classes, 3);
  EXPECT_EQ(set.name, "tiny");
  EXPECT_EQ(set.sample_shape(), (Shape{2, 2}));
  EXPECT_EQ(set.features(), 4);
  EXPECT_EQ(set.inputs.view().dtype, DType::uint8);
  EXPECT_EQ(set.targets.view().dtype, DType::int32);
  const auto values = set.targets.span<int32_t>();
  EXPECT_EQ(std::vector<int32_t>(values.begin(), values.end()), (std::vector<int32_t>{2, 0, 1}));
}

TEST_F(ImageSetTest, TakesLabelsOf32Bits) {
  const fs::path wide =
      write_file(folder_ / "wide", idx_header(0x0c, {2}) + big_endian(300) + big_endian(7));
  const SampleSet set = load_pair(images(2), wide, "wide");
  EXPECT_EQ(set.classes, 301);
  EXPECT_EQ(set.targets.span<int32_t>()[0], 300);
}

TEST_F(ImageSetTest, RefusesCountsThatDiffer) {
  const fs::path four = images(4), three = labels({"\0\1\2", 3});
  expect_error(ErrorKind::data,
               {four.string() + " holds 4 images", three.string() + " holds 3 labels"},
               [&] { (void)load_pair(four, three, "x"); });
}

TEST_F(ImageSetTest, RefusesLabelsOutsideTheClasses) {
  const fs::path three = images(3), bad = labels({"\0\1\12", 3});
  expect_error(ErrorKind::data, {bad.string() + ": sample 2: label 10", "10 classes (0 to 9)"},
               [&] { (void)load_pair(three, bad, "x", 10); });
  const fs::path negative =
      write_file(folder_ / "negative", idx_header(0x0c, {1}) + big_endian(uint32_t(-1)));
  expect_error(ErrorKind::data, {"sample 0: label -1"},
               [&] { (void)load_pair(images(1), negative, "x"); });
}

TEST_F(ImageSetTest, RefusesTheWrongKindOfFile) {
  const fs::path two = images(2), pair = labels({"\0\1", 2});
  expect_error(ErrorKind::data, {pair.string(), "holds uint8 [2]", "images are uint8"},
               [&] { (void)load_pair(pair, two, "swapped"); });
  expect_error(ErrorKind::data, {two.string(), "holds uint8 [2, 2, 2]", "labels are"},
               [&] { (void)load_pair(two, two, "x"); });
  const fs::path floats =
      write_file(folder_ / "floats", idx_header(0x0d, {1, 1}) + std::string(4, '\0'));
  expect_error(ErrorKind::data, {"holds fp32 [1, 1]"}, [&] { (void)load_pair(floats, pair, "x"); });
  expect_error(ErrorKind::data, {"holds no images", "[0, 2, 2]"},
               [&] { (void)load_pair(images(0), labels(""), "x"); });
}

TEST_F(ImageSetTest, HashTellsSetsApart) {
  const auto hash = [&](std::string_view pixels, std::string_view values, int classes = 9) {
    const fs::path path = write_file(folder_ / "p", idx_header(8, {2, 5}) + std::string(pixels));
    return load_pair(path, labels(values), "x", classes).hash;
  };
  const uint64_t base = hash("abcdefghij", {"\0\1", 2});
  EXPECT_EQ(base, hash("abcdefghij", {"\0\1", 2}));
  EXPECT_NE(base, hash("abcdefghik", {"\0\1", 2}));
  EXPECT_NE(base, hash("bacdefghij", {"\0\1", 2}));
  EXPECT_NE(base, hash("abcdefghij", {"\1\0", 2}));
  EXPECT_NE(base, hash("abcdefghij", {"\0\1", 2}, 8));
}

TEST_F(ImageSetTest, LoadsAFolderWhole) {
  write_image_folder(folder_.path(), 7, 4, 3);
  const DataSet set = load_folder(folder_.path(), "small");
  EXPECT_EQ(set.train.size(), 7);
  EXPECT_EQ(set.test.size(), 4);
  EXPECT_EQ(set.train.classes, 3);
  EXPECT_EQ(set.test.classes, 3);
  EXPECT_EQ(set.train.inputs.view().shape, (Shape{7, 3, 2}));
  EXPECT_EQ(set.train.inputs.span<uint8_t>()[7], 8);  // image 1, pixel 1
  EXPECT_NE(set.train.hash, set.test.hash);
}

TEST_F(ImageSetTest, LoadsThePartThatIsThere) {
  write_image_folder(folder_.path(), 7, 4, 3);
  fs::remove(folder_ / "train-images-idx3-ubyte.gz");
  EXPECT_EQ(load_folder_part(folder_.path(), Part::test, "small").size(), 4);
  expect_error(ErrorKind::data, {folder_.path().string(), "no file train-images-idx3-ubyte"},
               [&] { (void)load_folder(folder_.path(), "small"); });
}

TEST_F(ImageSetTest, TakesEverySpelling) {
  write_image_folder(folder_.path(), 3, 3, 2);
  fs::rename(folder_ / "train-images-idx3-ubyte.gz", folder_ / "train-images.idx3-ubyte.gz");
  fs::rename(folder_ / "train-labels-idx1-ubyte", folder_ / "train-labels.idx1-ubyte");
  EXPECT_EQ(load_folder(folder_.path(), "small").train.size(), 3);
  EXPECT_EQ(find_spelling(folder_.path(), "train-labels-idx1-ubyte.gz"),
            folder_ / "train-labels.idx1-ubyte");
  EXPECT_EQ(find_spelling(folder_.path(), "other-idx1-ubyte"), std::nullopt);
}

TEST_F(ImageSetTest, RefusesPartsThatDoNotMatch) {
  write_image_folder(folder_.path(), 7, 4, 3);
  write_file(folder_ / "t10k-labels-idx1-ubyte", idx_header(8, {4}) + std::string("\0\1\2\3", 4));
  expect_error(ErrorKind::data, {"t10k-labels-idx1-ubyte: sample 3: label 3", "3 classes"},
               [&] { (void)load_folder(folder_.path(), "small"); });
  write_image_folder(folder_.path(), 7, 4, 3);
  write_file(folder_ / "t10k-images-idx3-ubyte.gz",
             gzip(idx_header(8, {4, 2, 2}) + std::string(16, 'x')));
  expect_error(ErrorKind::data, {"training images are [3, 2]", "test images are [2, 2]"},
               [&] { (void)load_folder(folder_.path(), "small"); });
}

}  // namespace
}  // namespace ridgeline::data
