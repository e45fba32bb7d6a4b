#include "ridgeline/core/checksum.h"

#include <gtest/gtest.h>

namespace ridgeline {
namespace {

// The check value of CRC-32 (ISO-HDLC), which zlib and Python's zlib.crc32 give too.
TEST(Checksum, IsTheKnownCrc32) {
  EXPECT_EQ(crc32_text("123456789"), "cbf43926");
  EXPECT_EQ(crc32_text(""), "00000000");
}

TEST(Checksum, PartsMakeTheWhole) {
  const std::string_view text = "123456789";
  const auto bytes = std::as_bytes(std::span(text));
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    const uint32_t head = crc32_of(bytes.first(cut));
    EXPECT_EQ(crc32_of(bytes.subspan(cut), head), 0xcbf43926u) << cut;
    EXPECT_EQ(crc32_of({}, head), head) << cut;
  }
}

}  // namespace
}  // namespace ridgeline
