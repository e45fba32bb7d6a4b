#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "ridgeline/core/json.h"
#include "ridgeline/core/thread_pool.h"
#include "ridgeline/engine/bench/gemm.h"
#include "ridgeline/engine/report/chart.h"

namespace ridgeline::engine {
namespace {

constexpr double kNear = 0.95;  // at least this share of the best rate counts as the best

// A matrix A and the op on it: one curve over n.
struct Curve {
  GemmOp op;
  int64_t m, k;
  auto operator<=>(const Curve&) const = default;
};

struct Best {
  double ours = 0, vendor = 0;  // FLOP/s; 0: none
  double any() const { return std::max(ours, vendor); }
};

using Curves = std::map<Curve, std::map<int64_t, Best>>;

Curves curves_of(const std::vector<GemmBenchLine>& lines) {
  Curves curves;
  for (const GemmBenchLine& line : lines) {
    Best& best = curves[{line.shape.op, line.shape.m, line.shape.k}][line.shape.n];
    double& rate = line.vendor ? best.vendor : best.ours;
    rate = std::max(rate, line.flops_per_second);
  }
  return curves;
}

std::string title(const Curve& curve) {
  return fmt::format("{} {}x{}", name(curve.op), curve.m, curve.k);
}

std::string batch_finding(const Curve& curve, const std::map<int64_t, Best>& points) {
  const auto rate = [](const auto& point) { return point.second.any(); };
  const auto best = std::ranges::max_element(points, {}, rate);
  const auto enough = std::ranges::find_if(
      points, [&](const auto& point) { return rate(point) >= kNear * rate(*best); });
  std::string text = fmt::format("{}: best at n = {} ({:.3g} TFLOP/s)", title(curve), best->first,
                                 rate(*best) * 1e-12);
  if (enough->first != best->first) {
    text += fmt::format(", within {:.0f} % from n = {} on", 100 * (1 - kNear), enough->first);
  }
  return text + "\n";
}

double geometric_mean(const std::vector<double>& ratios) {
  double sum = 0;
  for (const double ratio : ratios) sum += std::log(ratio);
  return std::exp(sum / double(ratios.size()));
}

// Reports whether batches that are multiples of 32 pay off: the time of one beside that of the next
// smaller batch of the sweep, which has up to 31 samples less.
std::string multiples_finding(const Curve& curve, const std::map<int64_t, Best>& points) {
  constexpr int64_t kMultiple = 32;
  std::vector<double> rates, times;
  for (auto point = points.begin(); point != points.end(); ++point) {
    if (point == points.begin() || point->first % kMultiple != 0) continue;
    const auto before = std::prev(point);
    if (before->first % kMultiple == 0 || point->first - before->first >= kMultiple) continue;
    rates.push_back(point->second.any() / before->second.any());
    times.push_back(double(point->first) / double(before->first) / rates.back());
  }
  if (rates.empty()) return {};
  return fmt::format(
      "{}: batches of a multiple of {} have {:.2f}x the rate of the next smaller batch, and take "
      "{:.2f}x its time ({} pairs)\n",
      title(curve), kMultiple, geometric_mean(rates), geometric_mean(times), rates.size());
}

// Compares NN with TN: the same product with the weights stored transposed.
std::string transpose_finding(const Curves& curves) {
  std::vector<double> gains;
  double most = 0;
  std::string where;
  for (const auto& [curve, points] : curves) {
    if (curve.op != GemmOp::tn) continue;
    const auto other = curves.find({GemmOp::nn, curve.m, curve.k});
    if (other == curves.end()) continue;
    for (const auto& [n, best] : points) {
      const auto point = other->second.find(n);
      if (point == other->second.end()) continue;
      gains.push_back(point->second.any() / best.any());
      if (gains.back() <= most) continue;
      most = gains.back();
      where = fmt::format("{}x{}x{}", curve.m, n, curve.k);
    }
  }
  if (gains.empty()) return {};
  return fmt::format(
      "weights kept transposed (NN for TN): {:.2f}x on average, at most {:.2f}x ({})\n",
      geometric_mean(gains), most, where);
}

std::string vendor_finding(const Curves& curves) {
  std::vector<double> ratios, planned;
  double least = std::numeric_limits<double>::infinity();
  std::string where;
  for (const auto& [curve, points] : curves) {
    for (const auto& [n, best] : points) {
      if (best.ours <= 0 || best.vendor <= 0) continue;
      ratios.push_back(best.ours / best.vendor);
      planned.push_back(best.any() / best.vendor);
      if (ratios.back() >= least) continue;
      least = ratios.back();
      where = fmt::format("{} {}x{}x{}", name(curve.op), curve.m, n, curve.k);
    }
  }
  if (ratios.empty()) return {};
  const auto taken = std::ranges::count_if(ratios, [](double ratio) { return ratio < 1; });
  return fmt::format(
      "ours alone against the best library: {:.2f}x on average, at least {:.2f}x ({})\n"
      "as planned, the faster of both: {:.2f}x on average; a library's kernel for {} of {}\n",
      geometric_mean(ratios), least, where, geometric_mean(planned), taken, ratios.size());
}

}  // namespace

std::string gemm_bench_findings(const std::vector<GemmBenchLine>& lines) {
  const Curves curves = curves_of(lines);
  std::string text;
  for (const auto& [curve, points] : curves) {
    if (points.size() > 1) text += batch_finding(curve, points) + multiples_finding(curve, points);
  }
  return text + transpose_finding(curves) + vendor_finding(curves);
}

std::string gemm_bench_csv(const std::vector<GemmBenchLine>& lines) {
  std::string text = "op,m,n,k,way,kernel,us,tflops,limit_fraction\n";
  for (const GemmBenchLine& line : lines) {
    const GemmShape& s = line.shape;
    text +=
        fmt::format("{},{},{},{},{},{},{:.6g},{:.6g},{:.4g}\n", name(s.op), s.m, s.n, s.k, line.way,
                    line.kernel, line.us, 1e-12 * line.flops_per_second, line.limit_fraction);
  }
  return text;
}

std::string gemm_bench_json(const std::vector<GemmBenchLine>& lines, const RunConfig& run) {
  nlohmann::json all = nlohmann::json::array();
  for (const GemmBenchLine& line : lines) {
    const GemmShape& s = line.shape;
    all.push_back({{"op", name(s.op)},
                   {"m", s.m},
                   {"n", s.n},
                   {"k", s.k},
                   {"way", line.way},
                   {"kernel", line.kernel},
                   {"vendor", line.vendor},
                   {"planned", line.planned},
                   {"us", line.us},
                   {"us_min", line.us_min},
                   {"tflops", 1e-12 * line.flops_per_second},
                   {"limit_fraction", line.limit_fraction},
                   {"precision", std::string(name(run.precision))},
                   {"device", run.device},
                   {"threads", resolve_threads(run.threads)}});
  }
  return dump_json(all, 2) + "\n";
}

std::string gemm_bench_svg(const std::vector<GemmBenchLine>& lines) {
  const Curves curves = curves_of(lines);
  std::set<int64_t> places;
  for (const GemmBenchLine& line : lines) places.insert(line.shape.n);
  Chart chart;
  chart.title = "matrix products";
  chart.x_title = "n (batch)";
  chart.y_title = "TFLOP/s";
  for (const int64_t place : places) chart.x.push_back(fmt::format("{}", place));
  for (const auto& [curve, points] : curves) {
    for (const bool vendor : {false, true}) {
      Chart::Series series{title(curve) + (vendor ? " library" : " ours"), {}};
      bool some = false;
      for (const int64_t place : places) {
        const auto point = points.find(place);
        const double rate =
            point == points.end() ? 0 : (vendor ? point->second.vendor : point->second.ours);
        some = some || rate > 0;
        series.y.push_back(rate > 0 ? 1e-12 * rate : std::numeric_limits<double>::quiet_NaN());
      }
      if (some) chart.series.push_back(std::move(series));
    }
  }
  return to_svg(chart);
}

}  // namespace ridgeline::engine
