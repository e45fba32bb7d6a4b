// The products of ridgeline/cuda/tile, checked against double precision and timed beside cuBLASLt.
//   tile_bench check           every variant, several splits, ordinary and awkward shapes
//   tile_bench time [N IN OUT] the three products of a linear layer; default 3000 784 512
//   tile_bench once            each kernel once, for a profiler
//   tile_bench step            784-512-10, sigmoid, batch 3000: the kernels of a step, and all of
//   it
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "ridgeline/cuda/gemm_products.h"
#include "ridgeline/cuda/plain/gather.h"
#include "ridgeline/cuda/plain/gemm.h"
#include "ridgeline/cuda/tile/tile.h"
#include "ridgeline/cuda/vendor/product.h"

namespace ridgeline::bench {
namespace {

using namespace ridgeline::cuda;

void check_cuda(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::printf("%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(int64_t count) : count_(count) {
    check_cuda(cudaMalloc(&data_, size_t(count + 64) * sizeof(T)), "cudaMalloc");
    check_cuda(cudaMemset(data_, 0, size_t(count + 64) * sizeof(T)), "cudaMemset");
  }
  explicit DeviceArray(const std::vector<T>& host) : DeviceArray(int64_t(host.size())) {
    check_cuda(cudaMemcpy(data_, host.data(), host.size() * sizeof(T), cudaMemcpyDefault), "copy");
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  T* get() const { return data_; }
  void poison() const { check_cuda(cudaMemset(data_, 0xff, size_t(count_) * sizeof(T)), "poison"); }
  std::vector<T> read() const {
    std::vector<T> host(static_cast<size_t>(count_));
    check_cuda(cudaMemcpy(host.data(), data_, host.size() * sizeof(T), cudaMemcpyDefault), "read");
    return host;
  }

 private:
  T* data_ = nullptr;
  int64_t count_;
};

template <typename T>
std::vector<T> random(int64_t count, unsigned seed) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<T> values(static_cast<size_t>(count));
  for (T& value : values) value = T(uniform(engine));
  return values;
}
template <typename T>
std::vector<double> widened(const std::vector<T>& from) {
  return {from.begin(), from.end()};
}

// ||got - want|| / ||want||, not a number where got is.
template <typename T>
double distance(const std::vector<T>& got, const std::vector<double>& want) {
  double off = 0, size = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    off += (double(got[i]) - want[i]) * (double(got[i]) - want[i]);
    size += want[i] * want[i];
  }
  return std::sqrt(off / size);
}

const char* name(TileMath math) {
  constexpr const char* kNames[] = {"fp32", "fp32 in fp64", "fp64", "tf32", "fp32x3"};
  return kNames[int(math)];
}
// What the distance may be: random errors of each factor, and sums that grow as their root.
double allowed(TileMath math) {
  constexpr double kAllowed[] = {2e-6, 2e-6, 1e-14, 5e-4, 2e-6};
  return kAllowed[int(math)];
}

// The operands of a layer of T, and of doubles with the same numbers.
template <typename T>
struct Layer {
  Layer(int rows, int inputs, int outputs)
      : n(rows),
        in(inputs),
        out(outputs),
        x(random<T>(int64_t(n) * in, 1)),
        w(random<T>(int64_t(out) * in, 2)),
        b(random<T>(out, 3)),
        dy(random<T>(int64_t(n) * out, 4)),
        dev_x(x),
        dev_w(w),
        dev_b(b),
        dev_dy(dy),
        y(int64_t(n) * out),
        dx(int64_t(n) * in),
        dw(int64_t(out) * in),
        db(out) {}

  int n, in, out;
  std::vector<T> x, w, b, dy;
  DeviceArray<T> dev_x, dev_w, dev_b, dev_dy, y, dx, dw, db;

  LinearArgs<T> linear(Curve curve) const {
    return {dev_x.get(), dev_w.get(), dev_b.get(), y.get(), n, in, out, curve};
  }
  TileGradXArgs<T> grad_x(bool slope) const {
    return {dev_dy.get(),
            dev_w.get(),
            dx.get(),
            n,
            in,
            out,
            slope ? dev_x.get() : nullptr,
            slope ? Curve::tanh : Curve::none};
  }
  TileGradWArgs<T> grad_w() const {
    TileGradWArgs<T> args{};
    args.product.x = dev_x.get();
    args.product.dy = dev_dy.get();
    args.product.dw = dw.get();
    args.product.db = db.get();
    args.product.n = n;
    args.product.in = in;
    args.product.out = out;
    return args;
  }
  std::vector<TileChoice> choices(TileMath math, TileProduct product) const {
    switch (product) {
      case TileProduct::linear:
        return tile_choices(math, product, n, out, in);
      case TileProduct::grad_x:
        return tile_choices(math, product, n, in, out);
      case TileProduct::grad_w:
        return tile_choices(math, product, out, in, n);
    }
    return {};
  }
  cudaError_t run(TileProduct product, const TileChoice& choice, const TileMemory& memory,
                  cudaStream_t stream) const {
    const TileKernels<T>& kernels = tile_kernels<T>(choice.math);
    switch (product) {
      case TileProduct::linear:
        return kernels.linear(choice, linear(Curve::sigmoid), memory, stream);
      case TileProduct::grad_x:
        return kernels.grad_x(choice, grad_x(true), memory, stream);
      case TileProduct::grad_w:
        return kernels.grad_w(choice, grad_w(), memory, stream);
    }
    return cudaErrorInvalidValue;
  }
};

struct Scratch {
  DeviceArray<char> partial{256 << 20};
  DeviceArray<unsigned> counters{1 << 20};
  TileMemory memory() const { return {partial.get(), counters.get()}; }
};

constexpr TileProduct kProducts[] = {TileProduct::linear, TileProduct::grad_x, TileProduct::grad_w};
constexpr const char* kProductNames[] = {"linear", "grad_x", "grad_w"};
constexpr TileMath kMaths[] = {TileMath::fp32, TileMath::fp64, TileMath::tf32, TileMath::fp32x3};

// What every result should be, by the plain kernels in double.
struct Wanted {
  std::vector<double> y, dx, dw, db;

  template <typename T>
  explicit Wanted(const Layer<T>& layer) {
    const int n = layer.n, in = layer.in, out = layer.out;
    const DeviceArray<double> x(widened(layer.x)), w(widened(layer.w)), b(widened(layer.b)),
        dy(widened(layer.dy)), result_y(int64_t(n) * out), result_dx(int64_t(n) * in),
        result_dw(int64_t(out) * in), result_db(out);
    launch_linear<double>({x.get(), w.get(), b.get(), result_y.get(), n, in, out, Curve::sigmoid},
                          {}, nullptr, nullptr);
    launch_linear_grad_x<double>({dy.get(), w.get(), result_dx.get(), n, in, out}, {}, nullptr,
                                 nullptr);
    LinearGradWArgs<double> args{};
    args.x = x.get();
    args.dy = dy.get();
    args.dw = result_dw.get();
    args.db = result_db.get();
    args.n = n;
    args.in = in;
    args.out = out;
    launch_linear_grad_w<double>(args, {}, nullptr, nullptr);
    check_cuda(cudaDeviceSynchronize(), "the reference");
    y = result_y.read();
    dx = result_dx.read();
    for (size_t i = 0; i < dx.size(); ++i) dx[i] *= 1 - double(layer.x[i]) * double(layer.x[i]);
    dw = result_dw.read();
    db = result_db.read();
  }
};

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
        // Also with blocks that share tiles at odd places; twice each, for the counters.
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

struct Candidate {
  std::string name;
  std::function<cudaError_t(cudaStream_t)> run;
  cudaGraphExec_t graph = nullptr;
  std::vector<float> times{};  // us a launch
  float median() const {
    std::vector<float> sorted = times;
    std::sort(sorted.begin(), sorted.end());
    return sorted.empty() ? 1e9f : sorted[sorted.size() / 2];
  }
};

// Graphs of several launches each, replayed in turns.
void time_all(std::vector<Candidate>& all, int launches) {
  cudaStream_t stream;
  cudaEvent_t start, stop;
  check_cuda(cudaStreamCreate(&stream), "stream");
  check_cuda(cudaEventCreate(&start), "event");
  check_cuda(cudaEventCreate(&stop), "event");
  for (Candidate& c : all) {
    cudaGraph_t graph;
    check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
    for (int i = 0; i < launches; ++i) check_cuda(c.run(stream), c.name.c_str());
    check_cuda(cudaStreamEndCapture(stream, &graph), "capture");
    check_cuda(cudaGraphInstantiate(&c.graph, graph, 0), "graph");
    cudaGraphDestroy(graph);
  }
  for (int round = -2; round < 15; ++round) {
    for (Candidate& c : all) {
      float ms = 0;
      cudaEventRecord(start, stream);
      check_cuda(cudaGraphLaunch(c.graph, stream), c.name.c_str());
      cudaEventRecord(stop, stream);
      check_cuda(cudaEventSynchronize(stop), c.name.c_str());
      cudaEventElapsedTime(&ms, start, stop);
      if (round >= 0) c.times.push_back(ms * 1e3f / float(launches));
    }
  }
  for (Candidate& c : all) cudaGraphExecDestroy(c.graph);
  std::stable_sort(all.begin(), all.end(),
                   [](const Candidate& x, const Candidate& y) { return x.median() < y.median(); });
}

// The library's product for ours: column-major, so B comes first.
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
        // The copy-engine kernels take k-major operands: of the gradient, as if both were
        // transposed.
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

// 784-512-10 by gather, linear, head and gradient with the updates.
template <typename T>
class Step {
 public:
  static constexpr int kRows = 3000, kIn = 784, kHidden = 512, kClasses = 10, kSet = 60000;

  Step(TileMath math, const Scratch& scratch) : math_(math), scratch_(scratch) {
    std::mt19937 engine(5);
    std::vector<uint8_t> images(size_t(kSet) * kIn);
    std::vector<int32_t> labels(kSet), order(kSet);
    for (uint8_t& byte : images) byte = uint8_t(engine());
    for (int32_t& label : labels) label = int32_t(engine() % kClasses);
    for (int32_t i = 0; i < kSet; ++i) order[size_t(i)] = i;
    std::shuffle(order.begin(), order.end(), engine);
    const auto copy = [](auto& to, const auto& from) {
      check_cuda(
          cudaMemcpy(to.get(), from.data(), from.size() * sizeof(from[0]), cudaMemcpyDefault),
          "copy");
    };
    copy(images_, images);
    copy(labels_, labels);
    copy(order_, order);
    copy(w1_, random<T>(kHidden * kIn, 1));
    copy(w2_, random<T>(kClasses * kHidden, 2));
    layout_ = head_layout(kRows, kHidden, kClasses, sizeof(T));
    partial_ = std::make_unique<DeviceArray<T>>(layout_.parts * layout_.sums(kHidden, kClasses));
    forward_ = tile_choices(math, TileProduct::linear, kRows, kHidden, kIn);
    backward_ = tile_choices(math, TileProduct::grad_w, kHidden, kIn, kRows);
  }

  cudaError_t gather(cudaStream_t stream) const {
    GatherArgs args;
    args.set = images_.get();
    args.y = x_.get();
    args.labels = labels_.get();
    args.label = label_.get();
    args.order = order_.get();
    args.first = first_.get();
    args.tick = tick_.get();
    args.n = kRows;
    args.row = kIn;
    args.scale = 1.0 / 255;
    return launch_gather<T>(args, stream);
  }
  cudaError_t linear(const TileChoice& choice, cudaStream_t stream) const {
    return tile_kernels<T>(choice.math)
        .linear(choice,
                {x_.get(), w1_.get(), b1_.get(), h_.get(), kRows, kIn, kHidden, Curve::sigmoid},
                scratch_.memory(), stream);
  }
  cudaError_t head(cudaStream_t stream) const {
    HeadArgs<T> args{};
    args.h = h_.get();
    args.w = w2_.get();
    args.b = b2_.get();
    args.label = label_.get();
    args.dz = dz_.get();
    args.n = kRows;
    args.hidden = kHidden;
    args.classes = kClasses;
    args.curve = Curve::sigmoid;
    args.scale = 1.0 / kRows;
    args.rows = layout_.rows;
    args.partial = partial_->get();
    args.loss = part_loss_.get();
    args.correct = part_correct_.get();
    return launch_head(args, layout_, stream);
  }
  cudaError_t grad_w(const TileChoice& choice, bool whole, cudaStream_t stream) const {
    TileGradWArgs<T> args{};
    args.product.x = x_.get();
    args.product.dy = dz_.get();
    args.product.w = w1_.get();
    args.product.n = kRows;
    args.product.in = kIn;
    args.product.out = kHidden;
    args.product.sgd.lr = lr_.get();
    args.product.sgd.tick = tick_.get();
    if (whole) {
      HeadSums<T>& head = args.head;
      head.parts = layout_.parts;
      head.hidden = kHidden;
      head.classes = kClasses;
      head.partial = partial_->get();
      head.part_loss = part_loss_.get();
      head.part_correct = part_correct_.get();
      head.w = w2_.get();
      head.b = b2_.get();
      head.below = b1_.get();
      head.sgd = args.product.sgd;
      head.scale = 1.0 / kRows;
      head.loss = loss_.get();
      head.correct = correct_.get();
      args.tick = fake_tick_.get();
      args.done = done_.get();
    }
    return tile_kernels<T>(choice.math).grad_w(choice, args, scratch_.memory(), stream);
  }

  void time() {
    std::vector<Candidate> parts;
    parts.push_back({"gather", [&](cudaStream_t s) { return gather(s); }});
    parts.push_back({"head", [&](cudaStream_t s) { return head(s); }});
    for (const TileChoice& c : forward_) {
      parts.push_back({"linear " + std::string(name(c.math)) + " " + c.name,
                       [&](cudaStream_t s) { return linear(c, s); }});
    }
    for (const TileChoice& c : backward_) {
      parts.push_back({"grad_w " + std::string(name(c.math)) + " " + c.name,
                       [&](cudaStream_t s) { return grad_w(c, false, s); }});
      parts.push_back(
          {"grad_w+sums " + c.name, [&](cudaStream_t s) { return grad_w(c, true, s); }});
    }
    for (const TileChoice& f : forward_) {
      for (const TileChoice& b : backward_) {
        parts.push_back({"STEP " + std::string(name(f.math)) + " " + f.name + ", " + b.name,
                         [&](cudaStream_t s) {
                           for (const cudaError_t error :
                                {gather(s), linear(f, s), head(s), grad_w(b, true, s)}) {
                             if (error != cudaSuccess) return error;
                           }
                           return cudaSuccess;
                         }});
      }
    }
    time_all(parts, 10);
    std::printf("%s, 784-512-10, batch 3000\n", name(math_));
    for (const Candidate& c : parts) std::printf("  %8.2f us  %s\n", c.median(), c.name.c_str());
  }

 private:
  TileMath math_;
  const Scratch& scratch_;
  HeadLayout layout_;
  std::vector<TileChoice> forward_, backward_;
  DeviceArray<uint8_t> images_{int64_t(kSet) * kIn};
  DeviceArray<int32_t> labels_{kSet}, order_{kSet}, label_{kRows}, tick_{1}, fake_tick_{1},
      correct_{4}, part_correct_{kRows};
  DeviceArray<int64_t> first_{1};
  DeviceArray<double> lr_{4}, loss_{4}, part_loss_{kRows};
  DeviceArray<unsigned> done_{1};
  DeviceArray<T> x_{kRows * kIn}, h_{kRows * kHidden}, dz_{kRows * kHidden}, w1_{kHidden * kIn},
      b1_{kHidden}, w2_{kClasses * kHidden}, b2_{kClasses};
  std::unique_ptr<DeviceArray<T>> partial_;
};

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
