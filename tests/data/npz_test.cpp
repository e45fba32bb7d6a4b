#include "ridgeline/data/source/npz.h"

#include <gmock/gmock.h>

#include <random>

#include "ridgeline/data/source/zip.h"
#include "tests/data/array_files.h"
#include "tests/data/files.h"

namespace ridgeline::data {
namespace {

using namespace testing;
using ::testing::ElementsAre;

class NpzTest : public ::testing::Test {
 protected:
  std::vector<Field> read(const std::string& bytes) {
    return read_npz(write_file(folder_ / "x.npz", bytes));
  }
  void refuse(const std::string& bytes, std::vector<std::string> parts) {
    parts.push_back("x.npz: ");
    expect_error(ErrorKind::data, parts, [&] { (void)read(bytes); });
  }
  static std::string floats() {
    return npy(npy_literal("<f4", "(3,)"), stored(std::vector<float>{1, 2, 3}));
  }
  static std::string labels() { return npy(npy_literal("|u1", "(3,)"), std::string("\7\0\1", 3)); }

  TempFolder folder_;
};

TEST_F(NpzTest, ReadsStoredAndPackedArrays) {
  for (const bool deflated : {false, true}) {
    for (const bool zip64 : {false, true}) {
      const auto fields =
          read(zip({{.name = "x.npy", .bytes = floats(), .deflated = deflated, .zip64 = zip64},
                    {.name = "deep/y.npy", .bytes = labels(), .deflated = deflated}}));
      ASSERT_EQ(fields.size(), 2u);
      EXPECT_EQ(fields[0].name, "x");
      EXPECT_EQ(fields[1].name, "deep/y");
      EXPECT_THAT(doubles(fields[0]), ElementsAre(1, 2, 3));
      EXPECT_THAT(doubles(fields[1]), ElementsAre(7, 0, 1));
      EXPECT_EQ(fields[0].values->resident().empty(), !deflated);
    }
  }
}

TEST_F(NpzTest, NamesTheArrayThatIsBad) {
  const std::string bad = npy(npy_literal("|O", "(3,)"), "cos\nsystem\n");
  for (const bool deflated : {false, true}) {
    refuse(zip({{.name = "x.npy", .bytes = floats(), .deflated = deflated},
                {.name = "y.npy", .bytes = bad, .deflated = deflated}}),
           {"y.npy", "can run code"});
    refuse(zip({{.name = "x.npy", .bytes = floats(), .deflated = deflated, .wrong_crc = true}}),
           {"x.npy", "CRC mismatch"});
    refuse(zip({{.name = "x.npy", .bytes = floats() + "y", .deflated = deflated}}),
           {"x.npy", "trailing bytes"});
    refuse(zip({{.name = "x.npy", .bytes = floats().substr(0, 131), .deflated = deflated}}),
           {"x.npy", "truncated"});
  }
}

TEST_F(NpzTest, RefusesWhatIsNoArchiveOfArrays) {
  refuse(zip({{.name = "archive/data.pkl", .bytes = "x"}}), {"zip archive", "'archive/data.pkl'"});
  refuse(zip({}), {"no arrays"});
  refuse("PK", {"directory", "missing"});
  refuse(zip({{.name = "x.npy", .bytes = floats(), .flags = 1}}), {"'x.npy' is encrypted"});
  refuse(zip({{.name = "x.npy", .bytes = floats(), .method = 14}}), {"method 14"});
}

TEST_F(NpzTest, RefusesATornArchiveWhereverItEnds) {
  const std::string whole = zip({{.name = "x.npy", .bytes = floats(), .deflated = true}});
  for (size_t size = 0; size < whole.size(); ++size) {
    expect_error(ErrorKind::data, {"x.npz"}, [&] { (void)read(whole.substr(0, size)); });
  }
}

// If any byte is damaged, the archive is either read correctly or refused.
TEST_F(NpzTest, AFlippedBitIsRefusedOrDoesNotMatter) {
  for (const bool deflated : {false, true}) {
    const std::string whole = zip({{.name = "x.npy", .bytes = floats(), .deflated = deflated}});
    for (size_t at = 0; at < whole.size(); ++at) {
      std::string torn = whole;
      torn[at] ^= 0x10;
      try {
        const auto fields = read(torn);
        ASSERT_EQ(fields.size(), 1u) << at;
        EXPECT_THAT(doubles(fields[0]), ElementsAre(1, 2, 3)) << at;
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::data) << error.what();
      }
    }
  }
}

TEST_F(NpzTest, StopsBombs) {
  const std::string zeros =
      npy(npy_literal("|u1", "(16777216,)"), std::string(size_t{16} << 20, '\0'));
  // 16 MiB of zeros are legitimate.
  EXPECT_EQ(read(zip({{.name = "x.npy", .bytes = zeros, .deflated = true}}))[0].samples, 16777216);
  // Each states more than it holds, or less, or more than deflate can code.
  refuse(zip({{.name = "x.npy", .bytes = zeros, .deflated = true, .stated_size = 2048}}),
         {"more than its directory says"});
  refuse(zip({{.name = "x.npy", .bytes = zeros, .deflated = true, .stated_size = 16777990}}),
         {"ends before the size"});
  refuse(zip({{.name = "x.npy", .bytes = zeros, .deflated = true, .stated_size = 0x7fffffff}}),
         {"more than", "can hold"});
  // What two megabytes could hold at the most that deflate can code.
  std::string noise(size_t{2} << 20, '\0');
  std::mt19937 random(1);
  for (char& c : noise) c = char(random());
  refuse(zip({{.name = "x.npy", .bytes = noise, .deflated = true, .stated_size = 0x7fffffff}}),
         {"zip bomb", "np.savez"});
}

// Entries that share their bytes could multiply without limit.
TEST_F(NpzTest, RefusesEntriesThatOverlap) {
  const std::string one = zip({{.name = "x.npy", .bytes = floats()}});
  const size_t central = one.find("PK\x01\x02"), end = one.find("PK\x05\x06");
  std::string two = one.substr(0, end) + one.substr(central, end - central) + one.substr(end);
  const size_t last = two.find("PK\x05\x06");
  two[last + 8] = two[last + 10] = 2;
  const auto bytes = uint32_t(2 * (end - central));
  std::memcpy(two.data() + last + 12, &bytes, 4);
  refuse(two, {"overlaps another"});
}

}  // namespace
}  // namespace ridgeline::data
