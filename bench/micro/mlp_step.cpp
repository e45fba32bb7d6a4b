// Times training steps of multilayer perceptrons against the machine's measured FMA ceiling.
// usage: mlp_step [threads] [seconds per workload]
#include "ridgeline/cpu/simd/mlp_step.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "ridgeline/core/buffer.h"
#include "ridgeline/core/philox.h"
#include "ridgeline/core/thread_pool.h"
#include "ridgeline/prof/ceilings.h"

namespace {

using namespace ridgeline;
namespace simd = cpu::simd;
using Clock = std::chrono::steady_clock;

struct Workload {
  const char* name;
  std::vector<int64_t> sizes;
  int64_t batch;
  simd::SimdActivation act;
};

// Forward and weight gradient of every layer, input gradient of all but the first.
double flops_of(const Workload& w) {
  double flops = 0;
  for (size_t l = 0; l + 1 < w.sizes.size(); ++l) {
    flops += (l == 0 ? 4.0 : 6.0) * double(w.batch * w.sizes[l] * w.sizes[l + 1]);
  }
  return flops;
}

template <typename T>
void run(const Workload& work, ThreadPool& pool, double seconds, double ceiling) {
  constexpr int64_t kSamples = 8192;
  std::vector<uint8_t> set(size_t(kSamples * work.sizes[0]) + 64);
  std::vector<int32_t> labels(kSamples), order(kSamples);
  uint32_t random = 12345;
  const auto next = [&random] { return (random = random * 1664525u + 1013904223u) >> 8; };
  for (uint8_t& byte : set) byte = uint8_t(next());
  for (int32_t& label : labels) label = int32_t(next() % uint32_t(work.sizes.back()));
  for (int32_t& sample : order) sample = int32_t(next() % kSamples);
  std::vector<HostTensor> weights;
  std::vector<simd::MlpLayer<T>> layers;
  const auto add = [&](int64_t rows, int64_t columns, double range) {
    weights.emplace_back(dtype_of<T>(), Shape{rows, columns});
    for (T& v : weights.back().span<T>()) v = T((double(next()) / (1 << 24) * 2 - 1) * range);
    return weights.back().span<T>().data();
  };
  for (size_t l = 0; l + 1 < work.sizes.size(); ++l) {
    const double range = 1 / std::sqrt(double(work.sizes[l]));
    T* w = add(work.sizes[l + 1], work.sizes[l], range);
    T* b = add(1, work.sizes[l + 1], range);
    const bool last = l + 2 == work.sizes.size();
    const simd::SimdActivation activation = last ? simd::SimdActivation() : work.act;
    layers.push_back({work.sizes[l], work.sizes[l + 1], activation, w, b});
  }
  simd::MlpStep<T> step(layers, work.batch, pool.size());
  Buffer workspace(step.workspace_bytes());
  step.bind(workspace.data());
  const simd::MlpIteration<T> iteration{.sgd = {T(0.01)}};
  int64_t position = 0;
  double loss = 0;
  const auto once = [&] {
    if (position + work.batch > kSamples) position = 0;
    const simd::MlpBatch<T> batch{set.data(), labels.data(), order.data() + position, T(1.0 / 255),
                                  0};
    position += work.batch;
    loss = step.run(pool, batch, work.batch, 1.0 / double(work.batch), iteration).loss /
           double(work.batch);
  };
  for (int i = 0; i < 5; ++i) once();
  std::vector<double> times;
  const auto begin = Clock::now();
  for (auto last = begin;
       times.size() < 5 || last - begin < std::chrono::duration<double>(seconds);) {
    once();
    const auto now = Clock::now();
    times.push_back(std::chrono::duration<double>(now - last).count());
    last = now;
  }
  std::sort(times.begin(), times.end());
  const double median = times[times.size() / 2], flops = flops_of(work);
  std::printf("%-28s %10.1f %10.1f %8.1f %6.0f%%   loss %.4f\n", work.name, median * 1e6,
              times[0] * 1e6, flops / median * 1e-9, 100 * flops / median / ceiling, loss);
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = resolve_threads(argc > 1 ? std::atoi(argv[1]) : 0);
  const double seconds = argc > 2 ? std::atof(argv[2]) : 1.0;
  ThreadPool pool(threads);
  const prof::Ceilings ceilings = prof::measure_ceilings(pool, "");
  const double ceiling32 = ceilings.fp32_flops, ceiling64 = ceilings.fp64_flops;
  std::printf("%s, %d threads, FMA ceiling %.1f GFLOP/s fp32, %.1f fp64\n", simd::instruction_set(),
              threads, ceiling32 * 1e-9, ceiling64 * 1e-9);
  std::printf("%-28s %10s %10s %8s %7s\n", "fp32 training step", "median us", "least us", "GFLOP/s",
              "ceiling");
  const Workload workloads[] = {
      {"784-128-128-128-10 b32", {784, 128, 128, 128, 10}, 32, ActivationKind::relu},
      {"784-512-10 b128", {784, 512, 10}, 128, ActivationKind::relu},
      {"784-512-10 b3000 sigmoid", {784, 512, 10}, 3000, ActivationKind::sigmoid},
      {"784-1024-1024-1024-10 b32", {784, 1024, 1024, 1024, 10}, 32, ActivationKind::relu},
  };
  for (const Workload& work : workloads) run<float>(work, pool, seconds, ceiling32);
  if (argc > 3) {
    for (const Workload& work : workloads) run<double>(work, pool, seconds, ceiling64);
  }
}
