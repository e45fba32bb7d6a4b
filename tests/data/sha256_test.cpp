#include "ridgeline/data/sha256.h"

#include "ridgeline/data/input_file.h"
#include "tests/data/files.h"

namespace ridgeline::data {
namespace {

using namespace testing;

TEST(Sha256, MatchesThePublishedExamples) {  // FIPS 180-4's examples
  EXPECT_EQ(sha256_of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256_of(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, DoesNotDependOnHowTheBytesArrive) {
  std::string bytes(1000, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = char(i * 31);
  for (const size_t piece : {1u, 7u, 55u, 56u, 63u, 64u, 65u, 128u, 999u}) {
    Sha256 sum;
    for (size_t at = 0; at < bytes.size(); at += piece) {
      sum.update(std::as_bytes(std::span(bytes).subspan(at, std::min(piece, bytes.size() - at))));
    }
    EXPECT_EQ(sum.hex(), sha256_of(bytes)) << piece;
  }
}

TEST(Sha256, OfAFileAndOfWhatItUnpacksTo) {
  const TempFolder folder;
  const std::string bytes(700000, 'q');
  const auto path = write_file(folder / "x.gz", gzip(bytes));
  InputFile file(path);
  EXPECT_EQ(sha256(file), sha256_of(gzip(bytes)));
  InputFile again(path);
  ByteSource source(again);
  EXPECT_EQ(sha256(source), sha256_of(bytes));
}

}  // namespace
}  // namespace ridgeline::data
