#include "ridgeline/prof/ceilings.h"

#include <fmt/chrono.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>

#include "ridgeline/core/bf16_unit.h"
#include "ridgeline/core/buffer.h"
#include "ridgeline/core/cache_file.h"
#include "ridgeline/core/host_memory.h"
#include "ridgeline/core/json.h"
#include "ridgeline/prof/peak_kernels.h"

namespace ridgeline::prof {
namespace {

constexpr int kVersion = 5;
// Many short tries: on a busy machine all threads run in parallel only for a few milliseconds.
constexpr int kTries = 30;
constexpr double kTrySeconds = 0.004;
constexpr double kGlanceSeconds = 0.1;  // to check whether kept values are too low

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// A deadline, and shares of the time until then.
class Deadline {
 public:
  explicit Deadline(double seconds) : seconds_(seconds) {}
  double left() const {
    const auto gone = std::chrono::steady_clock::now() - begin_;
    return seconds_ - std::chrono::duration<double>(gone).count();
  }
  bool over() const { return left() <= 0; }
  // Returns the time for one of `figures` remaining measurements.
  double share(size_t figures) const { return left() / double(std::max<size_t>(1, figures)); }

 private:
  double seconds_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace

// One short try proves a count too small; a long one proves nothing, because other processes may
// have used the processor.
Rate best_rate(const std::function<double(int64_t)>& seconds_of, int tries, double try_seconds,
               double most_seconds, int64_t first) {
  constexpr double kAlike = 1.1;  // tries that differ by less agree
  constexpr size_t kAgreeing = 3;
  double spent = 0;
  for (int64_t count = std::max<int64_t>(1, first);; count *= 2) {
    std::vector<double> taken;
    double best = std::numeric_limits<double>::infinity();
    const bool last = count >= (int64_t{1} << 40);
    while (int(taken.size()) < tries && (last || best >= try_seconds / 2)) {
      if (!taken.empty() && spent >= most_seconds) return {double(count) / best, false};
      taken.push_back(seconds_of(count));
      best = std::min(best, taken.back());
      spent += taken.back();
    }
    if (best < try_seconds / 2 && !last) continue;
    const auto alike = std::ranges::count_if(taken, [&](double t) { return t <= kAlike * best; });
    return {double(count) / best, size_t(alike) >= std::min(kAgreeing, taken.size())};
  }
}

namespace {

Rate best_rate_of(const std::function<void(int64_t)>& work, int tries, double try_seconds,
                  double most_seconds, int64_t first = 1) {
  return best_rate([&](int64_t count) { return seconds_of([&] { work(count); }); }, tries,
                   try_seconds, most_seconds, first);
}

// Returns the units per second of each thread while all work: work(thread, count). The calling
// thread alone finds how long a count takes, in an undisturbed moment; on a busy machine waiting
// for all threads would make every count seem large enough. If the tries of all do not agree, each
// thread is assumed to be as fast as one alone.
Rate rate_of_each(ThreadPool& pool, const std::function<void(int, int64_t)>& work, int tries,
                  double most_seconds) {
  const Deadline deadline(most_seconds);
  const auto alone = [&](int64_t count) { work(0, count); };
  if (pool.size() == 1) return best_rate_of(alone, tries, kTrySeconds, most_seconds);
  constexpr int kTriesAlone = 3;
  const Rate one = best_rate_of(alone, kTriesAlone, kTrySeconds / 8, most_seconds / 4);
  const auto first = std::max<int64_t>(1, int64_t(one.value * kTrySeconds / 2));
  const auto together = [&](int64_t count) { pool.run([&](int thread) { work(thread, count); }); };
  Rate all = best_rate_of(together, tries, kTrySeconds, deadline.left(),
                          int64_t(std::bit_floor(uint64_t(first))));
  if (!all.certain) all.value = std::max(all.value, one.value);
  return all;
}

template <typename T>
Rate measure_flops(ThreadPool& pool, double (*rounds)(int64_t, T*), double most_seconds,
                   int tries = kTries) {
  std::vector<Buffer> sinks;
  for (int i = 0; i < pool.size(); ++i) sinks.emplace_back(sizeof(T));
  double flops_per_round = 0;
  const auto work = [&](int thread, int64_t count) {
    T* sink = reinterpret_cast<T*>(sinks[size_t(thread)].data());
    const double flops = rounds(count * 1024, sink);
    if (thread == 0) flops_per_round = flops;
  };
  const Rate rate = rate_of_each(pool, work, tries, most_seconds);
  return {rate.value * 1024 * flops_per_round * pool.size(), rate.certain};
}

// A buffer per thread, which that thread touches first as far as time allows: filling large buffers
// may take a busy machine longer than all the rest.
class ThreadBuffers {
 public:
  ThreadBuffers(ThreadPool& pool, size_t bytes, double most_seconds) {
    const Deadline deadline(most_seconds);
    for (int i = 0; i < pool.size(); ++i) {
      data_.emplace_back(
          static_cast<std::byte*>(std::aligned_alloc(kPage, align_up(bytes, kPage))));
      if (data_.back() == nullptr) return;  // a memory limit: nothing is measured
    }
    std::vector<size_t> touched(data_.size());
    pool.run([&](int thread) {
      constexpr size_t kSlice = size_t{1} << 20;
      size_t& done = touched[size_t(thread)];
      while (done < bytes && (done == 0 || !deadline.over())) {
        const size_t more = std::min(kSlice, bytes - done);
        std::memset(data_[size_t(thread)].get() + done, 0, more);
        done += more;
      }
    });
    bytes_ = *std::ranges::min_element(touched) / kPage * kPage;
  }

  size_t bytes() const { return bytes_; }  // of each thread; 0: none
  std::byte* operator[](int thread) const { return data_[size_t(thread)].get(); }

 private:
  static constexpr size_t kPage = 4096;
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };
  std::vector<std::unique_ptr<std::byte, Free>> data_;
  size_t bytes_ = 0;
};

// Each thread copies one half of its own buffer to the other; together they take `bytes`. The rate
// is 0 if there is no memory for that.
Rate measure_copy(ThreadPool& pool, double bytes, double most_seconds) {
  const Deadline deadline(most_seconds);
  const size_t half = align_up(size_t(bytes / 2 / pool.size()), 4096);
  // Memory beyond the control group's limit must not be touched.
  const size_t room = free_host_memory() / 4 / size_t(pool.size());
  const ThreadBuffers buffers(pool, std::min(2 * half, room), most_seconds / 2);
  const size_t part = buffers.bytes() / 2 / 64 * 64;
  if (part == 0) return {0, false};
  const auto work = [&](int thread, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      copy_bytes(buffers[thread] + part, buffers[thread], part);
    }
  };
  const Rate rate = rate_of_each(pool, work, kTries, deadline.left());
  return {rate.value * 2 * double(part) * pool.size(), rate.certain && part == half};
}

// If threads wait for each other, one other process delays all, so the tries are even shorter.
Rate measure_region(ThreadPool& pool, double most_seconds, int tries = kTries) {
  if (pool.size() == 1) return {0, true};
  constexpr int kShorter = 20;
  const Rate rate = best_rate_of(
      [&](int64_t count) {
        for (int64_t i = 0; i < count; ++i) pool.run([](int) {});
      },
      kShorter * tries, kTrySeconds / kShorter, most_seconds);
  return {1 / rate.value, rate.certain};
}

// Bytes per core: within the first-level cache, the second, the third, and beyond all.
constexpr double kSizesPerThread[] = {16e3, 64e3, 256e3, 768e3, 2e6, 8e6};
constexpr double kMemorySize = 256e6;

// Other processes can only slow a measurement down, so a rate above the kept one proves that one
// wrong.
bool too_low(const Ceilings& kept, ThreadPool& pool) {
  constexpr double kNoise = 1.05, kRegionNoise = 1.5;
  constexpr int kGlance = 5;  // tries
  const Deadline deadline(kGlanceSeconds);
  const auto fp32 = measure_flops<float>(pool, fma_rounds_fp32, deadline.share(3), kGlance);
  if (fp32.value > kNoise * kept.fp32_flops) return true;
  const auto fp64 = measure_flops<double>(pool, fma_rounds_fp64, deadline.share(2), kGlance);
  if (fp64.value > kNoise * kept.fp64_flops) return true;
  return kRegionNoise * measure_region(pool, deadline.share(1), kGlance).value <
         kept.region_seconds;
}

void raise_to(Ceilings& ceilings, const Ceilings& other) {
  ceilings.fp32_flops = std::max(ceilings.fp32_flops, other.fp32_flops);
  ceilings.fp64_flops = std::max(ceilings.fp64_flops, other.fp64_flops);
  ceilings.half_flops = std::max(ceilings.half_flops, other.half_flops);
  // The shorter of two times is closer to the truth.
  ceilings.region_seconds = std::min(ceilings.region_seconds, other.region_seconds);
  for (size_t i = 0; i < std::min(ceilings.bandwidths.size(), other.bandwidths.size()); ++i) {
    Bandwidth& mine = ceilings.bandwidths[i];
    if (mine.bytes == other.bandwidths[i].bytes) {
      mine.rate = std::max(mine.rate, other.bandwidths[i].rate);
    }
  }
}

}  // namespace

std::string today() { return fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr))); }

std::string Ceilings::when() const {
  return certain ? date : date + " on a busy machine: uncertain";
}

double Ceilings::flops(Precision precision) const {
  // On a CPU, fp32 numbers may be split into bf16 numbers; the fewest products that keep their
  // precision are three, if one factor is already bf16. There is no unit for fp16.
  constexpr int kFewestProducts = 3;
  if (threads > 0 && precision != Precision::fp64) {
    return std::max(fp32_flops,
                    precision == Precision::bf16 ? half_flops : half_flops / kFewestProducts);
  }
  if (precision == Precision::tf32 && tf32_flops > 0) return tf32_flops;
  if (is_half(precision) && half_flops > 0) return half_flops;
  if (precision == Precision::fp32x3 && tf32_flops > 0) return tf32_flops / 3;
  return precision == Precision::fp64 ? fp64_flops : fp32_flops;
}

double Ceilings::bandwidth(double working_bytes) const {
  for (const Bandwidth& measured : bandwidths) {
    if (working_bytes <= measured.bytes) return measured.rate;
  }
  return memory_bandwidth();
}

double Ceilings::memory_bandwidth() const {
  return bandwidths.empty() ? 0 : bandwidths.back().rate;
}

Ceilings measure_ceilings(ThreadPool& pool, const std::string& machine, const Measuring& measuring,
                          double most_seconds) {
  const Deadline deadline(most_seconds);
  Ceilings ceilings;
  const bool has_bf16 = bf16_unit() != Bf16Unit::none;
  size_t figures = 4 + size_t(has_bf16) + std::size(kSizesPerThread);
  const auto measured = [&](const std::function<Rate(double)>& measure) {
    if (measuring) measuring();
    const double share = deadline.share(figures--);
    const Rate rate = share > 0 ? measure(share) : Rate{};
    ceilings.certain = ceilings.certain && rate.certain;
    return rate.value;
  };
  // Measured in order of importance: values without time left are estimated from the others.
  ceilings.fp32_flops =
      measured([&](double most) { return measure_flops<float>(pool, fma_rounds_fp32, most); });
  if (has_bf16) {
    ceilings.half_flops =
        measured([&](double most) { return measure_flops<float>(pool, bf16_rounds, most); });
  }
  const double memory =
      measured([&](double most) { return measure_copy(pool, kMemorySize, most); });
  ceilings.fp64_flops =
      measured([&](double most) { return measure_flops<double>(pool, fma_rounds_fp64, most); });
  if (ceilings.fp64_flops <= 0) ceilings.fp64_flops = ceilings.fp32_flops / 2;
  ceilings.region_seconds = measured([&](double most) { return measure_region(pool, most); });
  for (const double size : kSizesPerThread) {
    const double bytes = size * pool.size();
    if (bytes >= kMemorySize / 2) continue;
    const double rate = measured([&](double most) { return measure_copy(pool, bytes, most); });
    ceilings.bandwidths.push_back({bytes, rate});
  }
  ceilings.bandwidths.push_back({kMemorySize, memory});
  // A cache is never slower than the memory behind it: if it seems so, other processes disturbed
  // it. If memory was not measured, for lack of memory or time, it is assumed as fast as the last
  // cache.
  double known = 1e9;
  for (const Bandwidth& each : ceilings.bandwidths) known = each.rate > 0 ? each.rate : known;
  if (ceilings.bandwidths.back().rate <= 0) ceilings.bandwidths.back().rate = known;
  for (size_t i = ceilings.bandwidths.size() - 1; i-- > 0;) {
    Bandwidth& nearer = ceilings.bandwidths[i];
    nearer.rate = std::max(nearer.rate, ceilings.bandwidths[i + 1].rate);
  }
  ceilings.threads = pool.size();
  ceilings.machine = machine;
  ceilings.date = today();
  return ceilings;
}

std::optional<Ceilings> read_ceilings(const std::filesystem::path& file,
                                      const std::string& machine) {
  try {
    const nlohmann::json json = parse_json(read_cache_file(file).value_or(""));
    if (json.at("version") != kVersion || json.at("machine") != machine) return std::nullopt;
    Ceilings ceilings;
    ceilings.fp32_flops = json.at("fp32_flops");
    ceilings.fp64_flops = json.at("fp64_flops");
    ceilings.tf32_flops = json.value("tf32_flops", 0.0);
    ceilings.half_flops = json.value("half_flops", 0.0);
    for (const auto& entry : json.at("bandwidths")) {
      ceilings.bandwidths.push_back({entry.at("bytes"), entry.at("rate")});
    }
    ceilings.launch_seconds = json.at("launch_seconds");
    ceilings.region_seconds = json.at("region_seconds");
    ceilings.host_bandwidth = json.at("host_bandwidth");
    ceilings.network_bandwidth = json.at("network_bandwidth");
    ceilings.threads = json.at("threads");
    ceilings.machine = machine;
    ceilings.date = json.at("date");
    ceilings.certain = json.value("certain", true);
    bool sane = ceilings.fp32_flops > 0 && ceilings.fp64_flops > 0 && !ceilings.bandwidths.empty();
    for (const Bandwidth& entry : ceilings.bandwidths) sane = sane && entry.rate > 0;
    if (sane) return ceilings;
  } catch (const nlohmann::json::exception&) {
    // A damaged file is treated as absent.
  }
  return std::nullopt;
}

void keep_ceilings(const std::filesystem::path& file, const Ceilings& ceilings) {
  nlohmann::json json = {{"version", kVersion},
                         {"machine", ceilings.machine},
                         {"date", ceilings.date},
                         {"certain", ceilings.certain},
                         {"threads", ceilings.threads},
                         {"fp32_flops", ceilings.fp32_flops},
                         {"fp64_flops", ceilings.fp64_flops},
                         {"tf32_flops", ceilings.tf32_flops},
                         {"half_flops", ceilings.half_flops},
                         {"bandwidths", nlohmann::json::array()},
                         {"launch_seconds", ceilings.launch_seconds},
                         {"region_seconds", ceilings.region_seconds},
                         {"host_bandwidth", ceilings.host_bandwidth},
                         {"network_bandwidth", ceilings.network_bandwidth}};
  for (const Bandwidth& entry : ceilings.bandwidths) {
    json["bandwidths"].push_back({{"bytes", entry.bytes}, {"rate", entry.rate}});
  }
  write_cache_file(file, dump_json(json, 2) + "\n");
}

namespace {

// Uncertain values that are younger are not measured again: on a machine that stays busy, or whose
// speed varies, each start would otherwise take a second longer.
constexpr auto kUncertainFor = std::chrono::minutes(10);

bool is_recent(const std::filesystem::path& file) {
  std::error_code failed;
  const auto age = std::filesystem::file_time_type::clock::now() -
                   std::filesystem::last_write_time(file, failed);
  return !failed && age < kUncertainFor;
}

}  // namespace

Ceilings ceilings_of(ThreadPool& pool, const std::string& machine,
                     const std::filesystem::path& file, bool again, const Measuring& measuring) {
  const auto kept = again ? std::nullopt : read_ceilings(file, machine);
  if (kept && (kept->certain || is_recent(file)) && !too_low(*kept, pool)) return *kept;
  Ceilings measured = measure_ceilings(pool, machine, measuring);
  // A value estimated on a busy machine may also be too high.
  if (kept && (kept->certain || !measured.certain)) raise_to(measured, *kept);
  keep_ceilings(file, measured);
  return measured;
}

}  // namespace ridgeline::prof
