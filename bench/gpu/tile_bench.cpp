// The products of ridgeline/cuda/tile, checked against double precision and timed beside cuBLASLt.
//   tile_bench check           every variant, several splits, ordinary and awkward shapes
//   tile_bench time [N IN OUT] the three products of a linear layer; default 3000 784 512
//   tile_bench once            each kernel once, for a profiler
//   tile_bench step            784-512-10, sigmoid, batch 3000: a step, and its kernels
#include "bench/gpu/tile_step.h"
#include "ridgeline/cuda/gemm/products.h"
#include "ridgeline/cuda/vendor/product.h"

namespace ridgeline::bench {
namespace {

template <typename T>
int check_layer(int n, int in, int out, const std::vector<TileMath>& maths,
                const Scratch& scratch) {
  const Layer<T> layer(n, in, out);
  const Wanted wanted(layer);
  int failures = 0;
  for (const TileMath math : maths) {
    double worst = 0;
    for (const TileProduct product : kProducts) {
      for (const TileChoice& found : layer.choices(math, product)) {
        const int64_t best = found.blocks;
        // Also with blocks that share tiles at odd positions; each twice, to test the counters.
        const int k = product == TileProduct::linear   ? in
                      : product == TileProduct::grad_x ? out
                                                       : n;
        for (const int64_t blocks : {best, int64_t(2), int64_t(3), int64_t(131), best}) {
          TileChoice choice = found;
          if (blocks != best) {
            if (k < 96 || (blocks > 3 && int64_t(n) * in < 1000000)) continue;
            choice.workspace = 1;  // the scratch memory here is large enough
          }
          choice.blocks = blocks;
          layer.y.poison();
          layer.dx.poison();
          layer.dw.poison();
          layer.db.poison();
          for (int twice = 0; twice < 2; ++twice) {
            check_cuda(layer.run(product, choice, scratch.memory(), nullptr), choice.name.c_str());
          }
          check_cuda(cudaDeviceSynchronize(), choice.name.c_str());
          double off = product == TileProduct::linear   ? distance(layer.y.read(), wanted.y)
                       : product == TileProduct::grad_x ? distance(layer.dx.read(), wanted.dx)
                                                        : distance(layer.dw.read(), wanted.dw);
          if (product == TileProduct::grad_w) {
            const double sums = distance(layer.db.read(), wanted.db);
            if (!(sums <= 2e-6)) off = sums;
          }
          worst = std::max(worst, off);
          if (off <= allowed(math)) continue;
          ++failures;
          std::printf("WRONG %s %s %s (run in %d) %d x %d -> %d: off by %.3g\n", name(choice.math),
                      kProductNames[int(product)], choice.name.c_str(), int(blocks), n, in, out,
                      off);
        }
      }
    }
    std::printf("%-6s %4d x %4d -> %4d  worst %.2e\n", name(math), n, in, out, worst);
  }
  return failures;
}

int check() {
  const Scratch scratch;
  int failures = 0;
  constexpr int kShapes[][3] = {{3000, 784, 512}, {1, 1, 1},      {7, 13, 5},    {129, 65, 131},
                                {257, 300, 33},   {64, 1000, 64}, {500, 10, 96}, {1000, 96, 10}};
  for (const auto& [n, in, out] : kShapes) {
    failures +=
        check_layer<float>(n, in, out, {TileMath::fp32, TileMath::tf32, TileMath::fp32x3}, scratch);
    failures += check_layer<double>(n, in, out, {TileMath::fp64}, scratch);
  }
  std::printf("%s\n", failures == 0 ? "all agree" : "SOME ARE WRONG");
  return failures == 0 ? 0 : 1;
}

// cuBLASLt's product for ours: column-major, so B comes first.
template <typename T>
Product vendor_product(const Layer<T>& layer, TileMath math, TileProduct product) {
  Product p;
  p.dtype = sizeof(T) == 8 ? DType::fp64 : DType::fp32;
  p.precision = math == TileMath::tf32   ? Precision::tf32
                : math == TileMath::fp64 ? Precision::fp64
                                         : Precision::fp32;
  switch (product) {
    case TileProduct::linear:
      p.m = layer.out, p.n = layer.n, p.k = layer.in;
      p.a_transposed = true;
      break;
    case TileProduct::grad_x:
      p.m = layer.in, p.n = layer.n, p.k = layer.out;
      break;
    case TileProduct::grad_w:
      p.m = layer.in, p.n = layer.out, p.k = layer.n;
      p.b_transposed = true;
      break;
  }
  return p;
}

template <typename T>
ProductOperands vendor_operands(const Layer<T>& layer, TileProduct product) {
  switch (product) {
    case TileProduct::linear:
      return {layer.dev_w.get(), layer.dev_x.get(), layer.y.get(), nullptr};
    case TileProduct::grad_x:
      return {layer.dev_w.get(), layer.dev_dy.get(), layer.dx.get(), nullptr};
    case TileProduct::grad_w:
      return {layer.dev_x.get(), layer.dev_dy.get(), layer.dw.get(), nullptr};
  }
  return {};
}

template <typename T>
void time_layer(int n, int in, int out, const std::vector<TileMath>& maths, const CublasLt& library,
                const Scratch& scratch) {
  const Layer<T> layer(n, in, out);
  const DeviceArray<char> vendor_scratch(64 << 20);
  for (const TileMath math : maths) {
    for (const TileProduct product : kProducts) {
      std::vector<Candidate> all;
      for (const TileChoice& found : layer.choices(math, product)) {
        char label[96];
        std::snprintf(label, sizeof(label), "ours %s %s, guess %.0f", name(found.math),
                      found.name.c_str(), found.estimate_us);
        all.push_back({label, [&layer, &scratch, product, found](cudaStream_t stream) {
                         return layer.run(product, found, scratch.memory(), stream);
                       }});
      }
      if constexpr (sizeof(T) == 4) {
        // The TMA kernels take k-major operands: for the gradient, as if both were transposed.
        const bool linear = product == TileProduct::linear;
        if (math == TileMath::tf32 && product != TileProduct::grad_x) {
          const LinearGemm forward{GemmType::tf32,
                                   n,
                                   in,
                                   out,
                                   layer.dev_x.get(),
                                   layer.dev_w.get(),
                                   layer.dev_b.get(),
                                   layer.y.get(),
                                   false};
          const LinearGemm gradient{
              GemmType::tf32, out,  n, in, layer.dev_dy.get(), layer.dev_x.get(), nullptr,
              layer.dw.get(), false};
          for (const PreparedGemm& way : linear_gemms(linear ? forward : gradient)) {
            all.push_back({"k-major " + way.name, [run = way.run](cudaStream_t stream) {
                             run(stream);
                             return cudaSuccess;
                           }});
          }
        }
      }
      std::shared_ptr<PreparedProduct> prepared;
      const ProductOperands operands = vendor_operands(layer, product);
      if (library.refusal().empty()) {
        const Product vendor = vendor_product(layer, math, product);
        prepared = std::make_shared<PreparedProduct>(library, vendor, &operands, 8);
        for (size_t i = 0; i < prepared->algorithms(); ++i) {
          all.push_back(
              {"cublaslt." + std::to_string(i),
               [prepared, i, operands, scratch = vendor_scratch.get()](cudaStream_t stream) {
                 return prepared->run(i, operands, scratch, stream) == CUBLAS_STATUS_SUCCESS
                            ? cudaSuccess
                            : cudaErrorUnknown;
               }});
        }
      }
      time_all(all, 12);
      const double flops = 2.0 * n * in * out;
      std::printf("%s %s %d x %d -> %d\n", name(math), kProductNames[int(product)], n, in, out);
      for (const Candidate& c : all) {
        std::printf("  %8.2f us  %6.1f TFLOP/s  %s\n", c.median(), flops / c.median() * 1e-6,
                    c.name.c_str());
      }
    }
  }
}

// Each kernel once, for a profiler.
template <typename T>
void once(const std::vector<TileMath>& maths, const Scratch& scratch) {
  const Layer<T> layer(3000, 784, 512);
  for (const TileMath math : maths) {
    for (const TileProduct product : {TileProduct::linear, TileProduct::grad_w}) {
      for (const TileChoice& choice : layer.choices(math, product)) {
        std::printf("%s %s %s\n", name(choice.math), kProductNames[int(product)],
                    choice.name.c_str());
        check_cuda(layer.run(product, choice, scratch.memory(), nullptr), choice.name.c_str());
      }
    }
    check_cuda(Step<T>(math, scratch).head(nullptr), "head");
  }
  check_cuda(cudaDeviceSynchronize(), "once");
}

int run(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "check") return check();
  const Scratch scratch;
  if (mode == "time") {
    const auto number = [&](int i, int otherwise) {
      return argc > 4 ? std::atoi(argv[i]) : otherwise;
    };
    const int n = number(2, 3000), in = number(3, 784), out = number(4, 512);
    const CublasLt library;
    if (!library.refusal().empty()) std::printf("%s\n", library.refusal().c_str());
    time_layer<float>(n, in, out, {TileMath::fp32, TileMath::tf32, TileMath::fp32x3}, library,
                      scratch);
    time_layer<double>(n, in, out, {TileMath::fp64}, library, scratch);
    return 0;
  }
  if (mode == "once") {
    once<float>({TileMath::fp32, TileMath::tf32, TileMath::fp32x3}, scratch);
    once<double>({TileMath::fp64}, scratch);
    return 0;
  }
  if (mode == "step") {
    for (const TileMath math : kMaths) {
      if (math == TileMath::fp64) {
        Step<double>(math, scratch).time();
      } else {
        Step<float>(math, scratch).time();
      }
    }
    return 0;
  }
  std::printf("tile_bench check | time [N IN OUT] | step\n");
  return 2;
}

}  // namespace
}  // namespace ridgeline::bench

int main(int argc, char** argv) { return ridgeline::bench::run(argc, argv); }
