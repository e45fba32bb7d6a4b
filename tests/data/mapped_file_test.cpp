#include "ridgeline/data/mapped_file.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <numeric>

#include "ridgeline/data/moments.h"
#include "ridgeline/data/source/npy.h"
#include "tests/data/array_files.h"
#include "tests/data/files.h"

namespace ridgeline::data {
namespace {

using namespace testing;

std::string bytes_of(size_t count) {
  std::string bytes(count, '\0');
  std::iota(bytes.begin(), bytes.end(), char(0));
  return bytes;
}

int64_t sum(std::span<const std::byte> bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), int64_t{0},
                         [](int64_t all, std::byte each) { return all + int64_t(each); });
}

TEST(MappedFile, GivesTheBytesOfTheFile) {
  const TempFolder folder;
  const InputFile file(write_file(folder / "x", bytes_of(100'000)));
  const auto mapped = MappedFile::map(file);
  ASSERT_NE(mapped, nullptr);
  ASSERT_EQ(mapped->bytes().size(), 100'000u);
  EXPECT_EQ(mapped->bytes()[513], std::byte{1});
  mapped->check();
}

// A file that is cut short gives an Error and no SIGBUS: cut by whole pages, within its last page,
// and to nothing.
TEST(MappedFile, SaysWhenTheFileShrinks) {
  const TempFolder folder;
  for (const size_t left : {size_t{0}, size_t{10}, size_t{8192}, size_t{99'999}}) {
    const auto path = write_file(folder / "x", bytes_of(100'000));
    const InputFile file(path);
    const auto mapped = MappedFile::map(file);
    ASSERT_NE(mapped, nullptr);
    const int64_t before = sum(mapped->bytes());
    std::filesystem::resize_file(path, left);
    EXPECT_LE(sum(mapped->bytes()), before);
    expect_error(ErrorKind::data, {"x: shrank while it was read"}, [&] { mapped->check(); });
  }
}

TEST(MappedFile, ManyAtOnceAndOneAfterAnother) {
  const TempFolder folder;
  const InputFile file(write_file(folder / "x", bytes_of(5000)));
  for (int round = 0; round < 3; ++round) {
    std::vector<std::shared_ptr<const MappedFile>> all;
    while (all.size() < 100) {
      all.push_back(MappedFile::map(file));
      if (!all.back()) break;  // no more: the file is read then
    }
    EXPECT_GE(all.size(), 32u);
  }
}

TEST(MappedFile, ArraysReadFromTheirMapUntilTheyShrink) {
  const TempFolder folder;
  std::vector<float> numbers(20'000);
  std::iota(numbers.begin(), numbers.end(), 0.0f);
  const auto path =
      write_file(folder / "x.npy", npy(npy_literal("<f4", "(10000, 2)"), stored(numbers)));
  const Field field = read_npy(path, "x");
  ASSERT_EQ(field.values->map().size(), numbers.size() * sizeof(float));
  const std::vector<int64_t> samples{1, 2, 3, 900, 9999};
  std::vector<double> values(10);
  read_doubles(field, samples, values);
  EXPECT_THAT(values, ::testing::ElementsAre(2, 3, 4, 5, 6, 7, 1800, 1801, 19998, 19999));
  std::filesystem::resize_file(path, 4096);
  expect_error(ErrorKind::data, {"x.npy: shrank"}, [&] { read_doubles(field, samples, values); });
  // Numbers that must be converted, or are in columns, are read into memory.
  const auto other =
      write_file(folder / "y.npy", npy(npy_literal(">f4", "(10000, 2)"), stored(numbers)));
  EXPECT_TRUE(read_npy(other, "y").values->map().empty());
}

// Blocks that are summed apart and joined in order give the bits of blocks added one by one.
TEST(Moments, PartsJoinToTheSameBits) {
  std::vector<double> values(4096 * 3);
  for (size_t i = 0; i < values.size(); ++i) values[i] = 1e6 + double(i * 7919 % 1013) / 7;
  values[5] = std::numeric_limits<double>::quiet_NaN();
  Moments one(3), two(3);
  const std::span<const double> all(values);
  one.add(all.first(1536));
  two.add(all.first(1536));
  ASSERT_TRUE(two.ready());
  std::vector<Moments::Part> parts(7);
  for (size_t i = 7; i-- > 0;) two.sum(all.subspan((i + 1) * 1536, 1536), parts[i]);
  for (size_t i = 0; i < 7; ++i) {
    one.add(all.subspan((i + 1) * 1536, 1536));
    two.join(parts[i]);
  }
  for (size_t e = 0; e < 3; ++e) {
    EXPECT_EQ(one.mean(e), two.mean(e));
    EXPECT_EQ(one.deviation(e), two.deviation(e));
    EXPECT_EQ(one.count(e), two.count(e));
    EXPECT_EQ(one.least(e), two.least(e));
  }
}

}  // namespace
}  // namespace ridgeline::data
