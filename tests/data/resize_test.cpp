#include "ridgeline/data/resize.h"

#include <gtest/gtest.h>

#include <vector>

namespace ridgeline::data {
namespace {

HostTensor images(const Shape& shape) {
  HostTensor made(DType::uint8, shape);
  const auto bytes = made.span<uint8_t>();
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = uint8_t(i * 53 % 256);
  return made;
}

std::vector<int> bytes_of(const HostTensor& tensor) {
  const auto span = tensor.span<uint8_t>();
  return {span.begin(), span.end()};
}

// F.interpolate(mode="bilinear", align_corners=False) of torch 2 in fp64, rounded half up.
TEST(Resize, IsPyTorchsBilinear) {
  const HostTensor from = images({1, 3, 4});
  EXPECT_EQ(bytes_of(resize(from.view(), 5, 7)),
            (std::vector<int>{0,   19,  49,  80,  110, 140, 159, 85,  67,  39,  62,  92,
                              122, 141, 212, 140, 24,  36,  66,  96,  115, 186, 168, 140,
                              86,  39,  70,  89,  168, 187, 217, 120, 22,  52,  71}));
  // Shrinking takes the two neighbours, without a filter: 47.5, 121.5, 173.5, 55.5.
  EXPECT_EQ(bytes_of(resize(from.view(), 2, 2)), (std::vector<int>{48, 122, 174, 56}));
}

TEST(Resize, ToTheSameSizeChangesNothing) {
  const HostTensor from = images({3, 2, 5, 7});
  const HostTensor to = resize(from.view(), 5, 7);
  EXPECT_EQ(to.view().shape, from.view().shape);
  EXPECT_EQ(bytes_of(to), bytes_of(from));
}

TEST(Resize, OfOnePixelIsThatPixel) {
  HostTensor from(DType::uint8, {2, 1, 1});
  from.span<uint8_t>()[0] = 7;
  from.span<uint8_t>()[1] = 255;
  const HostTensor to = resize(from.view(), 2, 3);
  EXPECT_EQ(to.view().shape, (Shape{2, 2, 3}));
  EXPECT_EQ(bytes_of(to), (std::vector<int>{7, 7, 7, 7, 7, 7, 255, 255, 255, 255, 255, 255}));
}

TEST(Resize, OfASetFollowsItsHash) {
  SampleSet set;
  set.inputs = images({2, 3, 4});
  set.targets = HostTensor(DType::int32, {2});
  set.hash = hash_of(set);
  const uint64_t before = set.hash;
  resize(set, 6, 8);
  EXPECT_EQ(set.sample_shape(), (Shape{6, 8}));
  EXPECT_NE(set.hash, before);
}

TEST(Resize, RefusesWhatIsNoImage) {
  EXPECT_THROW(resize(images({4, 4}).view(), 2, 2), Error);
  EXPECT_THROW(resize(HostTensor(DType::fp32, {1, 4, 4}).view(), 2, 2), Error);
}

}  // namespace
}  // namespace ridgeline::data
