#include "ridgeline/data/source/npy.h"

#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "ridgeline/data/source/array_sources.h"
#include "tests/data/array_files.h"
#include "tests/data/files.h"

namespace ridgeline::data {
namespace {

using namespace testing;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

class NpyTest : public ::testing::Test {
 protected:
  Field read(const std::string& bytes) {
    return read_npy(write_file(folder_ / "x.npy", bytes), "x");
  }
  void refuse(const std::string& bytes, std::vector<std::string> parts) {
    parts.push_back("x.npy: ");
    expect_error(ErrorKind::data, parts, [&] { (void)read(bytes); });
    // A packed file goes another way, and is refused as well.
    expect_error(ErrorKind::data, {"x.npy: "}, [&] { (void)read(gzip(bytes)); });
  }

  TempFolder folder_;
};

TEST_F(NpyTest, ReadsEveryVersionPlainAndPacked) {
  const std::string payload = stored(std::vector<float>{1, 2, 3, 4, 5, 6});
  for (const int version : {1, 2, 3}) {
    const std::string bytes = npy(npy_literal("<f4", "(3, 2)"), payload, version);
    for (const std::string& file : {bytes, gzip(bytes)}) {
      const Field field = read(file);
      EXPECT_EQ(field.dtype, DType::fp32);
      EXPECT_EQ(field.samples, 3);
      EXPECT_EQ(field.shape, Shape({2}));
      EXPECT_EQ(field.stored, "");
      EXPECT_THAT(values<float>(field), ElementsAre(1, 2, 3, 4, 5, 6));
    }
  }
}

TEST_F(NpyTest, ReadsAWindowOfAPlainFileWithoutTheRest) {
  const Field field =
      read(npy(npy_literal("<i4", "(4, 1)"), stored(std::vector<int32_t>{5, 6, 7, 8})));
  EXPECT_TRUE(field.values->resident().empty());
  std::vector<int32_t> out(2);
  field.values->read(1, 3, std::as_writable_bytes(std::span(out)));
  EXPECT_THAT(out, ElementsAre(6, 7));
}

template <typename Stored, typename Read>
void expect_type(NpyTest& test, const std::string& code, const std::vector<Stored>& written,
                 const std::function<Field(const std::string&)>& read) {
  (void)test;
  const std::string shape = fmt::format("({},)", written.size());
  for (const bool big : {false, true}) {
    SCOPED_TRACE(code + (big ? " big-endian" : ""));
    const Field field = read(
        npy(npy_literal(fmt::format("{}{}", big ? '>' : '<', code), shape), stored(written, big)));
    EXPECT_EQ(field.dtype, dtype_of<Read>());
    std::vector<Read> want;
    for (const Stored value : written) want.push_back(Read(value));
    EXPECT_EQ(values<Read>(field), want);
  }
}

TEST_F(NpyTest, ReadsEveryTypeInBothByteOrders) {
  const auto read_bytes = [&](const std::string& bytes) { return read(bytes); };
  expect_type<int8_t, int32_t>(*this, "i1", {-128, 0, 127}, read_bytes);
  expect_type<int16_t, int32_t>(*this, "i2", {-32768, 1, 32767}, read_bytes);
  expect_type<int32_t, int32_t>(*this, "i4", {std::numeric_limits<int32_t>::min(), 258},
                                read_bytes);
  expect_type<int64_t, int64_t>(*this, "i8", {std::numeric_limits<int64_t>::min(), 1}, read_bytes);
  expect_type<uint8_t, uint8_t>(*this, "u1", {0, 200, 255}, read_bytes);
  expect_type<uint16_t, int32_t>(*this, "u2", {0, 65535, 256}, read_bytes);
  expect_type<uint32_t, int64_t>(*this, "u4", {0, 4294967295u}, read_bytes);
  expect_type<uint64_t, int64_t>(*this, "u8", {0, 9223372036854775807u}, read_bytes);
  expect_type<float, float>(*this, "f4", {-1.5f, 3e38f}, read_bytes);
  expect_type<double, double>(*this, "f8", {0.1, -1e300}, read_bytes);
  for (const bool big : {false, true}) {
    const Field half = read(npy(npy_literal(big ? ">f2" : "<f2", "(2,)"),
                                stored(std::vector<uint16_t>{0x3c00, 0xc000}, big)));
    EXPECT_EQ(half.dtype, DType::fp16);
    EXPECT_THAT(doubles(half), ElementsAre(1, -2));
  }
  const Field truth = read(npy(npy_literal("|b1", "(3,)"), std::string("\1\0\2", 3)));
  EXPECT_EQ(truth.kind, FieldKind::boolean);
  EXPECT_THAT(doubles(truth), ElementsAre(1, 0, 1));
  const Field field = read(npy(npy_literal("<u8", "(1,)"), stored(uint64_t{1} << 63)));
  expect_error(ErrorKind::data, {"x.npy", "9223372036854775808", "float64"},
               [&] { (void)doubles(field); });
}

// The value of element (i, j, k, ...) is its place in C order, so that any mix-up shows.
TEST_F(NpyTest, ReadsFortranOrderOfAnyRank) {
  for (const std::vector<int64_t>& dims : std::vector<std::vector<int64_t>>{
           {5}, {5, 1}, {5, 3}, {4, 3, 2}, {3, 1, 4, 2}, {2, 3, 2, 2, 3}, {0, 3}, {3, 0, 2}}) {
    const Shape shape{std::span<const int64_t>(dims)};
    const int64_t n = shape.numel();
    std::vector<double> fortran(static_cast<size_t>(n));
    const std::string text = fmt::format("({},)", fmt::join(dims, ", "));
    for (int64_t c = 0; c < n; ++c) {
      int64_t left = c, place = 0;
      for (int axis = shape.rank() - 1; axis >= 0; --axis) {
        int64_t stride = 1;
        for (int before = 0; before < axis; ++before) stride *= shape[before];
        place += left % shape[axis] * stride;
        left /= shape[axis];
      }
      fortran[size_t(place)] = double(c);
    }
    std::vector<double> want(static_cast<size_t>(n));
    std::iota(want.begin(), want.end(), 0);
    for (const bool big : {false, true}) {
      SCOPED_TRACE(text + (big ? " big-endian" : ""));
      const Field field =
          read(npy(npy_literal(big ? ">f8" : "<f8", text, true), stored(fortran, big)));
      EXPECT_THAT(values<double>(field), ElementsAreArray(want));
      if (shape[0] < 3) continue;
      const auto sample = size_t(shape.drop_front().numel());
      std::vector<double> window(2 * sample);
      field.values->read(1, 3, std::as_writable_bytes(std::span(window)));
      EXPECT_THAT(window, ElementsAreArray(want.begin() + ptrdiff_t(sample),
                                           want.begin() + 3 * ptrdiff_t(sample)));
    }
  }
}

TEST_F(NpyTest, ReadsStringsAsCategories) {
  const Field bytes = read(npy(npy_literal("|S3", "(4,)"), std::string("dogcatdogox\0", 12)));
  EXPECT_EQ(bytes.kind, FieldKind::category);
  EXPECT_THAT(bytes.categories, ElementsAre("cat", "dog", "ox"));
  EXPECT_THAT(values<int32_t>(bytes), ElementsAre(1, 0, 1, 2));
  for (const bool big : {false, true}) {
    const std::string payload =
        stored(std::vector<uint32_t>{'a', 0xe9, 0x20ac, 0x1f600, 0, 0}, big);
    const Field wide = read(npy(npy_literal(big ? ">U3" : "<U3", "(2,)"), payload));
    EXPECT_THAT(wide.categories, ElementsAre("a\xc3\xa9\xe2\x82\xac", "\xf0\x9f\x98\x80"));
  }
  refuse(npy(npy_literal("<U1", "(1,)"), stored(uint32_t{0xd800})), {"0xd800", "not a character"});
  refuse(npy(npy_literal("|S1", "(1,)"), "\xff"), {"not UTF-8"});
  refuse(npy(npy_literal("|S1", "(1, 2)"), "ab"), {"strings of shape [1, 2]"});
  refuse(npy(npy_literal("|S9", "(2,)"), "short"), {"truncated"});
  EXPECT_EQ(read(npy(npy_literal("|S0", "(3,)"), "")).samples, 3);
}

TEST_F(NpyTest, RefusesObjectsBecauseTheyCarryCode) {
  refuse(npy(npy_literal("|O", "(2,)"), "\x80\x04]q."), {"Python objects", "can run code"});
}

TEST_F(NpyTest, RefusesTypesThatItDoesNotRead) {
  refuse(npy(npy_literal("<c8", "(1,)"), std::string(8, '\0')), {"complex", "'<c8'"});
  refuse(npy(npy_literal("<M8[ns]", "(1,)"), std::string(8, '\0')), {"dates or times"});
  refuse(npy(npy_literal("|V4", "(1,)"), std::string(4, '\0')), {"raw records"});
  refuse(npy(npy_literal("<f16", "(1,)"), std::string(16, '\0')), {"unusual width"});
  refuse(npy(npy_literal("<i3", "(1,)"), std::string(3, '\0')), {"unusual width"});
  refuse(npy(npy_literal("<x4", "(1,)"), std::string(4, '\0')), {"unknown type"});
  refuse(npy(npy_literal("", "(1,)"), ""), {"unknown type"});
  refuse(npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", "1234"),
         {"several fields", "npz"});
}

TEST_F(NpyTest, RefusesAbsurdHeaders) {
  refuse(npy("", ""), {"bad NumPy header", "no '{'"});
  refuse(npy("{'descr': '<f4'}", ""), {"is missing"});
  refuse(npy("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", "1234"),
         {"twice"});
  refuse(npy("{'descr': '<f4', 'evil': '<f4', 'fortran_order': False, 'shape': (1,)}", "1234"),
         {"unknown key 'evil'"});
  refuse(npy(npy_literal("<f4", "(1,)") + "import os", "1234"), {"more after its end"});
  refuse(npy(npy_literal("<f4", "(1, -1)"), ""), {"no whole number"});
  refuse(npy(npy_literal("<f4", "(1.5,)"), ""), {"bad NumPy header"});
  refuse(npy(npy_literal("<f4", "1"), ""), {"no '('"});
  refuse(npy(npy_literal("<f4", "()"), "1234"), {"single number"});
  refuse(npy(npy_literal("<f4", "(99999999999999999999,)"), ""), {"beyond 64 bits"});
  refuse(npy(npy_literal("<f4", "(4294967296, 4294967296)"), ""), {"overflows"});
  refuse(npy(npy_literal("<f4", "(0, 4294967296, 4294967296)"), ""), {"overflows"});
  refuse(npy(npy_literal("<f8", "(2305843009213693952,)"), ""), {"overflows"});
  refuse(npy(npy_literal("<f4", "(1, 1, 1, 1, 1, 1, 1)"), "1234"), {"7 dimensions"});
  refuse(npy(npy_literal("<f4", "(1,)") + std::string(70000, ' '), "1234", 2), {"header of"});
  refuse("\x93NUMPY\x04" + std::string(9, '\0'), {"version 4.0"});
  refuse("\x93NUMPY", {"truncated"});
  refuse(std::string("\x93NUMPY\x01\0\x50\0{'descr'", 18), {"truncated"});
  refuse("\x93NUMPX\x01" + std::string(9, '\0'), {"not a NumPy array"});
}

TEST_F(NpyTest, RefusesASizeThatIsNotTheHeaders) {
  const std::string good = npy(npy_literal("<f4", "(2,)"), "12345678");
  refuse(good.substr(0, good.size() - 1), {"truncated", "8 bytes", "7 follow"});
  refuse(good + "9", {"trailing bytes"});
  // A terabyte is stated and not there: nothing of that size is allocated.
  refuse(npy(npy_literal("<f4", "(274877906944,)"), "1234"), {"truncated"});
}

TEST_F(NpyTest, AFileThatShrinksIsAnErrorAndNoSignal) {
  const auto path = write_file(folder_ / "x.npy",
                               npy(npy_literal("<f4", "(262144,)"), std::string(1 << 20, '\0')));
  const Field field = read_npy(path, "x");
  std::filesystem::resize_file(path, 4096);
  expect_error(ErrorKind::data, {"x.npy", "shrank"}, [&] { (void)values<float>(field); });
}

TEST(IdxFieldTest, ReadsEveryTypeAndRankPlainAndPacked) {
  TempFolder folder;
  const auto check = [&](uint8_t code, const std::string& payload, DType dtype,
                         const std::vector<double>& want) {
    for (const std::vector<uint32_t>& dims :
         std::vector<std::vector<uint32_t>>{{4}, {2, 2}, {2, 1, 2}, {1, 2, 1, 2}}) {
      const std::string bytes = idx_header(code, dims) + payload;
      for (const std::string& file : {bytes, gzip(bytes)}) {
        const Field field = read_idx_field(write_file(folder / "x", file), "x");
        EXPECT_EQ(field.dtype, dtype);
        EXPECT_EQ(field.samples, dims[0]);
        EXPECT_EQ(field.shape.rank(), int(dims.size()) - 1);
        EXPECT_EQ(doubles(field), want);
      }
    }
  };
  check(0x08, "\x01\x02\x03\xff", DType::uint8, {1, 2, 3, 255});
  check(0x09, "\x01\x02\x03\xff", DType::int32, {1, 2, 3, -1});
  check(0x0b, stored(std::vector<int16_t>{1, 256, -2, 4}, true), DType::int32, {1, 256, -2, 4});
  check(0x0c, stored(std::vector<int32_t>{1, 65536, -2, 4}, true), DType::int32, {1, 65536, -2, 4});
  check(0x0d, stored(std::vector<float>{1, .5f, -2, 4}, true), DType::fp32, {1, .5, -2, 4});
  check(0x0e, stored(std::vector<double>{1, .1, -2, 4}, true), DType::fp64, {1, .1, -2, 4});
  const std::string good = idx_header(0x0d, {3}) + std::string(12, '\0');
  for (const bool packed : {false, true}) {
    const auto refuse = [&](const std::string& bytes, const std::string& part) {
      write_file(folder / "x", packed ? gzip(bytes) : bytes);
      expect_error(ErrorKind::data, {part}, [&] { (void)read_idx_field(folder / "x", "x"); });
    };
    refuse(good.substr(0, 19), "truncated");
    refuse(good + "x", "trailing bytes");
    refuse(idx_header(0x0d, {0xffffffff, 0xffffffff, 0xffffffff}), "overflow");
  }
}

TEST(RawFieldTest, ReadsTypeAndShapeAsGiven) {
  TempFolder folder;
  const std::string bytes = stored(std::vector<float>{1, 2, 3, 4, 5, 6});
  for (const std::string& file :
       {bytes, gzip(bytes), gzip(bytes.substr(0, 8)) + gzip(bytes.substr(8))}) {
    const Field field =
        read_raw_field(write_file(folder / "x.bin", file), "x", StoredType::of(DType::fp32), {3});
    EXPECT_EQ(field.samples, 2);
    EXPECT_THAT(values<float>(field), ElementsAre(1, 2, 3, 4, 5, 6));
  }
  const auto refuse = [&](const std::string& file, const Shape& shape, const std::string& part) {
    write_file(folder / "x.bin", file);
    expect_error(ErrorKind::data, {"x.bin", part}, [&] {
      (void)read_raw_field(folder / "x.bin", "x", StoredType::of(DType::fp32), shape);
    });
  };
  refuse(bytes, {4}, "no whole number of samples of 16 bytes");
  refuse(bytes, {0}, "no whole number");
  refuse("", {1}, "empty");
}

}  // namespace
}  // namespace ridgeline::data
