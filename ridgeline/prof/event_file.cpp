#include "ridgeline/prof/event_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>

#include "ridgeline/core/file.h"

namespace ridgeline::prof {
namespace {

static_assert(std::endian::native == std::endian::little, "the file's byte order is written as is");

constexpr std::array<uint32_t, 256> crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0u);
    table[i] = crc;
  }
  return table;
}
constexpr auto kCrc = crc_table();

template <typename T>
void put_raw(std::string& out, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out.append(bytes, sizeof(T));
}

// Protocol-buffer fields, as in TensorFlow's event.proto and summary.proto.
enum WireType { varint = 0, fixed64 = 1, length_delimited = 2, fixed32 = 5 };

void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(char(value | 0x80));
  out.push_back(char(value));
}
void put_key(std::string& out, int field, WireType type) {
  put_varint(out, uint64_t(field) << 3 | type);
}
void put_double(std::string& out, int field, double value) {
  put_key(out, field, fixed64);
  put_raw(out, value);
}
void put_float(std::string& out, int field, float value) {
  put_key(out, field, fixed32);
  put_raw(out, value);
}
void put_int(std::string& out, int field, int64_t value) {
  put_key(out, field, varint);
  put_varint(out, uint64_t(value));
}
void put_bytes(std::string& out, int field, std::string_view value) {
  put_key(out, field, length_delimited);
  put_varint(out, value.size());
  out.append(value);
}
void put_doubles(std::string& out, int field, std::span<const double> values) {
  put_bytes(out, field, {reinterpret_cast<const char*>(values.data()), values.size_bytes()});
}

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Makes an Event with its time and step; the caller adds the content.
std::string event_head(int64_t step) {
  std::string event;
  put_double(event, 1, wall_time());
  if (step != 0) put_int(event, 2, step);
  return event;
}
constexpr int kFileVersion = 3, kSummary = 5, kSessionLog = 7, kSourceMetadata = 10;

// Identifies the writer of the file, because other programs' files have the same names.
std::string source_metadata() {
  std::string writer, field;
  put_bytes(writer, 1, "ridgeline");
  put_bytes(field, kSourceMetadata, writer);
  return field;
}

std::vector<double> histogram_limits() {
  std::vector<double> positive;
  for (double limit = 1e-12; limit < 1e20; limit *= 1.1) positive.push_back(limit);
  std::vector<double> all(positive.rbegin(), positive.rend());
  for (double& limit : all) limit = -limit;
  all.push_back(0);
  all.insert(all.end(), positive.begin(), positive.end());
  return all;
}

template <typename T>
Histogram count(std::span<const T> values) {
  static const std::vector<double> limits = histogram_limits();
  std::vector<double> buckets(limits.size() + 1);
  Histogram result;
  result.min = INFINITY;
  result.max = -INFINITY;
  for (const T each : values) {
    const double value = double(each);
    if (!std::isfinite(value)) continue;
    result.min = std::min(result.min, value);
    result.max = std::max(result.max, value);
    result.count += 1;
    result.sum += value;
    result.sum_squares += value * value;
    ++buckets[size_t(std::lower_bound(limits.begin(), limits.end(), value) - limits.begin())];
  }
  if (result.count == 0) return {};
  const auto used = [](double bucket) { return bucket > 0; };
  const auto first = size_t(std::find_if(buckets.begin(), buckets.end(), used) - buckets.begin());
  const auto last = size_t(buckets.rend() - std::find_if(buckets.rbegin(), buckets.rend(), used));
  for (size_t i = first; i < last; ++i) {
    result.limits.push_back(i < limits.size() ? limits[i] : result.max);
    result.buckets.push_back(buckets[i]);
  }
  return result;
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = ~0u;
  for (const char c : bytes) crc = kCrc[(crc ^ uint8_t(c)) & 0xff] ^ (crc >> 8);
  return ~crc;
}

uint32_t masked_crc32c(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xa282ead8u;
}

std::string tf_record(std::string_view payload) {
  std::string record;
  put_raw(record, uint64_t(payload.size()));
  put_raw(record, masked_crc32c(record));
  record.append(payload);
  put_raw(record, masked_crc32c(payload));
  return record;
}

Histogram histogram_of(std::span<const float> values) { return count(values); }
Histogram histogram_of(std::span<const double> values) { return count(values); }

EventFile::EventFile(const std::filesystem::path& folder, int64_t first_step) {
  make_folder("TensorBoard's folder", folder);
  char host[256] = "localhost";
  ::gethostname(host, sizeof host - 1);
  // Readers sort the files of a folder by name, so the time has a fixed width.
  path_ = folder /
          fmt::format("events.out.tfevents.{:010d}.{}.{}", int64_t(wall_time()), host, ::getpid());
  file_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file_ < 0) {
    throw_error(ErrorKind::io, "{}: cannot open: {}", path_.string(), std::strerror(errno));
  }
  std::string version = event_head(0);
  put_bytes(version, kFileVersion, "brain.Event:2");
  version += source_metadata();
  append(version);
  if (first_step == 0) return;
  std::string start = event_head(first_step + 1), status;
  put_int(status, 1, 1);  // SessionLog.START: drop records of this step and later
  put_bytes(start, kSessionLog, status);
  append(start);
}

bool EventFile::wrote(std::string_view head) {
  // Version 0.1 did not name itself; it is recognised by a tag that only we use.
  return head.substr(0, 128).find(source_metadata()) != head.npos ||
         head.find("speed/inputs_per_second") != head.npos;
}

EventFile::~EventFile() {
  if (file_ >= 0) ::close(file_);
}

void EventFile::scalars(int64_t step, std::span<const Scalar> values) {
  std::string summary;
  for (const Scalar& each : values) {
    std::string value;
    put_bytes(value, 1, each.tag);
    put_float(value, 2, float(each.value));
    put_bytes(summary, 1, value);
  }
  std::string event = event_head(step);
  put_bytes(event, kSummary, summary);
  append(event);
}

void EventFile::histogram(int64_t step, std::string_view tag, const Histogram& histogram) {
  std::string histo, value, summary, event = event_head(step);
  put_double(histo, 1, histogram.min);
  put_double(histo, 2, histogram.max);
  put_double(histo, 3, histogram.count);
  put_double(histo, 4, histogram.sum);
  put_double(histo, 5, histogram.sum_squares);
  put_doubles(histo, 6, histogram.limits);
  put_doubles(histo, 7, histogram.buckets);
  put_bytes(value, 1, tag);
  put_bytes(value, 5, histo);
  put_bytes(summary, 1, value);
  put_bytes(event, kSummary, summary);
  append(event);
}

void EventFile::append(std::string_view event) {
  const std::string record = tf_record(event);
  write_all(file_, std::as_bytes(std::span(record)), path_);
}

}  // namespace ridgeline::prof
