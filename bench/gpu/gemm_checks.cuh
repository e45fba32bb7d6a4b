#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "gemm_check.cuh"

// The checks: which shapes, layouts, types and epilogues are run, and the exact result of an
// epilogue.
namespace ridgeline::bench {

using namespace ridgeline::cuda;

// Launched while the previous launch ends; with `early_a`, A is not a result of that launch.
constexpr GemmOptions overlapped(bool early_a) {
  return {.overlap_previous = true, .early_a = early_a};
}

// Exact values of the epilogues; `bound` is the allowed error of the sum, and becomes that of D.
struct ExactSum {
  __device__ double operator()(int, int, double sum, double&) const { return sum; }
};
struct ExactBias {
  const float* bias;
  bool relu;
  __device__ double operator()(int, int col, double sum, double& bound) const {
    bound += 0x1p-24 * (fabs(sum) + fabs(bias[col]));
    return relu ? fmax(sum + bias[col], 0.0) : sum + bias[col];
  }
};
template <typename In, typename Out, typename Epilogue>
std::vector<PreparedGemm> variants_of(const GemmProblem& p, const Epilogue& epilogue,
                                      const GemmOptions& options) {
  if constexpr (std::is_same_v<In, float>) {
    return prepare_gemm_tf32_variants<Epilogue>(p, epilogue, options);
  } else {
    return prepare_gemm_variants<In, Out, Epilogue>(p, epilogue, options);
  }
}

// Runs every variant twice on poisoned outputs and compares.
template <typename In, typename Out, typename Epilogue, typename Finish>
void check_variants(CheckCase<In, Out>& c, const Epilogue& epilogue, const Finish& finish,
                    const char* what, Tally& tally) {
  if (!gemm_is_built<In, Out, Epilogue>(c.problem.a_major, c.problem.b_major)) return;
  for (auto& variant : variants_of<In, Out>(c.problem, epilogue, overlapped(true))) {
    if (variant.name.find(tally.only) == std::string::npos) continue;
    for (int run = 0; run < 2; ++run) {
      c.d.poison();
      variant.run(nullptr);
      BENCH_CUDA(cudaGetLastError());
      const cudaError_t error = cudaDeviceSynchronize();
      if (error != cudaSuccess) {
        std::printf("FAIL %s %s %d x %d x %d majors %d %d: %s\n", what, variant.name.c_str(),
                    c.problem.m, c.problem.n, c.problem.k, int(c.problem.a_major),
                    int(c.problem.b_major), cudaGetErrorString(error));
        std::exit(1);
      }
      if (run == 0) {
        BENCH_CUDA(cudaMemcpy(c.again.get(), c.d.get(), c.d.count() * sizeof(Out),
                              cudaMemcpyDeviceToDevice));
      }
    }
    c.compare(finish, (std::string(what) + " " + variant.name).c_str(), tally);
  }
}

template <typename In, typename Out>
void check_plain(CheckShape s, Major a, Major b, const char* what, Tally& tally) {
  CheckCase<In, Out> c(s, a, b, s.m * 31 + s.n * 7 + s.k);
  check_variants(c, StoreSum{}, ExactSum{}, what, tally);
}

template <typename T>
void check_forward(CheckShape s, Tally& tally) {
  CheckCase<T, T> c(s, Major::k, Major::k, s.m + s.n * 5 + s.k * 3);
  DeviceArray<float> bias(s.n);
  fill(bias, 77);
  check_variants(c, BiasOnly{bias.get()}, ExactBias{bias.get(), false}, "bias", tally);
  check_variants(c, BiasRelu{bias.get()}, ExactBias{bias.get(), true}, "bias+relu", tally);
}

// A chain in which each product reads what the previous one wrote and overwrites what that one
// read. Launched overlapping, with the weights fetched early, it must give the bits of the plain
// launches. `steps` is even: values grow by sqrt(m / 3) per step, and 24 steps stay well inside
// bf16's range.
inline void check_chain(int m, int n, int steps, Tally& tally) {
  using T = __nv_bfloat16;
  DeviceArray<T> w(int64_t{m} * m), start(int64_t{m} * n), x(int64_t{m} * n), y(int64_t{m} * n);
  DeviceArray<T> want(int64_t{m} * n);
  DeviceArray<unsigned> differences(1);
  fill(w, 3);
  fill(start, 4);
  const int64_t bytes = start.count() * sizeof(T);
  const auto step = [&](T* from, T* to) {
    return GemmProblem{m, n, m, w.get(), m, Major::k, from, n, Major::mn, to, n};
  };
  using Variants = std::vector<PreparedGemm>;
  const auto prepare = [&](bool overlap, T* from, T* to) -> Variants {
    return prepare_gemm_variants<T, T, StoreSum>(step(from, to), StoreSum{},
                                                 overlap ? overlapped(true) : GemmOptions{});
  };
  const Variants plain[2] = {prepare(false, x.get(), y.get()), prepare(false, y.get(), x.get())};
  const Variants early[2] = {prepare(true, x.get(), y.get()), prepare(true, y.get(), x.get())};
  const auto run = [&](const Variants(&chain)[2], size_t variant) {
    BENCH_CUDA(cudaMemcpy(x.get(), start.get(), bytes, cudaMemcpyDeviceToDevice));
    for (int i = 0; i < steps; ++i) chain[i % 2][variant].run(nullptr);
    BENCH_CUDA(cudaDeviceSynchronize());
  };
  for (size_t v = 0; v < plain[0].size(); ++v) {
    if (plain[0][v].name.find(tally.only) == std::string::npos) continue;
    run(plain, v);
    BENCH_CUDA(cudaMemcpy(want.get(), x.get(), bytes, cudaMemcpyDeviceToDevice));
    run(early, v);
    unsigned wrong = 0;
    differences.zero();
    differ_kernel<<<unsigned((bytes + 255) / 256), 256>>>(
        reinterpret_cast<const unsigned char*>(want.get()),
        reinterpret_cast<const unsigned char*>(x.get()), bytes, differences.get());
    BENCH_CUDA(cudaMemcpy(&wrong, differences.get(), 4, cudaMemcpyDeviceToHost));
    ++tally.checks;
    if (wrong == 0) continue;
    ++tally.failures;
    std::printf("FAIL chain %s %d x %d: %u bytes differ\n", plain[0][v].name.c_str(), m, n, wrong);
  }
}

// `small`: few and small shapes, to run under compute-sanitizer.
inline int check(bool small, const std::string& only) {
  const Major majors[] = {Major::k, Major::mn};
  std::vector<CheckShape> shapes = {{1, 1, 1, false},      {7, 5, 3, false},    {17, 19, 23, true},
                                    {65, 63, 65, false},   {65, 63, 65, true},  {40, 24, 200, true},
                                    {127, 129, 131, true}, {48, 16, 136, true}, {48, 64, 136, true},
                                    {72, 136, 24, true},   {72, 136, 40, true}};
  if (!small) {
    for (const CheckShape s : std::initializer_list<CheckShape>{
             {1, 1000, 1, true},      {1000, 1, 640, true},    {64, 64, 64, false},
             {100, 10, 784, true},    {32, 512, 784, false},   {32, 1000, 520, true},
             {512, 16, 512, false},   {1000, 24, 1000, true},  {257, 263, 269, true},
             {257, 263, 269, false},  {513, 520, 1032, true},  {2056, 16, 264, false},
             {2056, 32, 264, true},   {40, 2056, 264, false},  {300, 700, 40, true},
             {1760, 32, 1760, false}, {2560, 48, 2560, true},  {1024, 1024, 64, false},
             {1024, 2048, 512, true}, {4096, 4096, 512, false}}) {
      shapes.push_back(s);
    }
  }
  Tally tally;
  tally.only = only;
  for (const CheckShape s : shapes) {
    for (const Major a : majors) {
      for (const Major b : majors) {
        check_plain<__nv_bfloat16, __nv_bfloat16>(s, a, b, "bf16", tally);
        if (small) continue;
        check_plain<__nv_bfloat16, float>(s, a, b, "bf16->fp32", tally);
        check_plain<__half, __half>(s, a, b, "fp16", tally);
        check_plain<__half, float>(s, a, b, "fp16->fp32", tally);
        check_plain<float, float>(s, a, b, "tf32", tally);
      }
    }
  }
  std::vector<CheckShape> few = {{65, 63, 65, true}, {127, 129, 131, true}};
  if (!small)
    few.insert(few.end(), {{33, 300, 200, false}, {32, 512, 784, true}, {784, 128, 32, true}});
  for (const CheckShape s : few) {
    check_forward<__nv_bfloat16>(s, tally);
    if (small) continue;
    check_forward<__half>(s, tally);
    check_forward<float>(s, tally);
  }
  for (const int n : {16, 64, 256}) {
    check_chain(small ? 256 : 1024, n, small ? 4 : 24, tally);
  }
  std::printf("%d checks, %d failures; worst error/bound of those that pass %.3f\n", tally.checks,
              tally.failures, tally.worst);
  return tally.failures == 0 ? 0 : 1;
}

}  // namespace ridgeline::bench
