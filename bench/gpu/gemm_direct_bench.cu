// Checks the products whose operands go straight from memory into registers (gemm_flat.cuh) by
// themselves: a program without other kernels, for slow tools (compute-sanitizer --tool racecheck
// gemm_direct_bench).
//   gemm_direct_bench [NAME]   only variants whose names contain NAME
#include <algorithm>

#include "gemm_checks.cuh"
#include "ridgeline/cuda/gemm/variants.cuh"

namespace ridgeline::bench {

using Half = __nv_bfloat16;

template <Major kMajor>
void check_layout(const CheckShape& s, Tally& tally) {
  CheckCase<Half, Half> c(s, kMajor, kMajor, s.m * 31 + s.n * 7 + s.k);
  std::vector<PreparedGemm> ways;
  GemmVariants<Half, Half, kMajor, kMajor, StoreSum>(c.problem, StoreSum{}, overlapped(true))
      .add_direct(ways);
  for (const PreparedGemm& way : ways) {
    if (way.name.find(tally.only) == std::string::npos) continue;
    for (int run = 0; run < 2; ++run) {
      c.d.poison();
      way.run(nullptr);
      BENCH_CUDA(cudaGetLastError());
      BENCH_CUDA(cudaDeviceSynchronize());
      if (run == 0) {
        BENCH_CUDA(cudaMemcpy(c.again.get(), c.d.get(), c.d.count() * sizeof(Half),
                              cudaMemcpyDeviceToDevice));
      }
    }
    c.compare(ExactSum{}, way.name.c_str(), tally);
  }
}

int check_direct(const std::string& only) {
  Tally tally;
  tally.only = only;
  // Tails in rows, columns and k; both depths.
  for (const CheckShape& s : {CheckShape{72, 136, 24, true}, CheckShape{72, 136, 40, true},
                              CheckShape{200, 72, 64, false}}) {
    check_layout<Major::k>(s, tally);
    check_layout<Major::mn>(s, tally);
    std::printf("%d x %d x %d: %d checks, %d failures so far\n", s.m, s.n, s.k, tally.checks,
                tally.failures);
    std::fflush(stdout);
  }
  return tally.failures == 0 && tally.checks > 0 ? 0 : 1;
}

}  // namespace ridgeline::bench

int main(int argc, char** argv) {
  try {
    return ridgeline::bench::check_direct(argc > 1 ? argv[1] : "");
  } catch (const std::exception& error) {
    std::printf("error: %s\n", error.what());
    return 1;
  }
}
