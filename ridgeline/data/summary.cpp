#include "ridgeline/data/summary.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>

#include "ridgeline/data/moments.h"
#include "ridgeline/data/sha256.h"

namespace ridgeline::data {
namespace {

static_assert(std::endian::native == std::endian::little, "checksums are of little-endian values");

constexpr int64_t kReadWindow = int64_t{4} << 20;  // bytes read at a time

// Calls f(begin, end) for windows of the rows.
void windows(const Field& field, const std::function<void(int64_t, int64_t)>& f) {
  const int64_t row_bytes = std::max<int64_t>(1, int64_t(field.row_bytes()));
  const int64_t most = std::max<int64_t>(1, kReadWindow / row_bytes);
  for (int64_t at = 0; at < field.rows(); at += most) f(at, std::min(field.rows(), at + most));
}

// Counts integers until there are too many different ones, or one is not an integer.
class Distinct {
 public:
  void add(double value) {
    if (!counting_) return;
    if (value != std::floor(value) || std::abs(value) > 0x1p53) return stop();
    // Runs of one value are common: labels are often sorted.
    if (last_ == nullptr || value != last_value_) {
      last_ = &values_[int64_t(value)];
      last_value_ = value;
      if (values_.size() > FieldSummary::kMostDistinct) return stop();
    }
    ++*last_;
  }
  void stop() {
    counting_ = false;
    last_ = nullptr;
    values_.clear();
  }
  std::map<int64_t, int64_t> take() { return std::move(values_); }

 private:
  bool counting_ = true;
  std::map<int64_t, int64_t> values_;
  int64_t* last_ = nullptr;
  double last_value_ = 0;
};

void summarise_numbers(const Field& field, FieldSummary& summary) {
  Moments moments(1);
  Distinct distinct;
  if (field.shape.numel() != 1 || field.has_lengths()) distinct.stop();
  std::vector<double> values;
  windows(field, [&](int64_t begin, int64_t end) {
    values.resize(size_t((end - begin) * field.shape.numel()));
    read_doubles(field, begin, end, values);
    size_t kept = 0;
    for (const double value : values) {
      if (std::isnan(value)) {
        ++summary.missing;
      } else if (std::isinf(value)) {
        ++summary.infinite;
      } else {
        values[kept++] = value;
        summary.whole = summary.whole && value == std::floor(value);
        distinct.add(value);
      }
    }
    summary.numbers += int64_t(kept);
    moments.add(std::span(values).first(kept));
  });
  if (summary.numbers > 0) {
    summary.least = moments.least(0);
    summary.most = moments.most(0);
  }
  summary.mean = moments.mean(0);
  summary.deviation = moments.deviation(0);
  summary.values = distinct.take();
}

void count_codes(const Field& field, FieldSummary& summary) {
  summary.counts.resize(field.categories.size());
  std::vector<double> codes;
  windows(field, [&](int64_t begin, int64_t end) {
    codes.resize(size_t(end - begin));
    read_doubles(field, begin, end, codes);
    for (const double code : codes) {
      if (std::isnan(code)) {
        ++summary.missing;
      } else if (code >= 0 && size_t(code) < summary.counts.size()) {
        ++summary.counts[size_t(code)];
      }
    }
  });
}

void measure_lengths(const Field& field, FieldSummary& summary) {
  const std::vector<int64_t>& offsets = *field.offsets;
  for (size_t i = 0; i + 1 < offsets.size(); ++i) {
    const int64_t length = offsets[i + 1] - offsets[i];
    summary.least_length = i == 0 ? length : std::min(summary.least_length, length);
    summary.most_length = std::max(summary.most_length, length);
    if (field.kind == FieldKind::text && length == 0) ++summary.missing;
  }
  if (field.samples > 0) summary.mean_length = double(field.rows()) / double(field.samples);
}

}  // namespace

FieldSummary summarise(const Field& field) {
  FieldSummary summary;
  if (field.has_lengths()) measure_lengths(field, summary);
  if (field.kind == FieldKind::number || field.kind == FieldKind::sequence) {
    summarise_numbers(field, summary);
  }
  if (field.kind == FieldKind::boolean || field.kind == FieldKind::category) {
    count_codes(field, summary);
  }
  return summary;
}

std::string checksum(const Field& field) {
  Sha256 sum;
  std::vector<std::byte> bytes;
  windows(field, [&](int64_t begin, int64_t end) {
    bytes.resize(size_t(end - begin) * field.row_bytes());
    field.values->read(begin, end, bytes);
    sum.update(bytes);
  });
  return sum.hex();
}

}  // namespace ridgeline::data
