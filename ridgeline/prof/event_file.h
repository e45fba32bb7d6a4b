#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ridgeline::prof {

// CRC-32C (Castagnoli) of TFRecord files, and the masked form that they store.
uint32_t crc32c(std::string_view bytes);
uint32_t masked_crc32c(std::string_view bytes);

// One TFRecord: length, its masked crc, the payload, its masked crc; little endian.
std::string tf_record(std::string_view payload);

// Counts of numbers between limits: bucket i holds those in (limits[i - 1], limits[i]].
struct Histogram {
  double min = 0, max = 0, count = 0, sum = 0, sum_squares = 0;
  std::vector<double> limits, buckets;  // of equal length; empty buckets at either end left out
};
// Limits grow by 10 % from 1e-12 in both directions, as TensorBoard's own do. Numbers that are not
// finite are left out.
Histogram histogram_of(std::span<const float> values);
Histogram histogram_of(std::span<const double> values);

// A TensorBoard event file, appended to during a run. Every call writes to the file at once, so
// that a killed run leaves a readable one. Throws Error(io).
class EventFile {
 public:
  // Makes the folder and a new file in it. `first_step` > 0: records of an interrupted run about
  // later steps are void, and readers are told so.
  EventFile(const std::filesystem::path& folder, int64_t first_step);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  struct Scalar {
    std::string_view tag;
    double value;
  };
  void scalars(int64_t step, std::span<const Scalar> values);
  void histogram(int64_t step, std::string_view tag, const Histogram& histogram);
  const std::filesystem::path& path() const { return path_; }

  // Whether an EventFile, and not another program, wrote a file with this beginning (64 KiB are
  // enough).
  static bool wrote(std::string_view head);

 private:
  void append(std::string_view event);

  std::filesystem::path path_;
  int file_ = -1;
};

}  // namespace ridgeline::prof
