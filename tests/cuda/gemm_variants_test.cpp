// Compares every compiled variant of the tensor-core products with exact sums. The planner measures
// only the best few by estimate for each problem; this test runs all of them.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <regex>
#include <set>

#include "ridgeline/cuda/gemm/products.h"
#include "tests/cuda/gpu.h"

namespace ridgeline::test {
namespace {

using cuda::GemmType;
using cuda::PreparedGemm;

// Multiples of an eighth from -1 to 1. Every type represents them exactly, and the sums of their
// products are exact in fp32 up to 2^18 terms: only the last rounding remains, and the bits must
// agree.
double element(int64_t i, uint64_t seed) {
  uint64_t x = uint64_t(i) * 0x9E3779B97F4A7C15ull + seed;
  x ^= x >> 29;
  x *= 0xBF58476D1CE4E5B9ull;
  x ^= x >> 32;
  return double(int64_t(x % 17) - 8) / 8;
}

template <typename T>
float as_float(T value) {
  return float(value);
}

// A matrix on the device and its numbers.
template <typename T>
class DeviceMatrix {
 public:
  DeviceMatrix(Runtime& runtime, int64_t count, uint64_t seed)
      : runtime_(runtime), numbers_(size_t(count)), memory_(runtime, size_t(count) * sizeof(T)) {
    std::vector<T> values(numbers_.size());
    for (size_t i = 0; i < values.size(); ++i) {
      numbers_[i] = element(int64_t(i), seed);
      values[i] = T(float(numbers_[i]));
    }
    runtime_.upload(memory_.data(), values.data(), values.size() * sizeof(T));
  }
  void* data() const { return memory_.data(); }
  const std::vector<double>& numbers() const { return numbers_; }
  std::vector<T> read() const {
    std::vector<T> values(numbers_.size());
    runtime_.download(values.data(), memory_.data(), values.size() * sizeof(T));
    return values;
  }
  void poison() { runtime_.clear(memory_.data(), memory_.size()); }

 private:
  Runtime& runtime_;
  std::vector<double> numbers_;
  DeviceBuffer memory_;
};

// D[m, n] as sums of k products: few and many rows and columns, and sums that are short, long, and
// split over up to eight blocks, so that every tile is used.
struct Extents {
  int m, n, k;
};
constexpr Extents kProducts[] = {{1600, 16, 72}, {1600, 32, 72}, {1600, 48, 72}, {1600, 160, 136},
                                 {16, 1600, 72}, {32, 1600, 72}, {48, 1600, 72}, {304, 400, 136},
                                 {72, 24, 520},  {24, 72, 520},  {200, 264, 24}, {200, 264, 40},
                                 {130, 70, 200}, {33, 65, 72},   {16, 16, 520},  {8, 8, 8},
                                 {1, 8, 8}};

// A layer of n samples.
struct Layer {
  int n, in, out;
};

class GemmVariants : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!IsSkipped() && gpu().architecture() != 90) GTEST_SKIP() << "the variants are for sm_90a";
  }

  // Runs every variant twice, for a product of k terms whose exact sums `exact(row, column)` gives.
  template <typename Out, typename Exact>
  void check(const std::vector<PreparedGemm>& variants, DeviceMatrix<Out>& d, int rows, int columns,
             const std::string& what, Exact exact) {
    std::vector<float> want(size_t(rows) * size_t(columns));
    for (int r = 0; r < rows; ++r) {
      for (int c = 0; c < columns; ++c) {
        want[size_t(r) * size_t(columns) + size_t(c)] = as_float(Out(float(exact(r, c))));
      }
    }
    for (const PreparedGemm& variant : variants) {
      // The numbers of blocks that share a sum, and of tiles per warp, are arguments and not part
      // of the name.
      seen_.insert(
          std::regex_replace(variant.name, std::regex("(split|_)[0-9]+(iterations|_)"), "$1$2"));
      for (int run = 0; run < 2; ++run) {
        d.poison();
        variant.run(gpu().stream());
        gpu().synchronize();
        const std::vector<Out> got = d.read();
        int64_t wrong = 0;
        for (size_t i = 0; i < want.size(); ++i) wrong += as_float(got[i]) != want[i];
        EXPECT_EQ(wrong, 0) << what << ' ' << variant.name << ", run " << run;
      }
    }
  }

  template <typename T>
  void check_linear(GemmType type, const Layer& l, bool bias, bool relu) {
    DeviceMatrix<T> x(gpu(), int64_t{l.n} * l.in, 1), w(gpu(), int64_t{l.out} * l.in, 2);
    DeviceMatrix<float> b(gpu(), l.out, 3);
    DeviceMatrix<T> y(gpu(), int64_t{l.n} * l.out, 4);
    const auto variants =
        cuda::linear_gemms({type, l.n, l.in, l.out, x.data(), w.data(),
                            bias ? static_cast<float*>(b.data()) : nullptr, y.data(), relu});
    check(variants, y, l.n, l.out, title("linear", l), [&](int r, int c) {
      double sum = bias ? b.numbers()[size_t(c)] : 0;
      for (int k = 0; k < l.in; ++k) {
        sum += x.numbers()[size_t(r * l.in + k)] * w.numbers()[size_t(c * l.in + k)];
      }
      return relu ? std::max(sum, 0.0) : sum;
    });
  }

  template <typename T>
  void check_grad_x(GemmType type, const Layer& l) {
    DeviceMatrix<T> dy(gpu(), int64_t{l.n} * l.out, 5), w(gpu(), int64_t{l.out} * l.in, 6);
    DeviceMatrix<T> dx(gpu(), int64_t{l.n} * l.in, 7);
    const auto variants =
        cuda::linear_grad_x_gemms({type, l.n, l.in, l.out, dy.data(), w.data(), dx.data()});
    check(variants, dx, l.n, l.in, title("linear_grad_x", l), [&](int r, int c) {
      double sum = 0;
      for (int k = 0; k < l.out; ++k) {
        sum += dy.numbers()[size_t(r * l.out + k)] * w.numbers()[size_t(k * l.in + c)];
      }
      return sum;
    });
  }

  template <typename T, typename Out>
  void check_grad_w(GemmType type, const Layer& l) {
    DeviceMatrix<T> x(gpu(), int64_t{l.n} * l.in, 8), dy(gpu(), int64_t{l.n} * l.out, 9);
    DeviceMatrix<Out> dw(gpu(), int64_t{l.out} * l.in, 10);
    const auto variants = cuda::linear_grad_w_gemms(
        {type, l.n, l.in, l.out, x.data(), dy.data(), dw.data(), std::is_same_v<Out, float>});
    check(variants, dw, l.out, l.in, title("linear_grad_w", l), [&](int r, int c) {
      double sum = 0;
      for (int k = 0; k < l.n; ++k) {
        sum += dy.numbers()[size_t(k * l.out + r)] * x.numbers()[size_t(k * l.in + c)];
      }
      return sum;
    });
  }

  // Expects that exactly these variants ran since the last call.
  void expect_seen(const std::string& what, const std::set<std::string>& compiled) {
    EXPECT_EQ(seen_, compiled) << what;
    seen_.clear();
  }

  template <typename T>
  void check_all(GemmType type);

 private:
  static std::string title(const char* op, const Layer& l) {
    return fmt::format("{} {}x{}->{}", op, l.n, l.in, l.out);
  }
  std::set<std::string> seen_;
};

std::set<std::string> with(std::set<std::string> some, const std::set<std::string>& more) {
  some.insert(more.begin(), more.end());
  return some;
}

// The variants that cuda/gemm/variants.cuh adds. "swap" computes the transposed product.
const std::set<std::string> kSplit{
    "wgmma_split_64x16_9stages",      "wgmma_split_64x32_7stages",
    "wgmma_split_64x64_5stages",      "wgmma_split_64x128_7stages",
    "wgmma_split_128x64_3stages",     "wgmma_split_64x16_9stages_swap",
    "wgmma_split_64x32_7stages_swap", "wgmma_split_64x64_5stages_swap"};
const std::set<std::string> kDeep{
    "wgmma_split_128x16_9stages",      "wgmma_split_128x32_8stages",
    "wgmma_split_64x64_11stages",      "wgmma_split_128x16_9stages_swap",
    "wgmma_split_128x32_8stages_swap", "wgmma_split_64x64_11stages_swap"};
const std::set<std::string> kPersistent{"wgmma_persistent_128x128", "wgmma_persistent_128x256"};
const std::set<std::string> kMma{"mma_64x64", "mma_64x16"};
const std::set<std::string> kFlat{"direct_flat_32x64_iterations"};

template <typename T>
void GemmVariants::check_all(GemmType type) {
  const auto all = with(with(kSplit, kDeep), with(kPersistent, kMma));
  for (const auto& [m, n, k] : kProducts) {
    for (const auto& [bias, relu] : {std::pair{false, false}, {true, false}, {true, true}}) {
      check_linear<T>(type, {m, k, n}, bias, relu);
    }
  }
  expect_seen("linear", with(all, with(kFlat, {"wgmma_persistent_128x208"})));
  for (const auto& [m, n, k] : kProducts) check_grad_x<T>(type, {m, n, k});
  expect_seen("linear_grad_x", with(all, {"wgmma_persistent_256x208"}));
  for (const auto& [m, n, k] : kProducts) check_grad_w<T, T>(type, {k, n, m});
  expect_seen("linear_grad_w", with(all, with(kFlat, {"wgmma_persistent_256x208"})));
  for (const auto& [m, n, k] : kProducts) check_grad_w<T, float>(type, {k, n, m});
  expect_seen("linear_grad_w in fp32", with(all, with(kFlat, {"wgmma_persistent_256x208"})));
}

TEST_F(GemmVariants, OfBf16AreExact) { check_all<__nv_bfloat16>(GemmType::bf16); }
TEST_F(GemmVariants, OfFp16AreExact) { check_all<__half>(GemmType::fp16); }

TEST_F(GemmVariants, OfTf32AreExact) {
  for (const auto& [m, n, k] : kProducts) {
    for (const auto& [bias, relu] : {std::pair{false, false}, {true, false}, {true, true}}) {
      check_linear<float>(GemmType::tf32, {m, k, n}, bias, relu);
    }
  }
  expect_seen("linear", with(kSplit, kPersistent));
}

}  // namespace
}  // namespace ridgeline::test
