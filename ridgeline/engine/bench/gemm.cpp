#include "ridgeline/engine/bench/gemm.h"

#include <algorithm>

#include "ridgeline/engine/bench/kernel_times.h"

namespace ridgeline::engine {
namespace {

// Operands have the role of weights: those are filled with random numbers when kernels are timed,
// and a GPU multiplies zeros faster than other numbers.
Program gemm_program(const GemmShape& shape, Precision precision) {
  Program program;
  program.precision = precision;
  const DType dtype = storage(precision);
  const auto value = [&](const char* name, int64_t rows, int64_t columns, Role role) {
    return program.add_value(name, dtype, {rows, columns}, role);
  };
  const auto [op, m, n, k] = shape;
  switch (op) {
    case GemmOp::tn: {
      const Value x = value("x", n, k, Role::param), w = value("w", m, k, Role::param);
      program.add(Linear{x, w, {}, value("y", n, m, Role::output)});
      break;
    }
    case GemmOp::nn: {
      const Value dy = value("dy", n, k, Role::param), w = value("w", k, m, Role::param);
      program.add(LinearGradX{dy, w, value("dx", n, m, Role::output)});
      break;
    }
    case GemmOp::nt: {
      const Value x = value("x", k, m, Role::param), dy = value("dy", k, n, Role::param);
      program.add(LinearGradW{x, dy, value("dw", n, m, Role::output), {}});
      break;
    }
  }
  return program;
}

}  // namespace

const char* name(GemmOp op) {
  constexpr const char* kNames[] = {"NN", "TN", "NT"};
  return kNames[size_t(op)];
}

std::vector<GemmShape> gemm_sweep(const std::vector<GemmOp>& ops, const std::vector<int64_t>& m,
                                  const std::vector<int64_t>& n, const std::vector<int64_t>& k) {
  std::vector<GemmShape> shapes;
  for (const GemmOp op : ops) {
    for (const int64_t rows : m) {
      for (const int64_t terms : k) {
        for (const int64_t columns : n) shapes.push_back({op, rows, columns, terms});
      }
    }
  }
  return shapes;
}

std::vector<GemmBenchLine> bench_gemm(const GemmBenchOptions& options) {
  Machine machine(options.run);
  const auto ceilings = machine.ceilings();
  const double peak = ceilings ? ceilings->flops(options.run.precision) : 0;
  std::vector<GemmBenchLine> lines;
  for (const GemmShape& shape : options.shapes) {
    const Program program = gemm_program(shape, options.run.precision);
    const std::vector<WayTime> ways = time_ways(program, machine, options.seconds);
    const auto fastest = std::ranges::min_element(ways, {}, &WayTime::seconds);
    for (auto way = ways.begin(); way != ways.end(); ++way) {
      const double rate = shape.flops() / way->seconds;
      lines.push_back({shape, way->way, way->kernel, way->vendor, 1e6 * way->seconds,
                       1e6 * way->least, rate, peak > 0 ? rate / peak : 0, way == fastest});
      if (options.each) options.each(lines.back());
    }
  }
  if (lines.empty() && !options.shapes.empty()) {
    throw_error(ErrorKind::usage, "bench: no kernel is left for these products; see --kernels");
  }
  return lines;
}

}  // namespace ridgeline::engine
