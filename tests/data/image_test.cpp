#include "ridgeline/data/source/image.h"

#include <gmock/gmock.h>

#include "tests/data/files.h"
#include "tests/data/image_files.h"

namespace ridgeline::data {
namespace {

using namespace testing;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

class ImageTest : public ::testing::Test {
 protected:
  DecodedImage read(const std::string& bytes) {
    const auto path = write_file(folder_ / "x.png", bytes);
    const ImageInfo info = read_image_info(path);
    DecodedImage image = read_image(path);
    EXPECT_EQ(info.width, image.info.width);
    EXPECT_EQ(info.height, image.info.height);
    EXPECT_EQ(info.channels, image.info.channels);
    EXPECT_EQ(info.bits, image.info.bits);
    return image;
  }
  void refuse(const std::string& bytes, const std::vector<std::string>& parts) {
    write_file(folder_ / "x.png", bytes);
    const std::string line =
        expect_error(ErrorKind::data, parts, [&] { (void)read_image(folder_ / "x.png"); });
    EXPECT_NE(line.find("x.png: "), std::string::npos) << line;
  }
  // A gradient in every channel, smooth enough for JPEG.
  static std::vector<uint8_t> gradient(int width, int height, int channels) {
    std::vector<uint8_t> pixels;
    for (int y = 0; y < height; ++y) {
      for (int x = 0; x < width; ++x) {
        for (int c = 0; c < channels; ++c) pixels.push_back(uint8_t(40 + 5 * x + 3 * y + 20 * c));
      }
    }
    return pixels;
  }

  TempFolder folder_;
};

TEST_F(ImageTest, ReadsEveryKindOfPng) {
  const std::string six{'\0', '\1', '\2', '\3', '\4', '\5'};
  EXPECT_THAT(read(png(3, 2, 8, PngColour::grey, six)).pixels, ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(read(png(2, 1, 8, PngColour::rgb, six)).pixels, ElementsAre(0, 3, 1, 4, 2, 5));
  // Transparency is dropped.
  EXPECT_THAT(read(png(3, 1, 8, PngColour::grey_alpha, six)).pixels, ElementsAre(0, 2, 4));
  EXPECT_THAT(read(png(1, 1, 8, PngColour::rgba, {'\7', '\10', '\11', '\0'})).pixels,
              ElementsAre(7, 8, 9));
  // Fewer bits are spread over the whole range.
  EXPECT_THAT(read(png(2, 1, 1, PngColour::grey, {'\0', '\1'})).pixels, ElementsAre(0, 255));
  EXPECT_THAT(read(png(3, 1, 4, PngColour::grey, {'\0', '\1', '\17'})).pixels,
              ElementsAre(0, 17, 255));
  const std::string colours = png_chunk("PLTE", "\x0a\x14\x1e\xff\xfe\xfd");
  const DecodedImage palette = read(png(2, 1, 8, PngColour::palette, {'\1', '\0'}, colours));
  EXPECT_THAT(palette.pixels, ElementsAre(255, 10, 254, 20, 253, 30));
}

// 65535 is 255, and a value is rounded to the nearest: Pillow would clip.
TEST_F(ImageTest, ScalesSixteenBitsToEight) {
  const std::string words{'\0',   '\0',   '\x01', '\x01', '\x80',
                          '\x80', '\xff', '\xff', '\x01', '\x82'};
  const DecodedImage image = read(png(5, 1, 16, PngColour::grey, words));
  EXPECT_EQ(image.info.bits, 16);
  EXPECT_THAT(image.pixels, ElementsAre(0, 1, 128, 255, 2));
}

TEST_F(ImageTest, ReadsInterlacedPng) {
  std::string samples;
  for (int i = 0; i < 11 * 9; ++i) samples += char(2 * i);
  const std::vector<uint8_t> want(samples.begin(), samples.end());
  EXPECT_THAT(read(png(11, 9, 8, PngColour::grey, samples, "", true)).pixels,
              ElementsAreArray(want));
}

TEST_F(ImageTest, ReadsGreyColourAndProgressiveJpeg) {
  for (const bool progressive : {false, true}) {
    for (const int channels : {1, 3}) {
      const std::vector<uint8_t> pixels = gradient(19, 13, channels);
      const DecodedImage image = read(jpeg(19, 13, channels, pixels, progressive));
      ASSERT_EQ(image.info.channels, channels);
      ASSERT_EQ(image.info.width, 19);
      for (int i = 0; i < 19 * 13; ++i) {
        for (int c = 0; c < channels; ++c) {
          EXPECT_NEAR(image.pixels[size_t(c * 19 * 13 + i)], pixels[size_t(i * channels + c)], 8);
        }
      }
    }
  }
}

// An EXIF segment with the orientation as its second entry, in either byte order.
std::string exif(int orientation, bool little) {
  std::string tiff = little ? std::string("II*\0", 4) : std::string("MM\0*", 4);
  const auto add = [&](uint32_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) tiff += char(value >> 8 * (little ? i : bytes - 1 - i));
  };
  add(8, 4);  // where the directory begins
  add(2, 2);
  for (const int tag : {0x010f, 0x0112}) {
    add(uint32_t(tag), 2);
    add(3, 2);
    add(1, 4);
    add(tag == 0x0112 ? uint32_t(orientation) : 7, 2);
    add(0, 2);
  }
  return std::string("Exif\0\0", 6) + tiff;
}

std::string with_segment(const std::string& jpeg, const std::string& segment) {
  const size_t size = segment.size() + 2;
  return jpeg.substr(0, 2) + "\xff\xe1" + char(size >> 8) + char(size & 255) + segment +
         jpeg.substr(2);
}

// The corners of the stored image, clockwise from the top left, where they are after turning.
TEST_F(ImageTest, TurnsPhotosUpright) {
  constexpr int kTall = 8, kWide = 16;
  std::vector<uint8_t> pixels(kTall * kWide);
  for (int y = 0; y < kTall; ++y) {
    for (int x = 0; x < kWide; ++x) pixels[size_t(y * kWide + x)] = uint8_t(4 * x + 20 * y);
  }
  const std::string plain = jpeg(kWide, kTall, 1, pixels, false, 100);
  const int top_left = 0, top_right = 60, low_right = 200, low_left = 140;
  const int wanted[9][4] = {
      {top_left, top_right, low_right, low_left},  // 0 is no orientation
      {top_left, top_right, low_right, low_left}, {top_right, top_left, low_left, low_right},
      {low_right, low_left, top_left, top_right}, {low_left, low_right, top_right, top_left},
      {top_left, low_left, low_right, top_right}, {low_left, top_left, top_right, low_right},
      {low_right, top_right, top_left, low_left}, {top_right, low_right, low_left, top_left}};
  for (int orientation = 0; orientation < 9; ++orientation) {
    const DecodedImage image = read(with_segment(plain, exif(orientation, orientation % 2 == 0)));
    const int64_t h = image.info.height, w = image.info.width;
    EXPECT_EQ(w, orientation < 5 ? kWide : kTall) << orientation;
    ASSERT_EQ(image.pixels.size(), pixels.size());
    const int64_t corners[] = {0, w - 1, h * w - 1, (h - 1) * w};
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_NEAR(image.pixels[size_t(corners[i])], wanted[orientation][i], 4)
          << orientation << ' ' << i;
    }
  }
}

// A segment that ends early or points outside itself states no orientation.
TEST_F(ImageTest, ReadsPhotosWithDamagedExif) {
  const std::string plain = jpeg(16, 8, 1, gradient(16, 8, 1)), whole = exif(6, true);
  for (size_t size = 0; size < whole.size() - 4; ++size) {
    EXPECT_EQ(read(with_segment(plain, whole.substr(0, size))).info.width, 16) << size;
  }
  for (const char* offset : {"\xff\xff\xff\xff", "\xff\xff\xff\x7f"}) {
    EXPECT_EQ(read(with_segment(plain, std::string(whole).replace(10, 4, offset))).info.width, 16);
  }
}

// Adobe's files store complements: 255 is no ink.
TEST_F(ImageTest, TurnsCmykToRgb) {
  std::vector<uint8_t> pixels;
  for (int i = 0; i < 64; ++i) pixels.insert(pixels.end(), {255, 0, 128, 255});
  const DecodedImage image = read(jpeg(8, 8, 4, pixels));
  EXPECT_TRUE(image.info.cmyk);
  ASSERT_EQ(image.pixels.size(), 3u * 64);
  EXPECT_NEAR(image.pixels[0], 255, 2);
  EXPECT_NEAR(image.pixels[64], 0, 2);
  EXPECT_NEAR(image.pixels[128], 128, 2);
  std::fill(pixels.begin(), pixels.end(), 0);  // all ink there is
  EXPECT_THAT(read(jpeg(8, 8, 4, pixels)).pixels, Each(0));
}

TEST_F(ImageTest, ConvertsBetweenGreyAndColour) {
  DecodedImage image{{.height = 1, .width = 2, .channels = 3}, {255, 0, 0, 255, 0, 0}};
  set_channels(image, 1);
  EXPECT_THAT(image.pixels, ElementsAre(76, 150));  // 0.299 and 0.587 of 255
  set_channels(image, 3);
  EXPECT_THAT(image.pixels, ElementsAre(76, 150, 76, 150, 76, 150));
}

// Wherever a file is cut, it is refused: no pixel is invented.
TEST_F(ImageTest, RefusesTruncatedFilesWhereverTheyEnd) {
  const std::string whole_png = png(16, 8, 8, PngColour::rgb, std::string(16 * 8 * 3, '\5'));
  const std::string whole_jpeg = jpeg(16, 8, 3, gradient(16, 8, 3));
  for (const std::string& whole :
       {whole_png, whole_jpeg, jpeg(16, 8, 3, gradient(16, 8, 3), true)}) {
    for (size_t size = 1; size < whole.size(); size += 1 + size / 40) {
      // libjpeg accepts a missing end marker.
      if (size + 2 >= whole.size() && whole[0] != whole_png[0]) continue;
      refuse(whole.substr(0, size), {});
    }
  }
}

TEST_F(ImageTest, RefusesDamagedFiles) {
  std::string image = png(16, 8, 8, PngColour::rgb, std::string(16 * 8 * 3, '\5'));
  image[image.find("IDAT") + 6] ^= 0x40;
  refuse(image, {"damaged PNG"});
  image = png(16, 8, 8, PngColour::rgb, std::string(16 * 8 * 3, '\5'));
  image[17] ^= 1;  // the width: its CRC is wrong
  refuse(image, {"damaged PNG"});
  expect_error(ErrorKind::data, {"damaged PNG"}, [&] { (void)read_image_info(folder_ / "x.png"); });
  std::string photo = jpeg(64, 64, 3, gradient(64, 64, 3));
  const size_t scan = photo.find("\xff\xda");
  for (size_t at = scan + 20; at < scan + 40; ++at) photo[at] = '\xff';
  refuse(photo, {"damaged JPEG"});
  refuse("GIF89a", {"is a GIF image", "convert it to PNG or JPEG"});
  refuse("", {"is empty"});
}

TEST_F(ImageTest, RefusesAbsurdSizes) {
  const std::string one = png(1, 1, 8, PngColour::grey, "x");
  const auto stated = [&](uint32_t width, uint32_t height) {
    const std::string header =
        big_endian(width) + big_endian(height) + std::string("\x08\0\0\0\0", 5);
    return one.substr(0, 8) + png_chunk("IHDR", header) + one.substr(33);
  };
  refuse(stated(0x7fffffff, 0x7fffffff), {"states 2147483647 x 2147483647 pixels"});
  refuse(stated(10001, 10000), {"10001 x 10000"});
  // Fewer pixels than the limit, but more than so short a file can hold.
  refuse(stated(10000, 10000), {"more than", "can hold"});
  refuse(stated(0, 5), {"x.png: "});
  std::string photo = jpeg(8, 8, 1, std::vector<uint8_t>(64, 9));
  const size_t frame = photo.find("\xff\xc0");
  for (size_t i = 0; i < 4; ++i) photo[frame + 5 + i] = i % 2 == 0 ? '\x7f' : '\xff';
  refuse(photo, {"32767 x 32767"});
}

}  // namespace
}  // namespace ridgeline::data
