#include "ridgeline/prof/event_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "ridgeline/core/error.h"

namespace ridgeline::prof {
namespace {

// The vectors of RFC 3720, B.4, and the usual check of nine digits.
TEST(Crc32c, KnownVectors) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  std::string rising;
  for (char c = 0; c < 32; ++c) rising.push_back(c);
  EXPECT_EQ(crc32c(rising), 0x46dd794eu);
  EXPECT_EQ(crc32c(""), 0u);
}

TEST(Crc32c, MaskTurnsAndAdds) {
  // ((crc >> 15) | (crc << 17)) + 0xa282ead8 for the crc of nine digits, by hand.
  EXPECT_EQ(masked_crc32c("123456789"),
            uint32_t((0xe3069283u >> 15 | 0xe3069283u << 17) + 0xa282ead8u));
  EXPECT_EQ(masked_crc32c(""), 0xa282ead8u);
}

template <typename T>
T raw(const std::string& bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

TEST(TfRecord, Frame) {
  const std::string record = tf_record("hello");
  ASSERT_EQ(record.size(), 8 + 4 + 5 + 4u);
  EXPECT_EQ(raw<uint64_t>(record, 0), 5u);
  EXPECT_EQ(raw<uint32_t>(record, 8), masked_crc32c(record.substr(0, 8)));
  EXPECT_EQ(record.substr(12, 5), "hello");
  EXPECT_EQ(raw<uint32_t>(record, 17), masked_crc32c("hello"));
}

TEST(EventFile, HoldsRecordsOneAfterTheOther) {
  const auto folder =
      std::filesystem::temp_directory_path() / ("ridgeline-events-" + std::to_string(::getpid()));
  std::string path;
  {
    EventFile file(folder, 7);
    const EventFile::Scalar scalars[] = {{"loss", 0.5}};
    file.scalars(300, scalars);
    path = file.path();
  }
  std::ifstream in(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  std::filesystem::remove_all(folder);
  std::vector<std::string> events;
  for (size_t at = 0; at < bytes.size();) {
    const auto length = size_t(raw<uint64_t>(bytes, at));
    events.push_back(bytes.substr(at + 12, length));
    EXPECT_EQ(tf_record(events.back()), bytes.substr(at, length + 16));
    at += length + 16;
  }
  ASSERT_EQ(events.size(), 3u);  // version, session start, scalars
  // After the time (a key and eight bytes): field 3, a string of 13 bytes, and field 10, a
  // SourceMetadata with the writer's name.
  EXPECT_EQ(events[0].substr(9),
            "\x1a\x0d"
            "brain.Event:2"
            "\x52\x0b\x0a\x09ridgeline");
  EXPECT_TRUE(EventFile::wrote(bytes));
  // Files of version 0.1 are recognised by their tags; another program's file is recognised as
  // neither.
  EXPECT_FALSE(EventFile::wrote(tf_record(events[0].substr(0, 24))));
  EXPECT_TRUE(EventFile::wrote(tf_record("speed/inputs_per_second")));
  // Step 8 (field 2), then a SessionLog (field 7) with status 1.
  EXPECT_EQ(events[1].substr(9), "\x10\x08\x3a\x02\x08\x01");
  // Step 300 takes two bytes; a Summary of one Value with tag and float 0.5.
  EXPECT_EQ(events[2].substr(9),
            std::string("\x10\xac\x02\x2a\x0d\x0a\x0b\x0a\x04loss\x15\0\0\0\x3f", 18));
}

TEST(EventFile, AFolderThatCannotBeMadeIsAnError) {
  EXPECT_THROW(EventFile("/proc/none/tensorboard", 0), Error);
}

TEST(HistogramOf, CountsAndSums) {
  const float values[] = {-1, 0, 0, 2, 3, INFINITY};
  const Histogram h = histogram_of(values);
  EXPECT_EQ(h.count, 5);
  EXPECT_EQ(h.min, -1);
  EXPECT_EQ(h.max, 3);
  EXPECT_EQ(h.sum, 4);
  EXPECT_EQ(h.sum_squares, 14);
  ASSERT_EQ(h.limits.size(), h.buckets.size());
  double counted = 0;
  for (size_t i = 0; i < h.buckets.size(); ++i) {
    counted += h.buckets[i];
    double inside = 0;
    for (const float v : values) {
      inside += v <= h.limits[i] && (i == 0 || v > h.limits[i - 1]) ? 1 : 0;
    }
    EXPECT_EQ(h.buckets[i], inside) << i;
  }
  EXPECT_EQ(counted, 5);
  EXPECT_GT(h.buckets.front(), 0);
  EXPECT_GT(h.buckets.back(), 0);
  const double none[] = {NAN};
  EXPECT_EQ(histogram_of(none).count, 0);
}

}  // namespace
}  // namespace ridgeline::prof
