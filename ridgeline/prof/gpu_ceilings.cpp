#include "ridgeline/prof/gpu_ceilings.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "ridgeline/plan/stopwatch.h"

namespace ridgeline::prof {
namespace {

// 1024 tiles of 128 x 128: enough to fill any GPU, small enough to be timed in milliseconds.
constexpr int64_t kExtent = 4096;
// Both buffers of a copy together: within the L2 cache of a large GPU, and far beyond it.
constexpr double kSizes[] = {32e6, 1e9};

double product_rate(Runtime& runtime, const KernelTable& kernels, Precision precision) {
  const DType dtype = storage(precision);
  const Shape square{kExtent, kExtent};
  Program program;
  program.precision = precision;
  // Parameters are timed on random numbers, inputs on zeros, which a GPU multiplies faster.
  const Value x = program.add_value("x", dtype, square, Role::param);
  const Value w = program.add_value("w", dtype, square, Role::param);
  const Value y = program.add_value("y", dtype, square, Role::output);
  program.add(Linear{x, w, Value{}, y});
  // The kernels that are likely to be best come first in the table.
  constexpr double kMostSeconds = 0.2, kKernelSeconds = 0.005;
  const auto begin = std::chrono::steady_clock::now();
  DeviceStopwatch stopwatch(program, runtime, kKernelSeconds, nullptr);
  double best = INFINITY;
  for (const bool fallback : {false, true}) {
    for (const Kernel& kernel : kernels) {
      const std::chrono::duration<double> gone = std::chrono::steady_clock::now() - begin;
      if (best < INFINITY && (fallback || gone.count() > kMostSeconds)) break;
      if (!kernel.covers || kernel.traits.fallback != fallback) continue;
      const Cover cover = offer(kernel, RemainingOps{program, 0, runtime});
      if (cover.ops != 1 || !cover.reads.empty() || !cover.writes.empty()) continue;
      best = std::min(best, stopwatch.kernel({&kernel, 0, 1, cover, 0, -1, {}, {}, 0}));
    }
  }
  return program.flops() / best;
}

double copy_rate(Runtime& runtime, double bytes) {
  const size_t half = size_t(bytes / 2);
  const DeviceBuffer from(runtime, half), to(runtime, half);
  constexpr double kBudget = 0.05;
  const double seconds = runtime.time([&] { runtime.copy(to.data(), from.data(), half); }, kBudget);
  return bytes / seconds;
}

// Times the shortest launch: a copy of nothing.
double launch_seconds(Runtime& runtime) {
  return runtime.time([&] { runtime.copy(nullptr, nullptr, 0); }, 0.05);
}

}  // namespace

Ceilings measure_gpu_ceilings(Runtime& runtime, const KernelTable& kernels) {
  Ceilings ceilings;
  ceilings.fp32_flops = product_rate(runtime, kernels, Precision::fp32);
  ceilings.tf32_flops = product_rate(runtime, kernels, Precision::tf32);
  ceilings.fp64_flops = product_rate(runtime, kernels, Precision::fp64);
  ceilings.half_flops = product_rate(runtime, kernels, Precision::bf16);
  for (const double bytes : kSizes) {
    ceilings.bandwidths.push_back({bytes, copy_rate(runtime, bytes)});
  }
  // A cache is never slower than the memory behind it, whatever the overhead of a short copy.
  Bandwidth& cache = ceilings.bandwidths.front();
  cache.rate = std::max(cache.rate, ceilings.memory_bandwidth());
  ceilings.launch_seconds = launch_seconds(runtime);
  // Data that passes through the host is copied there and back: half of it each way.
  ceilings.host_bandwidth =
      2 / (1 / runtime.host_copy_rate(true) + 1 / runtime.host_copy_rate(false));
  ceilings.machine = runtime.fingerprint();
  ceilings.date = today();
  return ceilings;
}

Ceilings gpu_ceilings_of(Runtime& runtime, const KernelTable& kernels,
                         const std::filesystem::path& file, bool again) {
  if (!again) {
    const auto kept = read_ceilings(file, runtime.fingerprint());
    if (kept && kept->half_flops > 0) return *kept;
  }
  const Ceilings measured = measure_gpu_ceilings(runtime, kernels);
  keep_ceilings(file, measured);
  return measured;
}

}  // namespace ridgeline::prof
