// Bounds of ops that join values and rearrange their numbers.
#include "tests/support/bounds_rules.h"

namespace ridgeline::test {
namespace {

// A sum of weighted terms in any order; the weights may be rounded too.
struct WeightedSum {
  double size = 0, spread = 0, count = 0;

  void add(double value, double error, double weight) {
    size += weight * (std::abs(value) + error);
    spread += weight * error;
    ++count;
  }
  double error(double u) const { return spread + (count + 1) * u * size; }
};

}  // namespace

void Rules::operator()(const Add& op) const {
  for (int64_t i = 0; i < op.y.shape.numel(); ++i) {
    Approx sum{0, 0, u(op.y)};
    for (size_t x = 0; x < op.xs.size(); ++x) {
      const Approx term = element(op.xs[x], i);
      sum = x == 0 ? term : sum + term;
    }
    if (op.scale != 1) sum = sum * Approx{op.scale, u(op.y) * op.scale, u(op.y)};
    store(op.y, i, sum);
  }
}

void Rules::operator()(const Multiply& op) const {
  for (int64_t i = 0; i < op.y.shape.numel(); ++i) {
    store(op.y, i, element(op.a, i) * element(op.b, i));
  }
}

// A value that is only moved keeps its error.
void Rules::operator()(const Concat& op) const {
  size_t at = 0;
  for (int64_t r = 0; r < op.rows; ++r) {
    for (size_t x = 0; x < op.xs.size(); ++x) {
      for (int64_t i = 0; i < op.width(x); ++i) err(op.y)[at++] = e(op.xs[x], r * op.width(x) + i);
    }
  }
}

void Rules::operator()(const Pad& op) const {
  const double added = std::abs(op.value) * unit_roundoff(op.y.dtype);
  int64_t at = 0;
  for (int64_t row = 0; row < op.n() * op.out[0]; ++row) {
    const int64_t a = row % op.out[0] - op.before[0];
    for (int64_t j = 0; j < op.out[1]; ++j) {
      const int64_t b = j - op.before[1];
      for (int64_t k = 0; k < op.out[2]; ++k, ++at) {
        const int64_t c = k - op.before[2];
        const bool inside =
            a >= 0 && a < op.in[0] && b >= 0 && b < op.in[1] && c >= 0 && c < op.in[2];
        const int64_t from = ((row / op.out[0] * op.in[0] + a) * op.in[1] + b) * op.in[2] + c;
        err(op.y)[size_t(at)] = inside ? e(op.x, from) : added;
      }
    }
  }
}

void Rules::operator()(const Transpose& op) const {
  const int64_t sample = op.in.numel();
  for (int64_t i = 0; i < op.y.shape.numel(); ++i) {
    int64_t rest = i % sample, from = i - rest;
    for (int a = op.in.rank(); a-- > 0;) {
      from += rest % op.extent(a) * op.stride(a);
      rest /= op.extent(a);
    }
    err(op.y)[size_t(i)] = e(op.x, from);
  }
}

void Rules::operator()(const Upsample& op) const {
  const UpsampleShape& s = op.shape;
  const Image out = s.out();
  const bool nearest = s.mode == UpsampleMode::nearest;
  for (int64_t i = 0; i < op.y.shape.numel(); ++i) {
    const int64_t image = i / out.pixels() * s.in.h;
    const auto h = UpsampleShape::source(i / out.w % out.h, s.factor_h, s.in.h, s.mode);
    const auto w = UpsampleShape::source(i % out.w, s.factor_w, s.in.w, s.mode);
    if (nearest) {
      err(op.y)[size_t(i)] = e(op.x, (image + h.low) * s.in.w + w.low);
      continue;
    }
    WeightedSum sum;
    for (const auto& [row, weight] : {std::pair{h.low, 1 - h.part}, {h.high, h.part}}) {
      for (const auto& [column, share] : {std::pair{w.low, 1 - w.part}, {w.high, w.part}}) {
        const int64_t from = (image + row) * s.in.w + column;
        sum.add(val(op.x)[from], e(op.x, from), weight * share);
      }
    }
    store(op.y, i, sum.error(u(op.x)));
  }
}

void Rules::operator()(const UpsampleGrad& op) const {
  const UpsampleShape& s = op.shape;
  const Image out = s.out();
  std::vector<WeightedSum> sums(size_t(op.dx.shape.numel()));
  for (int64_t i = 0; i < op.dy.shape.numel(); ++i) {
    const int64_t image = i / out.pixels() * s.in.h;
    const auto h = UpsampleShape::source(i / out.w % out.h, s.factor_h, s.in.h, s.mode);
    const auto w = UpsampleShape::source(i % out.w, s.factor_w, s.in.w, s.mode);
    for (const auto& [row, weight] : {std::pair{h.low, 1 - h.part}, {h.high, h.part}}) {
      for (const auto& [column, share] : {std::pair{w.low, 1 - w.part}, {w.high, w.part}}) {
        if (weight * share == 0) continue;
        sums[size_t((image + row) * s.in.w + column)].add(val(op.dy)[i], e(op.dy, i),
                                                          weight * share);
      }
    }
  }
  for (size_t i = 0; i < sums.size(); ++i) store(op.dx, int64_t(i), sums[i].error(u(op.dy)));
}

}  // namespace ridgeline::test
