#include "ridgeline/data/source/image_folder.h"

#include <gmock/gmock.h>

#include "ridgeline/data/resize.h"
#include "tests/data/array_files.h"
#include "tests/data/files.h"
#include "tests/data/image_files.h"

namespace ridgeline::data {
namespace {

using namespace testing;
using ::testing::ElementsAre;

std::string grey(uint32_t width, uint32_t height, char value) {
  return png(width, height, 8, PngColour::grey, std::string(width * height, value));
}

class ImageFolderTest : public ::testing::Test {
 protected:
  FieldSet read(const ImageOptions& options = {}) {
    return read_image_folder(scan_image_folder(folder_.path()), options);
  }
  void refuse(const std::vector<std::string>& parts) {
    expect_error(ErrorKind::data, parts, [&] { (void)read(); });
  }

  TempFolder folder_;
};

TEST_F(ImageFolderTest, ReadsClassesInTheOrderOfTheirNames) {
  write_file(folder_ / "dog/b.png", grey(2, 3, 20));
  write_file(folder_ / "dog/a.png", grey(2, 3, 10));
  write_file(folder_ / "cat/z.jpeg", jpeg(2, 3, 1, std::vector<uint8_t>(6, 30)));
  write_file(folder_ / "cat/.hidden", "x");
  write_file(folder_ / "cat/Thumbs.db", "x");
  write_file(folder_ / "README.txt", "about");
  const FieldSet set = read();
  EXPECT_EQ(set.size(), 3);
  EXPECT_EQ(set.field("image").shape, Shape({3, 2}));
  EXPECT_THAT(set.field("label").categories, ElementsAre("cat", "dog"));
  EXPECT_THAT(values<int32_t>(set.field("label")), ElementsAre(0, 1, 1));
  const std::vector<uint8_t> pixels = values<uint8_t>(set.field("image"));
  EXPECT_THAT((std::vector<uint8_t>{pixels[0], pixels[6], pixels[12]}), ElementsAre(30, 10, 20));
}

TEST_F(ImageFolderTest, TakesAFolderWithoutClasses) {
  write_file(folder_ / "a.png", grey(2, 2, 1));
  write_file(folder_ / "notes.txt", "about");
  const FieldSet set = read();
  EXPECT_EQ(set.size(), 1);
  EXPECT_EQ(set.fields().size(), 1u);
}

TEST_F(ImageFolderTest, OneColourImageMakesAllColour) {
  write_file(folder_ / "a/a.png", grey(1, 1, 9));
  write_file(folder_ / "b/b.png", png(1, 1, 8, PngColour::rgb, "\1\2\3"));
  EXPECT_EQ(read().field("image").shape, Shape({3, 1, 1}));
  EXPECT_THAT(values<uint8_t>(read().field("image")), ElementsAre(9, 9, 9, 1, 2, 3));
  EXPECT_EQ(read({.channels = 1}).field("image").shape, Shape({1, 1}));
}

TEST_F(ImageFolderTest, WantsASizeWhereSizesDiffer) {
  write_file(folder_ / "a/a.png", grey(4, 4, 100));
  write_file(folder_ / "a/b.png", grey(2, 8, 50));
  refuse({"b.png", "is 2 x 8 pixels", "a.png", "4 x 4", "size"});
  for (const auto filter : {ResizeFilter::automatic, ResizeFilter::bilinear, ResizeFilter::area}) {
    const FieldSet set = read({.height = 3, .width = 5, .filter = filter});
    EXPECT_EQ(set.field("image").shape, Shape({3, 5}));
    const std::vector<uint8_t> pixels = values<uint8_t>(set.field("image"));
    EXPECT_EQ(pixels.front(), 100);
    EXPECT_EQ(pixels.back(), 50);
  }
}

TEST_F(ImageFolderTest, NamesTheFileThatIsWrong) {
  refuse({"holds no images", "class"});
  write_file(folder_ / "a/a.png", grey(2, 2, 1));
  write_file(folder_ / "a/b.gif", "GIF89a");
  refuse({"b.gif", "a GIF image", "convert"});
  std::filesystem::remove(folder_ / "a/b.gif");
  write_file(folder_ / "a/more/b.png", grey(2, 2, 1));
  refuse({"more", "a folder inside the class 'a'"});
  std::filesystem::remove_all(folder_ / "a/more");
  std::filesystem::create_directory(folder_ / "empty");
  refuse({"empty", "holds no images"});
  std::filesystem::remove(folder_ / "empty");
  write_file(folder_ / "stray.png", grey(2, 2, 1));
  refuse({"stray.png", "beside the class folders"});
  std::filesystem::remove(folder_ / "stray.png");
  // The header is whole, the pixels are not: seen when they are read.
  const std::string whole = grey(2, 2, 1);
  for (int i = 0; i < 40; ++i) write_file(folder_ / ("a/n" + std::to_string(i) + ".png"), whole);
  write_file(folder_ / "a/m.png", whole.substr(0, whole.size() - 20));
  const FieldSet set = read();
  expect_error(ErrorKind::data, {"m.png", "damaged PNG"}, [&] { (void)load(set.field("image")); });
}

TEST(ResizeByAreaTest, TakesTheMeanOfWhatAPixelCovers) {
  std::vector<uint8_t> image{0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110};  // 3 x 4
  const Tensor tensor{image.data(), DType::uint8, {1, 3, 4}, {}};
  const auto resized = [&](int64_t height, int64_t width) {
    const HostTensor result = resize_by_area(tensor, height, width);
    const auto all = result.span<uint8_t>();
    return std::vector<int>(all.begin(), all.end());
  };
  EXPECT_THAT(resized(3, 4), ElementsAre(0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110));
  EXPECT_THAT(resized(1, 1), ElementsAre(55));
  EXPECT_THAT(resized(3, 2), ElementsAre(5, 25, 45, 65, 85, 105));
  // Rows of 1.5: the middle one counts half for each. (0 * 2 + 40) / 3 = 13.3.
  EXPECT_THAT(resized(2, 4), ElementsAre(13, 23, 33, 43, 67, 77, 87, 97));
  EXPECT_THAT(resized(6, 4)[4], 0);  // enlarged: pixels repeat
  // Columns of 4 / 3: 0 and a third of 10 over 4 / 3 is 2.5, rounded up.
  EXPECT_THAT(resized(3, 3)[0], 3);
}

}  // namespace
}  // namespace ridgeline::data
