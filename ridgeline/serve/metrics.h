#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ridgeline::serve {

// Counts of observations up to each bound, in Prometheus' form. Observing takes no lock.
class Histogram {
 public:
  explicit Histogram(std::span<const double> bounds);  // ascending; they outlive it
  void observe(double value);
  // Lines "name_bucket{labels,le="..."} n", "name_sum{labels} x", "name_count{labels} n".
  void write(std::string_view name, std::string_view labels, std::string& to) const;
  double sum() const { return sum_.load(std::memory_order_relaxed); }

  static std::span<const double> seconds();  // 10 us to 10 s
  static std::span<const double> samples();  // 1, 2, 4, ... 4096

 private:
  std::span<const double> bounds_;
  std::vector<std::atomic<uint64_t>> counts_;  // of values in (bound before, bound]; last: above
  std::atomic<double> sum_{0};
};

// The counters of one model, whatever file it was loaded from last.
struct ModelMetrics {
  std::atomic<uint64_t> good{0}, refused{0}, failed{0}, turned_away{0};  // 200, 4xx, 5xx, 503
  std::atomic<uint64_t> abandoned{0},
      expired{0};  // while they waited: the client left, or too long
  std::atomic<uint64_t> samples{0}, batches{0}, loads{0}, failed_loads{0};
  std::atomic<int64_t> waiting{0}, waiting_samples{0};
  std::atomic<double> limit_seconds{0};  // of its launches at the device's limit
  Histogram batch_samples{Histogram::samples()};
  Histogram request_seconds{Histogram::seconds()};
  Histogram queue_seconds{Histogram::seconds()};
  Histogram compute_seconds{Histogram::seconds()};
};

// The metrics that /metrics shows.
class Metrics {
 public:
  std::atomic<uint64_t> connections_accepted{0}, connections_refused{0}, timed_out{0};
  std::atomic<int64_t> connections{0};
  std::atomic<uint64_t> bytes_in{0}, bytes_out{0};

  void count_status(int status);
  // Created on first use, and kept.
  std::shared_ptr<ModelMetrics> of_model(const std::string& name, const std::string& version);
  // The seconds that a device has computed; created on first use, and kept.
  std::shared_ptr<std::atomic<double>> busy_seconds(const std::string& device);
  std::string to_text() const;

 private:
  std::array<std::atomic<uint64_t>, 600> statuses_{};
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, std::string>, std::shared_ptr<ModelMetrics>> models_;
  std::map<std::string, std::shared_ptr<std::atomic<double>>> devices_;
};

}  // namespace ridgeline::serve
