#include "ridgeline/prof/ceilings.h"

#include <fmt/chrono.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>

#include "ridgeline/core/buffer.h"
#include "ridgeline/core/file.h"
#include "ridgeline/prof/peak_kernels.h"

namespace ridgeline::prof {
namespace {

constexpr int kVersion = 3;
// Many short tries: on a busy machine all threads run together for a few milliseconds only.
constexpr int kTries = 30;
constexpr double kTrySeconds = 0.004;
constexpr double kMostSeconds = 0.4;  // for all tries of one figure, however busy the machine

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

// One short try proves a count too small; a long one proves nothing, neighbours may have had the
// processor meanwhile.
double best_rate(const std::function<double(int64_t)>& seconds_of, int tries, double try_seconds) {
  for (int64_t count = 1;; count *= 2) {
    double best = seconds_of(count), spent = best;
    for (int i = 1; i < tries && best >= try_seconds / 2 && spent < kMostSeconds; ++i) {
      const double seconds = seconds_of(count);
      best = std::min(best, seconds);
      spent += seconds;
    }
    if (best >= try_seconds / 2 || count >= (int64_t{1} << 40)) return double(count) / best;
  }
}

namespace {

double best_rate_of(const std::function<void(int64_t)>& work, int tries,
                    double try_seconds = kTrySeconds) {
  return best_rate([&](int64_t count) { return seconds_of([&] { work(count); }); }, tries,
                   try_seconds);
}

template <typename T>
double measure_flops(ThreadPool& pool, double (*rounds)(int64_t, T*), int tries = kTries) {
  std::vector<Buffer> sinks;
  for (int i = 0; i < pool.size(); ++i) sinks.emplace_back(sizeof(T));
  double flops_per_round = 0;
  const double rate = best_rate_of(
      [&](int64_t count) {
        pool.run([&](int thread) {
          T* sink = reinterpret_cast<T*>(sinks[size_t(thread)].data());
          const double flops = rounds(count * 1024, sink);
          if (thread == 0) flops_per_round = flops;
        });
      },
      tries);
  return rate * 1024 * flops_per_round * pool.size();
}

// Each thread copies its own pair of buffers; together they take `bytes`.
double measure_copy(ThreadPool& pool, double bytes) {
  const size_t half = align_up(size_t(bytes / 2 / pool.size()), 4096);
  std::vector<Buffer> from, to;
  for (int i = 0; i < pool.size(); ++i) {
    from.emplace_back(half);
    to.emplace_back(half);
  }
  const double rate = best_rate_of(
      [&](int64_t count) {
        pool.run([&](int thread) {
          for (int64_t i = 0; i < count; ++i) {
            copy_bytes(to[size_t(thread)].data(), from[size_t(thread)].data(), half);
          }
        });
      },
      kTries);
  return rate * 2 * double(half) * pool.size();
}

// Where a thread is waited for, a single neighbour is in the way of all: still shorter tries.
double measure_region(ThreadPool& pool, int tries = kTries) {
  if (pool.size() == 1) return 0;
  constexpr int kShorter = 20;
  const double rate = best_rate_of(
      [&](int64_t count) {
        for (int64_t i = 0; i < count; ++i) pool.run([](int) {});
      },
      kShorter * tries, kTrySeconds / kShorter);
  return 1 / rate;
}

// Sizes a core: in the first-level cache, the second, the third, and beyond any.
constexpr double kSizesPerThread[] = {16e3, 64e3, 256e3, 768e3, 2e6, 8e6};
constexpr double kMemorySize = 256e6;

// Neighbours only ever slow a measurement down, so a rate above the kept one proves that one wrong.
bool too_low(const Ceilings& kept, ThreadPool& pool) {
  constexpr double kNoise = 1.05, kRegionNoise = 1.5;
  constexpr int kGlance = 5;  // tries: about 60 ms in all
  return measure_flops<float>(pool, fma_rounds_fp32, kGlance) > kNoise * kept.fp32_flops ||
         measure_flops<double>(pool, fma_rounds_fp64, kGlance) > kNoise * kept.fp64_flops ||
         kRegionNoise * measure_region(pool, kGlance) < kept.region_seconds;
}

void raise_to(Ceilings& ceilings, const Ceilings& other) {
  ceilings.fp32_flops = std::max(ceilings.fp32_flops, other.fp32_flops);
  ceilings.fp64_flops = std::max(ceilings.fp64_flops, other.fp64_flops);
  // Of times the shorter is the truer.
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

double Ceilings::flops(Precision precision) const {
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

Ceilings measure_ceilings(ThreadPool& pool, const std::string& machine) {
  Ceilings ceilings;
  ceilings.fp32_flops = measure_flops<float>(pool, fma_rounds_fp32);
  ceilings.fp64_flops = measure_flops<double>(pool, fma_rounds_fp64);
  for (const double size : kSizesPerThread) {
    const double bytes = size * pool.size();
    if (bytes < kMemorySize / 2) ceilings.bandwidths.push_back({bytes, measure_copy(pool, bytes)});
  }
  ceilings.bandwidths.push_back({kMemorySize, measure_copy(pool, kMemorySize)});
  // A cache is no slower than what lies behind it: where it seems so, neighbours were in the way.
  for (size_t i = ceilings.bandwidths.size() - 1; i-- > 0;) {
    Bandwidth& nearer = ceilings.bandwidths[i];
    nearer.rate = std::max(nearer.rate, ceilings.bandwidths[i + 1].rate);
  }
  ceilings.region_seconds = measure_region(pool);
  ceilings.threads = pool.size();
  ceilings.machine = machine;
  ceilings.date = today();
  return ceilings;
}

std::optional<Ceilings> read_ceilings(const std::filesystem::path& file,
                                      const std::string& machine) {
  std::ifstream in(file);
  if (!in) return std::nullopt;
  try {
    const nlohmann::json json = nlohmann::json::parse(in);
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
    bool sane = ceilings.fp32_flops > 0 && ceilings.fp64_flops > 0 && !ceilings.bandwidths.empty();
    for (const Bandwidth& entry : ceilings.bandwidths) sane = sane && entry.rate > 0;
    if (sane) return ceilings;
  } catch (const nlohmann::json::exception&) {
    // Damaged: as good as absent.
  }
  return std::nullopt;
}

void write_ceilings(const std::filesystem::path& file, const Ceilings& ceilings) {
  nlohmann::json json = {{"version", kVersion},
                         {"machine", ceilings.machine},
                         {"date", ceilings.date},
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
  const std::string text = json.dump(2) + "\n";
  write_file_atomic(file, std::as_bytes(std::span(text)));
}

void keep_ceilings(const std::filesystem::path& file, const Ceilings& ceilings) {
  try {
    std::filesystem::create_directories(file.parent_path());
    write_ceilings(file, ceilings);
  } catch (const std::exception&) {
    // The next run measures again.
  }
}

Ceilings ceilings_of(ThreadPool& pool, const std::string& machine,
                     const std::filesystem::path& file, bool again) {
  const auto kept = again ? std::nullopt : read_ceilings(file, machine);
  if (kept && !too_low(*kept, pool)) return *kept;
  Ceilings measured = measure_ceilings(pool, machine);
  if (kept) raise_to(measured, *kept);
  keep_ceilings(file, measured);
  return measured;
}

}  // namespace ridgeline::prof
