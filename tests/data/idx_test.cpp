#include "ridgeline/data/idx.h"

#include <sys/stat.h>
#include <unistd.h>

#include <bit>

#include "tests/data/files.h"

namespace ridgeline::data {
namespace {

using namespace testing;
namespace fs = std::filesystem;

class IdxTest : public ::testing::Test {
 protected:
  fs::path file(std::string_view bytes, std::string_view name = "file") {
    return write_file(folder_ / name, bytes);
  }
  // Expects read_idx to refuse these bytes, plain, with a line that begins with the file's name.
  void refuse(std::string_view bytes, const std::vector<std::string>& parts) {
    const fs::path path = file(bytes);
    const std::string line = expect_error(ErrorKind::data, parts, [&] { (void)read_idx(path); });
    EXPECT_TRUE(line.starts_with(path.string() + ": ")) << line;
  }

  TempFolder folder_;
};

const std::string kSmall = idx_header(8, {2, 3}) + "abcdef";

std::string text_of(const HostTensor& tensor) {
  const auto bytes = tensor.span<uint8_t>();
  return {bytes.begin(), bytes.end()};
}

TEST_F(IdxTest, ReadsPlainAndGzipAlikeWhateverTheName) {
  for (const std::string& bytes : {kSmall, gzip(kSmall)}) {
    for (const char* name : {"x", "x.gz"}) {
      const HostTensor tensor = read_idx(file(bytes, name));
      EXPECT_EQ(tensor.view().dtype, DType::uint8);
      EXPECT_EQ(tensor.view().shape, (Shape{2, 3}));
      EXPECT_EQ(text_of(tensor), "abcdef");
    }
  }
}

TEST_F(IdxTest, ReadsGzipOfSeveralMembers) {
  const std::string two = gzip(kSmall.substr(0, 14)) + gzip("") + gzip(kSmall.substr(14));
  EXPECT_EQ(text_of(read_idx(file(two))), "abcdef");
}

TEST_F(IdxTest, SwapsWideTypes) {
  const std::string ints =
      idx_header(0x0c, {2}) + big_endian(0x01020304) + big_endian(uint32_t(-5));
  const HostTensor read_ints = read_idx(file(ints));
  EXPECT_EQ(read_ints.view().dtype, DType::int32);
  EXPECT_EQ(read_ints.span<int32_t>()[0], 0x01020304);
  EXPECT_EQ(read_ints.span<int32_t>()[1], -5);

  const HostTensor floats =
      read_idx(file(gzip(idx_header(0x0d, {1}) + big_endian(std::bit_cast<uint32_t>(-1.5f)))));
  EXPECT_EQ(floats.view().dtype, DType::fp32);
  EXPECT_EQ(floats.span<float>()[0], -1.5f);

  const uint64_t word = std::bit_cast<uint64_t>(0.1);
  const HostTensor doubles = read_idx(
      file(idx_header(0x0e, {1}) + big_endian(uint32_t(word >> 32)) + big_endian(uint32_t(word))));
  EXPECT_EQ(doubles.view().dtype, DType::fp64);
  EXPECT_EQ(doubles.span<double>()[0], 0.1);
}

TEST_F(IdxTest, ReadsEmptyExtents) {
  for (const std::string& bytes : {idx_header(8, {0, 5}), gzip(idx_header(8, {0, 5}))}) {
    EXPECT_EQ(read_idx(file(bytes)).view().shape, (Shape{0, 5}));
  }
}

TEST_F(IdxTest, RefusesMissingFolderAndPipe) {
  const fs::path missing = folder_ / "missing";
  expect_error(ErrorKind::data, {missing.string() + ": cannot open: No such file"},
               [&] { (void)read_idx(missing); });
  expect_error(ErrorKind::data, {folder_.path().string() + ": is a folder"},
               [&] { (void)read_idx(folder_.path()); });
  const fs::path pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  expect_error(ErrorKind::data, {"is a pipe, not a plain file"}, [&] { (void)read_idx(pipe); });
  fs::create_symlink(folder_ / "loop", folder_ / "loop");
  expect_error(ErrorKind::data, {"loop: cannot open: Too many levels"},
               [&] { (void)read_idx(folder_ / "loop"); });
}

TEST_F(IdxTest, RefusesUnreadable) {
  const fs::path path = file(kSmall);
  ASSERT_EQ(::chmod(path.c_str(), 0), 0);
  ASSERT_EQ(::chmod(folder_.path().c_str(), 0755), 0);
  const bool root = ::geteuid() == 0;  // root may read everything: become somebody else
  if (root) {
    ASSERT_EQ(::seteuid(65534), 0);
  }
  expect_error(ErrorKind::data, {path.string() + ": cannot open: Permission denied"},
               [&] { (void)read_idx(path); });
  if (root) {
    ASSERT_EQ(::seteuid(0), 0);
  }
}

TEST_F(IdxTest, RefusesEmptyAndShortHeaders) {
  refuse("", {"is empty"});
  refuse(kSmall.substr(0, 3), {"ends inside the IDX header"});
  refuse(kSmall.substr(0, 11), {"ends inside the IDX header"});
  refuse(gzip(kSmall.substr(0, 11)), {"ends inside the IDX header"});
}

TEST_F(IdxTest, RefusesBadMagicTypeAndRank) {
  refuse("PK\x03\x04rest", {"not an IDX file", "50 4b 03 04"});
  refuse(idx_header(0x09, {1}) + "a", {"int8 (0x09) is not supported"});
  refuse(idx_header(0x0b, {1}) + "ab", {"int16 (0x0b) is not supported"});
  refuse(idx_header(0x07, {1}) + "a", {"unknown IDX type 0x07", "uint8 0x08"});
  refuse(idx_header(0x08, {}) + "a", {"0 dimensions", "1 to 6"});
  refuse(idx_header(0x08, {1, 1, 1, 1, 1, 1, 1}) + "a", {"7 dimensions", "1 to 6"});
}

TEST_F(IdxTest, RefusesSizesThatDoNotFit) {
  refuse(kSmall.substr(0, 17), {"truncated", "uint8 of [2, 3] need 6 bytes", "holds 5"});
  refuse(gzip(kSmall.substr(0, 17)), {"truncated", "need 6 bytes", "holds 5"});
  refuse(kSmall + "gh", {"trailing bytes", "need 6 bytes", "holds 8"});
  refuse(gzip(kSmall + "gh"), {"trailing bytes", "need 6 bytes", "holds more"});
  refuse(gzip(kSmall) + "zz", {"bytes after the end of the gzip stream"});
  refuse(gzip(kSmall) + std::string(3, '\0'), {"bytes after the end of the gzip stream"});
}

TEST_F(IdxTest, RefusesHugeDimensionsWithoutAllocating) {
  const uint32_t most = 0xffffffff;
  refuse(idx_header(8, {most, most, most}) + "a", {"IDX dimensions", "overflows"});
  refuse(idx_header(0x0e, {most, 1u << 30}) + "a", {"IDX dimensions", "overflows"});
  refuse(idx_header(8, {most, 1u << 20}) + "a", {"truncated", "holds 1"});
  refuse(gzip(idx_header(8, {most, 1u << 20}) + "a"), {"truncated", "bytes of gzip can hold"});
}

TEST_F(IdxTest, RefusesTruncatedAndDamagedGzip) {
  const std::string packed = gzip(kSmall);
  refuse(packed.substr(0, packed.size() - 1), {"truncated gzip", "after 18 unpacked bytes"});
  refuse(packed.substr(0, 12), {"truncated gzip"});
  refuse(packed.substr(0, 2), {"truncated gzip"});
  std::string bad_crc = packed;
  bad_crc[packed.size() - 8] ^= 1;
  refuse(bad_crc, {"damaged gzip: CRC mismatch"});
  std::string bad_length = packed;
  bad_length[packed.size() - 1] ^= 1;
  refuse(bad_length, {"damaged gzip: incorrect length check"});
  std::string bad_method = packed;
  bad_method[2] = 7;
  refuse(bad_method, {"damaged gzip: unknown compression method"});
}

TEST_F(IdxTest, StopsAtTheDeclaredSizeOfABomb) {
  // 160 MiB of zeros in 160 KiB, of which the header declares 6 bytes.
  const std::string bomb = gzip(idx_header(8, {2, 3}) + std::string(160 << 20, '\0'));
  const fs::path path = file(bomb, "bomb.gz");
  InputFile opened(path);
  expect_error(ErrorKind::data, {"trailing bytes", "need 6 bytes"},
               [&] { (void)read_idx(opened); });
  // It had unpacked one buffer's worth: the rest of the file was never read.
  std::vector<std::byte> rest(bomb.size());
  EXPECT_GT(opened.read(std::span(rest).first(bomb.size() / 2)), bomb.size() / 2 - 1);
}

TEST_F(IdxTest, NoticesAFileThatShrinksWhileItIsRead) {
  const fs::path plain = file(idx_header(8, {1000}) + std::string(1000, 'a'), "plain");
  InputFile opened(plain);
  fs::resize_file(plain, 500);
  expect_error(ErrorKind::data, {plain.string(), "shrank while it was read", "1008", "500"},
               [&] { (void)read_idx(opened); });

  const std::string packed = gzip(idx_header(8, {1000}) + std::string(1000, 'a'));
  const fs::path gz = file(packed, "packed.gz");
  InputFile opened_gz(gz);
  fs::resize_file(gz, packed.size() - 4);
  expect_error(ErrorKind::data, {gz.string(), "shrank while it was read"},
               [&] { (void)read_idx(opened_gz); });
}

// Every byte is flipped in three ways and the file is cut at every length: the result is a tensor
// or an Error.
TEST_F(IdxTest, SurvivesDamageEverywhere) {
  const std::string wide = idx_header(0x0c, {3, 1, 2}) + std::string(24, 'x');
  int refused = 0, read = 0;
  const auto attempt = [&](const std::string& bytes) {
    const fs::path path = file(bytes);
    try {
      const HostTensor tensor = read_idx(path);
      EXPECT_LE(tensor.view().bytes(), size_t{24});
      ++read;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::data) << error.what();
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
      ++refused;
    }
  };
  for (const std::string& whole : {kSmall, wide, gzip(kSmall), gzip(wide)}) {
    for (size_t at = 0; at < whole.size(); ++at) {
      for (const int flip : {0x01, 0x80, 0xff}) {
        std::string bytes = whole;
        bytes[at] = char(bytes[at] ^ flip);
        attempt(bytes);
      }
      attempt(whole.substr(0, at));
    }
  }
  EXPECT_GT(refused, 100);
  EXPECT_GT(read, 50);  // damage to elements of a plain file cannot be seen
}

TEST_F(IdxTest, TellsIdxFromOtherFiles) {
  EXPECT_TRUE(is_idx(file(kSmall)));
  EXPECT_TRUE(is_idx(file(gzip(kSmall))));
  EXPECT_FALSE(is_idx(file("")));
  EXPECT_FALSE(is_idx(file(std::string(784, '\0'))));
  EXPECT_FALSE(is_idx(file("index,label\n")));
}

HostTensor read_raw_samples(const fs::path& path, const Shape& sample) {
  SampleStream stream(path, sample, /*idx=*/false);
  std::vector<uint8_t> bytes;
  int64_t count = 0;
  for (int64_t got = 0; (got = stream.read(2, bytes)) > 0;) count += got;
  HostTensor samples(DType::uint8, sample.prepend(count));
  std::ranges::copy(bytes, samples.span<uint8_t>().begin());
  return samples;
}

TEST_F(IdxTest, ReadsRawSamples) {
  const HostTensor samples = read_raw_samples(file("abcdefghijkl"), Shape{3, 2});
  EXPECT_EQ(samples.view().shape, (Shape{2, 3, 2}));
  EXPECT_EQ(samples.view().dtype, DType::uint8);
  EXPECT_EQ(text_of(samples), "abcdefghijkl");
}

TEST_F(IdxTest, UnpacksRawSamples) {
  const std::string packed = gzip("abcdefghijkl");
  EXPECT_EQ(text_of(read_raw_samples(file(packed), Shape{3, 2})), "abcdefghijkl");
  const auto refuses = [&](const std::string& bytes, const std::string& says) {
    expect_error(ErrorKind::data, {says}, [&] {
      (void)read_raw_samples(file(bytes), Shape{3, 2});
    });
  };
  refuses(gzip("abcdefg"), "7 bytes");
  std::string wrong_crc = packed;
  wrong_crc[packed.size() - 8] ^= 1;
  refuses(wrong_crc, "CRC mismatch");
  std::string wrong_size = packed;
  wrong_size[packed.size() - 1] ^= 1;
  refuses(wrong_size, "incorrect length check");
  refuses(packed.substr(0, packed.size() - 12), "truncated gzip");
  refuses(packed + "abc", "bytes after the end");
}

TEST_F(IdxTest, TakesGzipFilesOfSeveralMembers) {
  const Shape sample{3, 2};
  const auto raw = [&](const std::string& bytes) {
    return text_of(read_raw_samples(file(bytes), sample));
  };
  EXPECT_EQ(raw(gzip("abcdefghijkl") + gzip("abcdef")), "abcdefghijklabcdef");
  EXPECT_EQ(raw(gzip("abcd") + gzip("") + gzip("efgh") + gzip("ijkl")), "abcdefghijkl");
  expect_error(ErrorKind::data, {"8 bytes, is no whole number of samples of 6 bytes"},
               [&] { (void)raw(gzip("abcdef") + gzip("gh")); });
  const std::string idx = idx_header(8, {2, 3}) + "abcdef";
  for (size_t cut = 0; cut <= idx.size(); ++cut) {
    const fs::path path = file(gzip(idx.substr(0, cut)) + gzip(idx.substr(cut)));
    EXPECT_EQ(text_of(read_idx(path)), "abcdef") << cut;
    SampleStream stream(path, {}, /*idx=*/true);
    std::vector<uint8_t> bytes;
    EXPECT_EQ(stream.count(), 2);
    EXPECT_EQ(stream.read(5, bytes), 2);
    EXPECT_EQ(std::string(bytes.begin(), bytes.end()), "abcdef");
    EXPECT_TRUE(is_idx(path));
  }
}

TEST_F(IdxTest, RefusesRawBytesThatAreNoWholeSamples) {
  const fs::path path = file("abcdefg");
  expect_error(ErrorKind::data, {path.string(), "7 bytes", "samples of 6 bytes ([3, 2])"}, [&] {
    (void)read_raw_samples(path, Shape{3, 2});
  });
  expect_error(ErrorKind::data, {"samples of 0 bytes"},
               [&] { (void)read_raw_samples(path, Shape{0}); });
  expect_error(ErrorKind::data, {"is empty"}, [&] { (void)read_raw_samples(file(""), Shape{1}); });
  expect_error(ErrorKind::data, {"No such file"},
               [&] { (void)read_raw_samples(folder_ / "missing", Shape{1}); });
}

}  // namespace
}  // namespace ridgeline::data
