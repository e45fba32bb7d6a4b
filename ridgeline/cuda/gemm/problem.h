#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace ridgeline::cuda {

enum class Major;  // device/wgmma.cuh: k or mn

// D[m, n] = epilogue(sum over k of A[m, k] B[k, n]), accumulated in fp32. Pitches are in elements.
//   A: [m, k] with pitch lda if k-major, [k, m] if mn-major.
//   B: [n, k] with pitch ldb if k-major, [k, n] if mn-major.
//   D: [m, n] with pitch ldd; overwritten; must not alias A or B.
struct GemmProblem {
  int m, n, k;
  const void* a;
  int64_t lda;
  Major a_major;
  const void* b;
  int64_t ldb;
  Major b_major;
  void* d;
  int64_t ldd;
};

struct GemmOptions {
  // Start while the previous launch still runs, up to the point where its results are needed
  // (programmatic dependent launch). Valid if that launch was on the same stream; costs nothing if
  // it does not take part.
  bool overlap_previous = false;
  // With overlap_previous: the launch just before does not write A (B), so a variant may fetch it
  // while that launch runs. Launches before that one have ended by then.
  bool early_a = false, early_b = false;
};

// One way to compute a problem, ready to launch: tensor maps are made and sizes chosen. Every
// variant is deterministic: equal inputs give equal bits. Variants differ in the order of
// summation.
struct PreparedGemm {
  std::string name;
  std::function<void(cudaStream_t)> run;
  double estimate_us = 0;  // from estimate.h; lists are sorted by it
};

}  // namespace ridgeline::cuda
