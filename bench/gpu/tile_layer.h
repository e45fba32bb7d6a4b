#pragma once

// A linear layer's operands on the device, and the expected results of its products.
#include <cuda_runtime.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "ridgeline/cuda/plain/gemm.h"
#include "ridgeline/cuda/tile/tile.h"

namespace ridgeline::bench {

using namespace ridgeline::cuda;

inline void check_cuda(cudaError_t error, const char* what) {
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

// |got - want|| / ||want||; NaN if `got` has a NaN.
template <typename T>
double distance(const std::vector<T>& got, const std::vector<double>& want) {
  double off = 0, size = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    off += (double(got[i]) - want[i]) * (double(got[i]) - want[i]);
    size += want[i] * want[i];
  }
  return std::sqrt(off / size);
}

inline const char* name(TileMath math) {
  constexpr const char* kNames[] = {"fp32", "fp32 in fp64", "fp64", "tf32", "fp32x3"};
  return kNames[int(math)];
}
// The allowed distance: random errors of each factor, and sums that grow as their root.
inline double allowed(TileMath math) {
  constexpr double kAllowed[] = {2e-6, 2e-6, 1e-14, 5e-4, 2e-6};
  return kAllowed[int(math)];
}

// The operands of a layer in T, and in double with the same numbers.
template <typename T>
struct Layer {
  Layer(int samples, int inputs, int outputs)
      : n(samples),
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

  LinearArgs<T> linear(ActivationFn activation) const {
    return {dev_x.get(), dev_w.get(), dev_b.get(), nullptr, y.get(), n, in, out, activation};
  }
  TileGradXArgs<T> grad_x(bool slope) const {
    return {dev_dy.get(),
            dev_w.get(),
            dx.get(),
            n,
            in,
            out,
            slope ? dev_x.get() : nullptr,
            slope ? ActivationFn::tanh : ActivationFn::none};
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
        return kernels.linear(choice, linear(ActivationFn::sigmoid), memory, stream);
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

// The expected results, by the plain kernels in double.
struct Wanted {
  std::vector<double> y, dx, dw, db;

  template <typename T>
  explicit Wanted(const Layer<T>& layer) {
    const int n = layer.n, in = layer.in, out = layer.out;
    const DeviceArray<double> x(widened(layer.x)), w(widened(layer.w)), b(widened(layer.b)),
        dy(widened(layer.dy)), result_y(int64_t(n) * out), result_dx(int64_t(n) * in),
        result_dw(int64_t(out) * in), result_db(out);
    launch_linear<double>(
        {x.get(), w.get(), b.get(), nullptr, result_y.get(), n, in, out, ActivationFn::sigmoid}, {},
        nullptr, nullptr);
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

}  // namespace ridgeline::bench
