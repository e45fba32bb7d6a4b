#include "ridgeline/serve/metrics.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>

namespace ridgeline::serve {
namespace {

constexpr double kSeconds[] = {1e-5,   2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2,
                               2.5e-2, 5e-2,   0.1,  0.25, 0.5,    1,    2.5,  5,      10};
constexpr double kSamples[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096};

void head(std::string& to, std::string_view name, std::string_view type, std::string_view help) {
  fmt::format_to(std::back_inserter(to), "# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

template <typename T>
void plain(std::string& to, std::string_view name, std::string_view type, std::string_view help,
           T value) {
  head(to, name, type, help);
  fmt::format_to(std::back_inserter(to), "{} {}\n", name, value);
}

uint64_t resident_bytes() {
  uint64_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * uint64_t(::sysconf(_SC_PAGESIZE));
}

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return double(time.tv_sec) + 1e-6 * double(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace

Histogram::Histogram(std::span<const double> bounds)
    : bounds_(bounds), counts_(bounds.size() + 1) {}

std::span<const double> Histogram::seconds() { return kSeconds; }
std::span<const double> Histogram::samples() { return kSamples; }

void Histogram::observe(double value) {
  const auto place = std::ranges::lower_bound(bounds_, value) - bounds_.begin();
  counts_[size_t(place)].fetch_add(1, std::memory_order_relaxed);
  sum_.fetch_add(value, std::memory_order_relaxed);
}

void Histogram::write(std::string_view name, std::string_view labels, std::string& to) const {
  auto out = std::back_inserter(to);
  uint64_t total = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    total += counts_[i].load(std::memory_order_relaxed);
    const std::string bound = i < bounds_.size() ? fmt::format("{}", bounds_[i]) : "+Inf";
    fmt::format_to(out, "{}_bucket{{{},le=\"{}\"}} {}\n", name, labels, bound, total);
  }
  fmt::format_to(out, "{}_sum{{{}}} {}\n", name, labels, sum_.load(std::memory_order_relaxed));
  fmt::format_to(out, "{}_count{{{}}} {}\n", name, labels, total);
}

void Metrics::count_status(int status) {
  if (status < 0 || size_t(status) >= statuses_.size()) return;
  statuses_[size_t(status)].fetch_add(1, std::memory_order_relaxed);
}

std::shared_ptr<ModelMetrics> Metrics::of_model(const std::string& name,
                                                const std::string& version) {
  const std::scoped_lock lock(mutex_);
  auto& found = models_[{name, version}];
  if (!found) found = std::make_shared<ModelMetrics>();
  return found;
}

std::shared_ptr<std::atomic<double>> Metrics::busy_seconds(const std::string& device) {
  const std::scoped_lock lock(mutex_);
  auto& found = devices_[device];
  if (!found) found = std::make_shared<std::atomic<double>>(0.0);
  return found;
}

std::string Metrics::to_text() const {
  std::string text;
  auto out = std::back_inserter(text);
  head(text, "ridgeline_http_responses_total", "counter", "Responses by status code");
  for (size_t status = 0; status < statuses_.size(); ++status) {
    if (const uint64_t count = statuses_[status].load()) {
      fmt::format_to(out, "ridgeline_http_responses_total{{code=\"{}\"}} {}\n", status, count);
    }
  }
  plain(text, "ridgeline_connections", "gauge", "Open connections", connections.load());
  plain(text, "ridgeline_connections_accepted_total", "counter", "Connections accepted",
        connections_accepted.load());
  plain(text, "ridgeline_connections_refused_total", "counter",
        "Connections closed at once because too many are open", connections_refused.load());
  plain(text, "ridgeline_connections_timed_out_total", "counter",
        "Connections closed in the middle of a request or response", timed_out.load());
  plain(text, "ridgeline_received_bytes_total", "counter", "Bytes of requests", bytes_in.load());
  plain(text, "ridgeline_sent_bytes_total", "counter", "Bytes of responses", bytes_out.load());
  plain(text, "process_resident_memory_bytes", "gauge", "Resident memory", resident_bytes());
  plain(text, "process_cpu_seconds_total", "counter", "CPU time of all threads", cpu_seconds());

  const std::scoped_lock lock(mutex_);
  using Read = std::function<void(const ModelMetrics&, const std::string& labels)>;
  const auto each = [&](std::string_view name, std::string_view type, std::string_view help,
                        const Read& read) {
    head(text, name, type, help);
    for (const auto& [key, model] : models_) {
      read(*model, fmt::format("model=\"{}\",version=\"{}\"", key.first, key.second));
    }
  };
  const auto number = [&](std::string_view name, std::string_view type, std::string_view help,
                          auto member) {
    each(name, type, help, [&](const ModelMetrics& model, const std::string& labels) {
      fmt::format_to(out, "{}{{{}}} {}\n", name, labels, (model.*member).load());
    });
  };
  const auto histogram = [&](std::string_view name, std::string_view help, auto member) {
    each(name, "histogram", help, [&](const ModelMetrics& model, const std::string& labels) {
      (model.*member).write(name, labels, text);
    });
  };
  constexpr std::string_view kRequests = "ridgeline_requests_total";
  each(kRequests, "counter", "Requests to infer by result",
       [&](const ModelMetrics& model, const std::string& labels) {
         const std::pair<std::string_view, uint64_t> results[] = {{"ok", model.good},
                                                                  {"refused", model.refused},
                                                                  {"failed", model.failed},
                                                                  {"queue_full", model.turned_away},
                                                                  {"abandoned", model.abandoned},
                                                                  {"expired", model.expired}};
         for (const auto& [result, count] : results) {
           fmt::format_to(out, "{}{{{},result=\"{}\"}} {}\n", kRequests, labels, result, count);
         }
       });
  number("ridgeline_samples_total", "counter", "Samples computed", &ModelMetrics::samples);
  number("ridgeline_batches_total", "counter", "Launches of a plan", &ModelMetrics::batches);
  number("ridgeline_model_loads_total", "counter", "Loads that succeeded", &ModelMetrics::loads);
  number("ridgeline_model_load_failures_total", "counter", "Loads that failed",
         &ModelMetrics::failed_loads);
  number("ridgeline_queue_requests", "gauge", "Requests that wait for a worker",
         &ModelMetrics::waiting);
  number("ridgeline_queue_samples", "gauge", "Samples that wait for a worker",
         &ModelMetrics::waiting_samples);
  each("ridgeline_fraction_of_limit", "gauge",
       "Time that the launches would take at the device's measured limit, by the time they took; 0 "
       "where `ridgeline info --measure` has not measured the device",
       [&](const ModelMetrics& model, const std::string& labels) {
         const double taken = model.compute_seconds.sum();
         fmt::format_to(out, "ridgeline_fraction_of_limit{{{}}} {}\n", labels,
                        taken > 0 ? model.limit_seconds.load() / taken : 0.0);
       });
  head(text, "ridgeline_device_busy_seconds_total", "counter",
       "Seconds that models have computed, by device, of all instances");
  for (const auto& [device, seconds] : devices_) {
    fmt::format_to(out, "ridgeline_device_busy_seconds_total{{device=\"{}\"}} {}\n", device,
                   seconds->load());
  }
  histogram("ridgeline_batch_samples", "Samples of a launch", &ModelMetrics::batch_samples);
  histogram("ridgeline_request_seconds", "From a request's last byte to its response",
            &ModelMetrics::request_seconds);
  histogram("ridgeline_queue_seconds", "Waiting for a worker", &ModelMetrics::queue_seconds);
  histogram("ridgeline_compute_seconds", "Computing a launch", &ModelMetrics::compute_seconds);
  return text;
}

}  // namespace ridgeline::serve
