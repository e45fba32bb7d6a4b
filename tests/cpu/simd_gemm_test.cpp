#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "ridgeline/core/buffer.h"
#include "ridgeline/cpu/simd/batch.h"
#include "ridgeline/cpu/simd/gemm.h"

namespace ridgeline::cpu::simd {
namespace {

template <typename T>
struct Matrix {  // batch-major, with room to read one line past the end
  Matrix(int64_t n, int64_t features, uint32_t seed, double zeros = 0)
      : rows(n), columns(features), buffer(size_t(n * features) * sizeof(T)) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> value(-1, 1), share(0, 1);
    for (int64_t i = 0; i < n * features; ++i) {
      data()[i] = share(random) < zeros ? T(0) : T(value(random));
    }
  }
  T* data() const { return reinterpret_cast<T*>(buffer.data()); }
  double at(int64_t r, int64_t c) const { return double(data()[r * columns + c]); }

  int64_t rows, columns;
  Buffer buffer;
};

template <typename T>
struct Panels {
  explicit Panels(int64_t n_, int64_t features_)
      : n(n_), features(features_), buffer(panel_elements<T>(n, features) * sizeof(T)) {}
  explicit Panels(const Matrix<T>& m) : Panels(m.rows, m.columns) {
    batch_functions<T>().to_panels(m.data(), features, features, data(), {0, n}, {0, features});
  }
  T* data() const { return reinterpret_cast<T*>(buffer.data()); }
  double at(int64_t r, int64_t f) const {
    return double(data()[(r / kPanel<T> * features + f) * kPanel<T> + r % kPanel<T>]);
  }

  int64_t n, features;
  Buffer buffer;
};

template <typename T>
constexpr double kRoundoff = std::numeric_limits<T>::epsilon() / 2;

struct Dims {
  int64_t n, in, out;
};
const Dims kDims[] = {{1, 1, 1},
                      {2, 3, 5},
                      {7, 13, 11},
                      {16, 16, 8},
                      {17, 31, 9},
                      {32, 49, 10},
                      {33, 64, 128},
                      {65, 113, 21},
                      {128, 48, 3},
                      {150, 97, 19},
                      {257, 5, 67},
                      {3, 200, 1},
                      {40, 1, 40},
                      // Weights that do not stay in a cache, and rows of 4096 bytes.
                      {35, 777, 401},
                      {33, 1024, 290},
                      // More panels of such rows than are multiplied at once.
                      {290, 1024, 26}};

template <typename T>
class SimdGemm : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(SimdGemm, Types);

double activation(SimdActivation act, double x) {
  switch (act) {
    case ActivationKind::none:
      return x;
    case ActivationKind::relu:
      return x > 0 ? x : 0;
    case ActivationKind::tanh:
      return std::tanh(x);
    case ActivationKind::sigmoid:
      return 1 / (1 + std::exp(-x));
    case ActivationKind::gelu:
      return 0.5 * x * std::erfc(-x * M_SQRT1_2);
    case ActivationKind::silu:
      return x / (1 + std::exp(-x));
    case ActivationKind::leaky_relu:
      return x > 0 ? x : act.parameter * x;
    case ActivationKind::elu:
      return x > 0 ? x : act.parameter * std::expm1(x);
    case ActivationKind::softplus:
      return std::log1p(std::exp(-std::abs(x))) + std::max(x, 0.0);
    case ActivationKind::hardswish:
      return x * std::clamp(x + 3, 0.0, 6.0) / 6;
  }
  return x;
}

constexpr SimdActivation kActs[] = {ActivationKind::none,
                                    ActivationKind::relu,
                                    ActivationKind::tanh,
                                    ActivationKind::sigmoid,
                                    ActivationKind::gelu,
                                    ActivationKind::silu,
                                    {ActivationKind::leaky_relu, 0.3},
                                    {ActivationKind::elu, 0.7},
                                    ActivationKind::softplus,
                                    ActivationKind::hardswish};

// Two calls whose ranges meet in the middle, so that cuts at odd rows are covered.
TYPED_TEST(SimdGemm, ForwardAgreesWithDoubles) {
  using T = TypeParam;
  for (const auto& [n, in, out] : kDims) {
    const Matrix<T> x(n, in, 1), w(out, in, 2), b(1, out, 3);
    const Panels<T> x_panels(x), y(n, out), z(n, out);
    for (const SimdActivation act : kActs) {
      const ForwardArgs<T> args{w.data(), b.data(), x_panels.data(), y.data(), z.data(), in,
                                out,      act};
      gemm_functions<T>().forward(args, {0, out / 2}, {0, n});
      gemm_functions<T>().forward(args, {out / 2, out}, {0, n});
      for (int64_t r = 0; r < n; ++r) {
        for (int64_t o = 0; o < out; ++o) {
          double want = b.at(0, o), size = std::abs(want);
          for (int64_t i = 0; i < in; ++i) {
            want += x.at(r, i) * w.at(o, i);
            size += std::abs(x.at(r, i) * w.at(o, i));
          }
          const double bound = (double(in) + 2) * kRoundoff<T> * size;
          ASSERT_NEAR(z.at(r, o), want, bound) << n << ' ' << in << ' ' << out;
          // No activation is steeper than 1.13 (gelu), but for hardswish; its own error is a few
          // roundings.
          const double steep = act == ActivationKind::hardswish ? 1.5 : 1.13;
          ASSERT_NEAR(y.at(r, o), activation(act, want), steep * bound + 6 * kRoundoff<T>)
              << int(act.kind) << ' ' << n << ' ' << in << ' ' << out;
        }
      }
    }
  }
}

TYPED_TEST(SimdGemm, InputGradAgreesWithDoublesWholeAndInParts) {
  using T = TypeParam;
  for (const auto& [n, in, out] : kDims) {
    const Matrix<T> dz(n, out, 4), w(out, in, 5), saved(n, in, 6);
    const Panels<T> dz_panels(dz), dx(n, in), saved_panels(saved);
    const size_t stride = panel_elements<T>(n, in);
    const Buffer parts(2 * stride * sizeof(T));
    T* part = reinterpret_cast<T*>(parts.data());
    const auto& k = gemm_functions<T>();
    const auto check = [&, n = n, in = in, out = out](double extra) {
      for (int64_t r = 0; r < n; ++r) {
        for (int64_t i = 0; i < in; ++i) {
          double want = 0, size = 0;
          for (int64_t o = 0; o < out; ++o) {
            want += dz.at(r, o) * w.at(o, i);
            size += std::abs(dz.at(r, o) * w.at(o, i));
          }
          const double slope = 1 - saved.at(r, i) * saved.at(r, i);  // tanh
          const double bound = (double(out) + extra) * kRoundoff<T> * size;
          ASSERT_NEAR(dx.at(r, i), want * slope, bound) << n << ' ' << in << ' ' << out;
        }
      }
    };
    k.input_grad({w.data(),
                  dz_panels.data(),
                  dx.data(),
                  saved_panels.data(),
                  in,
                  out,
                  ActivationKind::tanh,
                  {0, out}},
                 {0, in}, {0, n});
    check(5);
    k.input_grad(
        {w.data(), dz_panels.data(), part, nullptr, in, out, ActivationKind::none, {0, out / 3}},
        {0, in}, {0, n});
    k.input_grad({w.data(),
                  dz_panels.data(),
                  part + stride,
                  nullptr,
                  in,
                  out,
                  ActivationKind::none,
                  {out / 3, out}},
                 {0, in}, {0, n});
    batch_functions<T>().combine(
        {part, 2, int64_t(stride), saved_panels.data(), dx.data(), in, ActivationKind::tanh},
        {0, in}, {0, n});
    check(6);
  }
}

// dw and db for a batch given at once and in two parts, dense and with zeros skipped.
TYPED_TEST(SimdGemm, WeightGradAgreesWithDoubles) {
  using T = TypeParam;
  for (const auto& [n, in, out] : kDims) {
    for (const double zeros : {0.0, 0.5, 1.0}) {
      const Matrix<T> dz(n, out, 7, zeros), x(n, in, 8);
      const Panels<T> dz_panels(dz);
      const Buffer scratch(sparse_scratch_bytes<T>(out));
      std::vector<T> first;
      for (const bool sparse : {false, true}) {
        Matrix<T> dw(out, in, 9), db(1, out, 10);
        WeightGradArgs<T> args{dz_panels.data(), x.data(), in, n, in, out, dw.data(), db.data()};
        args.sparse = sparse;
        args.sparse_scratch = scratch.data();
        gemm_functions<T>().weight_grad(args, {0, out / 2}, {0, in});
        gemm_functions<T>().weight_grad(args, {out / 2, out}, {0, in / 2});
        gemm_functions<T>().weight_grad(args, {out / 2, out}, {in / 2, in});
        for (int64_t o = 0; o < out; ++o) {
          double sum = 0, sum_size = 0;
          for (int64_t r = 0; r < n; ++r) {
            sum += dz.at(r, o);
            sum_size += std::abs(dz.at(r, o));
          }
          ASSERT_NEAR(db.at(0, o), sum, double(n) * kRoundoff<T> * sum_size);
          for (int64_t i = 0; i < in; ++i) {
            double want = 0, size = 0;
            for (int64_t r = 0; r < n; ++r) {
              want += dz.at(r, o) * x.at(r, i);
              size += std::abs(dz.at(r, o) * x.at(r, i));
            }
            ASSERT_NEAR(dw.at(o, i), want, (double(n) + 2) * kRoundoff<T> * size)
                << n << ' ' << in << ' ' << out << " zeros " << zeros << " sparse " << sparse;
          }
        }
        if (!sparse) first.assign(dw.data(), dw.data() + out * in);
        for (int64_t i = 0; i < out * in; ++i) ASSERT_EQ(dw.data()[i], first[size_t(i)]);
      }
    }
  }
}

TYPED_TEST(SimdGemm, UpdateInTwoPartsFollowsTheEquation) {
  using T = TypeParam;
  const int64_t n = 96, in = 37, out = 13, half = 2 * kPanel<T>;
  const Matrix<T> dz(n, out, 1), x(n, in, 2);
  const Panels<T> dz_panels(dz);
  for (const bool nesterov : {false, true}) {
    Matrix<T> w(out, in, 3), b(1, out, 4), mw(out, in, 5), mb(1, out, 6), dw(out, in, 7),
        db(1, out, 8);
    const Matrix<T> w0(out, in, 3), b0(1, out, 4), mw0(out, in, 5), mb0(1, out, 6);
    WeightGradArgs<T> args{dz_panels.data(), x.data(), in, half, in, out, dw.data(), db.data()};
    args.update = true;
    args.sgd = {T(0.1), T(0.9), T(0.01), nesterov};
    args.w = w.data(), args.b = b.data(), args.mw = mw.data(), args.mb = mb.data();
    args.last = false;
    gemm_functions<T>().weight_grad(args, {0, out}, {0, in});
    args.dz = dz_panels.data() + half * out;
    args.x = x.data() + half * in;
    args.n = n - half;
    args.first = false, args.last = true;
    gemm_functions<T>().weight_grad(args, {0, out}, {0, in});
    const auto expect = [&](double got, double got_m, double old, double old_m, double g,
                            double size) {
      const double step = g + double(args.sgd.weight_decay) * old;
      const double m = double(args.sgd.momentum) * old_m + step;
      const double move = nesterov ? step + double(args.sgd.momentum) * m : m;
      const double bound = kRoundoff<T> * (double(n) + 8) * (size + 2);
      ASSERT_NEAR(got_m, m, bound);
      ASSERT_NEAR(got, old - double(args.sgd.lr) * move, bound);
    };
    for (int64_t o = 0; o < out; ++o) {
      double sum = 0, sum_size = 0;
      for (int64_t r = 0; r < n; ++r) sum += dz.at(r, o), sum_size += std::abs(dz.at(r, o));
      expect(b.at(0, o), mb.at(0, o), b0.at(0, o), mb0.at(0, o), sum, sum_size);
      for (int64_t i = 0; i < in; ++i) {
        double g = 0, size = 0;
        for (int64_t r = 0; r < n; ++r) {
          g += dz.at(r, o) * x.at(r, i);
          size += std::abs(dz.at(r, o) * x.at(r, i));
        }
        expect(w.at(o, i), mw.at(o, i), w0.at(o, i), mw0.at(o, i), g, size);
      }
    }
  }
}

}  // namespace
}  // namespace ridgeline::cpu::simd
