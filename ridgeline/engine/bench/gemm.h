#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ridgeline/engine/config.h"

namespace ridgeline::engine {

// A product as BLAS names it, matrices column by column: C[m, n] = op(A) . op(B) with k terms.
// A layer's forward pass is TN (m outputs, n samples), the gradient of its input NN, that of its
// weights NT.
enum class GemmOp { nn, tn, nt };
const char* name(GemmOp op);

struct GemmShape {
  GemmOp op = GemmOp::tn;
  int64_t m = 0, n = 0, k = 0;

  double flops() const { return 2.0 * double(m) * double(n) * double(k); }
  bool operator==(const GemmShape&) const = default;
};

// Returns every combination.
std::vector<GemmShape> gemm_sweep(const std::vector<GemmOp>& ops, const std::vector<int64_t>& m,
                                  const std::vector<int64_t>& n, const std::vector<int64_t>& k);

// The time of one shape by one way of computing it.
struct GemmBenchLine {
  GemmShape shape;
  std::string way, kernel;
  bool vendor = false;
  double us = 0, us_min = 0, flops_per_second = 0;
  double limit_fraction = 0;  // of the measured ceiling of the precision; 0: not known
  bool planned = false;       // the fastest of its shape, which a plan takes
};

struct GemmBenchOptions {
  RunConfig run;
  std::vector<GemmShape> shapes;
  double seconds = 0.02;  // for each kernel
  std::function<void(const GemmBenchLine&)> each;
};

std::vector<GemmBenchLine> bench_gemm(const GemmBenchOptions& options);

// Summarises the sweep in a few lines: for each matrix the batch from which on the rate stays near
// its best, the gain from storing the weights transposed, ours against the libraries, and the
// planner's choices.
std::string gemm_bench_findings(const std::vector<GemmBenchLine>& lines);

std::string gemm_bench_csv(const std::vector<GemmBenchLine>& lines);
std::string gemm_bench_json(const std::vector<GemmBenchLine>& lines, const RunConfig& run);
// A chart of TFLOP/s over n: the best of ours and the best of the libraries for each op and matrix.
std::string gemm_bench_svg(const std::vector<GemmBenchLine>& lines);

}  // namespace ridgeline::engine
