// The whole-step training kernels, checked and timed.
//   mlp_train_bench check            against a loop in double precision with the kernels' roundings
//   mlp_train_bench bench [h ...]    us a step of 784-h-h-h-10, batch 32
//   mlp_train_bench mnist FOLDER     trains on the 10,000 images of IDX files there
//   mlp_train_bench sanitize         small and short, to run under compute-sanitizer

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "ridgeline/cuda/mlp_train/mlp_train.h"

namespace {

using namespace ridgeline::cuda;

#define CHECK_CUDA(call)                                                                \
  do {                                                                                  \
    const cudaError_t e_ = (call);                                                      \
    if (e_ != cudaSuccess) {                                                            \
      std::printf("%s:%d %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(e_)); \
      std::exit(1);                                                                     \
    }                                                                                   \
  } while (0)

template <typename T>
class OnDevice {
 public:
  OnDevice() = default;
  explicit OnDevice(size_t n) : n_(n) {
    CHECK_CUDA(cudaMalloc(&p_, std::max<size_t>(n, 1) * sizeof(T)));
  }
  explicit OnDevice(const std::vector<T>& v) : OnDevice(v.size()) { set(v); }
  OnDevice(OnDevice&& o) noexcept : p_(std::exchange(o.p_, nullptr)), n_(o.n_) {}
  OnDevice& operator=(OnDevice&& o) noexcept {
    std::swap(p_, o.p_), std::swap(n_, o.n_);
    return *this;
  }
  ~OnDevice() { cudaFree(p_); }
  void set(const std::vector<T>& v) {
    CHECK_CUDA(cudaMemcpy(p_, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice));
  }
  std::vector<T> get() const {
    std::vector<T> v(n_);
    CHECK_CUDA(cudaMemcpy(v.data(), p_, n_ * sizeof(T), cudaMemcpyDeviceToHost));
    return v;
  }
  void poison() { CHECK_CUDA(cudaMemset(p_, 0xff, n_ * sizeof(T))); }
  T* p() const { return p_; }

 private:
  T* p_ = nullptr;
  size_t n_ = 0;
};

const char* name(MlpTrainHow how) {
  return how == MlpTrainHow::cluster    ? "cluster"
         : how == MlpTrainHow::resident ? "grid-resident"
                                        : "grid-streamed";
}

std::string describe(const MlpTrainShape& s) {
  std::string text;
  for (int l = 0; l <= s.layers; ++l) text += (l ? "-" : "") + std::to_string(s.sizes[l]);
  const char* f[] = {"relu", "tanh", "sigmoid"};
  return text + " b" + std::to_string(s.batch) + " " + f[int(s.activation)] +
         (s.half == MlpHalf::fp16 ? " fp16" : " bf16") + (s.masters ? "+masters" : "");
}

float round_half(MlpHalf half, double v) {
  return half == MlpHalf::fp16 ? __half2float(__float2half_rn(float(v)))
                               : __bfloat162float(__float2bfloat16_rn(float(v)));
}
uint16_t to_bits(MlpHalf half, float v) {
  uint16_t bits;
  const __half h = __float2half_rn(v);
  const __nv_bfloat16 b = __float2bfloat16_rn(v);
  std::memcpy(&bits, half == MlpHalf::fp16 ? static_cast<const void*>(&h) : &b, 2);
  return bits;
}
float from_bits(MlpHalf half, uint16_t bits) {
  __half h;
  __nv_bfloat16 b;
  std::memcpy(&h, &bits, 2), std::memcpy(&b, &bits, 2);
  return half == MlpHalf::fp16 ? __half2float(h) : __bfloat162float(b);
}

// Images that can be learnt: a pattern a class, and noise.
struct Data {
  int features, classes, rows;
  std::vector<uint8_t> images;
  std::vector<int32_t> labels, order;
};

Data make_data(int features, int classes, int rows, int order_length, unsigned seed) {
  Data d{features, classes, rows, {}, {}, {}};
  std::mt19937 rng(seed);
  std::vector<uint8_t> pattern(size_t(features) * classes);
  for (auto& p : pattern) p = rng() & 0xff;
  d.images.resize(size_t(features) * rows), d.labels.resize(rows), d.order.resize(order_length);
  for (int r = 0; r < rows; ++r) {
    const int c = d.labels[r] = int(rng() % classes);
    for (int k = 0; k < features; ++k) {
      d.images[size_t(r) * features + k] = (pattern[size_t(c) * features + k] + (rng() & 0xff)) / 2;
    }
  }
  for (auto& o : d.order) o = int32_t(rng() % rows);
  return d;
}

struct Weights {
  std::vector<std::vector<float>> w, b;  // [layer]
};

Weights make_weights(const MlpTrainShape& s, unsigned seed) {
  Weights out;
  std::minstd_rand rng(seed);  // millions of weights: speed counts
  for (int l = 0; l < s.layers; ++l) {
    const double limit = std::sqrt(6.0 / s.sizes[l]);
    const auto draw = [&](double most) {
      const float v = float(most * (double(rng()) / double(1u << 30) - 1.0));
      return s.masters ? v : round_half(s.half, v);
    };
    std::vector<float> w(size_t(s.sizes[l]) * s.sizes[l + 1]), b(s.sizes[l + 1]);
    for (auto& x : w) x = draw(limit);
    for (auto& x : b) x = draw(0.1);
    out.w.push_back(std::move(w)), out.b.push_back(std::move(b));
  }
  return out;
}

// The net on the device with everything a launch needs.
struct Net {
  MlpTrainShape shape;
  MlpTrainArgs args;
  std::vector<OnDevice<uint16_t>> w, b;
  std::vector<OnDevice<float>> mw, mb;
  OnDevice<uint8_t> images;
  OnDevice<int32_t> labels, order, correct;
  OnDevice<int64_t> first;
  OnDevice<double> lr;
  OnDevice<float> loss;

  Net(const MlpTrainShape& s, const Weights& init, const Data& d, const std::vector<double>& rates,
      int64_t start)
      : shape(s),
        images(d.images),
        labels(d.labels),
        order(d.order),
        correct(rates.size()),
        first(std::vector<int64_t>{start}),
        lr(rates),
        loss(rates.size()) {
    args.shape = s;
    for (int l = 0; l < s.layers; ++l) {
      std::vector<uint16_t> hw, hb;
      hw.reserve(init.w[l].size());
      for (float v : init.w[l]) hw.push_back(to_bits(s.half, v));
      for (float v : init.b[l]) hb.push_back(to_bits(s.half, v));
      w.emplace_back(hw), b.emplace_back(hb);
      args.w[l] = w[l].p(), args.bias[l] = b[l].p();
      if (s.masters) {
        w[l].poison(), b[l].poison();
        mw.emplace_back(init.w[l]), mb.emplace_back(init.b[l]);
        args.master_w[l] = mw[l].p(), args.master_bias[l] = mb[l].p();
      }
    }
    args.images = images.p(), args.labels = labels.p(), args.order = order.p();
    args.first = first.p(), args.lr = lr.p(), args.loss = loss.p(), args.correct = correct.p();
    args.scale = 1.0f / 255.0f, args.shift = -0.25f, args.steps = int(rates.size());
    loss.poison(), correct.poison();
  }
  Weights read() const {
    Weights out;
    for (int l = 0; l < shape.layers; ++l) {
      std::vector<float> fw, fb;
      if (shape.masters) {
        fw = mw[l].get(), fb = mb[l].get();
      } else {
        for (uint16_t v : w[l].get()) fw.push_back(from_bits(shape.half, v));
        for (uint16_t v : b[l].get()) fb.push_back(from_bits(shape.half, v));
      }
      out.w.push_back(fw), out.b.push_back(fb);
    }
    return out;
  }
};

double activate(MlpActivation f, double x) {
  return f == MlpActivation::relu   ? std::max(x, 0.0)
         : f == MlpActivation::tanh ? std::tanh(x)
                                    : 1 / (1 + std::exp(-x));
}
double derivative(MlpActivation f, double y) {
  return f == MlpActivation::relu   ? double(y > 0)
         : f == MlpActivation::tanh ? 1 - y * y
                                    : y * (1 - y);
}

// The same steps in double, rounding to half where the kernels do: inputs, activations, gradients
// by activations (before the division by the batch), and weights.
void reference(const MlpTrainArgs& args, const Data& d, int64_t first,
               const std::vector<double>& rates, Weights& net, std::vector<double>& loss,
               std::vector<int>& correct) {
  const auto& s = args.shape;
  const int B = s.batch, L = s.layers;
  for (size_t t = 0; t < rates.size(); ++t) {
    std::vector<std::vector<float>> y(L + 1), dy(L + 1), hw(L);
    y[0].resize(size_t(B) * s.sizes[0]);
    std::vector<int> label(B);
    for (int b = 0; b < B; ++b) {
      const int row = d.order[first + t * B + b];
      label[b] = d.labels[row];
      for (int k = 0; k < s.sizes[0]; ++k) {
        const float byte = d.images[size_t(row) * d.features + k];
        y[0][size_t(b) * s.sizes[0] + k] =
            round_half(s.half, std::fma(byte, args.scale, args.shift));
      }
    }
    std::vector<double> logits;
    for (int l = 0; l < L; ++l) {
      const int in = s.sizes[l], out = s.sizes[l + 1];
      hw[l] = net.w[l];
      if (s.masters)
        for (auto& v : hw[l]) v = round_half(s.half, v);
      y[l + 1].resize(size_t(B) * out);
      for (int b = 0; b < B; ++b) {
        for (int o = 0; o < out; ++o) {
          double sum = 0;
          const float *x = &y[l][size_t(b) * in], *w = &hw[l][size_t(o) * in];
          for (int k = 0; k < in; ++k) sum += double(x[k]) * w[k];
          sum += net.b[l][o];
          if (l + 1 == L) logits.push_back(sum);
          y[l + 1][size_t(b) * out + o] =
              l + 1 < L ? round_half(s.half, activate(s.activation, sum)) : float(sum);
        }
      }
    }
    const int C = s.sizes[L];
    dy[L].resize(size_t(B) * C);
    double total = 0;
    int hits = 0;
    for (int b = 0; b < B; ++b) {
      const double* z = &logits[size_t(b) * C];
      const double top = *std::max_element(z, z + C);
      double sum = 0;
      for (int c = 0; c < C; ++c) sum += std::exp(z[c] - top);
      total += std::log(sum) + top - z[label[b]];
      hits += std::max_element(z, z + C) - z == label[b];
      for (int c = 0; c < C; ++c) {
        dy[L][size_t(b) * C + c] = round_half(s.half, std::exp(z[c] - top) / sum - (c == label[b]));
      }
    }
    loss.push_back(total / B), correct.push_back(hits);
    for (int l = L - 1; l >= 0; --l) {
      const int in = s.sizes[l], out = s.sizes[l + 1];
      std::vector<double> dx(in);
      if (l > 0) dy[l].resize(size_t(B) * in);
      for (int b = 0; l > 0 && b < B; ++b) {
        std::fill(dx.begin(), dx.end(), 0.0);
        for (int o = 0; o < out; ++o) {
          const double g = dy[l + 1][size_t(b) * out + o];
          for (int k = 0; k < in; ++k) dx[k] += g * hw[l][size_t(o) * in + k];
        }
        for (int k = 0; k < in; ++k) {
          const size_t at = size_t(b) * in + k;
          dy[l][at] = round_half(s.half, dx[k] * derivative(s.activation, y[l][at]));
        }
      }
      std::vector<double> g(in);
      const double keep = 1 - rates[t] * args.weight_decay, step = rates[t] / B;
      const auto rounded = [&](double v) { return s.masters ? float(v) : round_half(s.half, v); };
      for (int o = 0; o < out; ++o) {
        std::fill(g.begin(), g.end(), 0.0);
        double gb = 0;
        for (int b = 0; b < B; ++b) {
          const double e = dy[l + 1][size_t(b) * out + o];
          gb += e;
          for (int k = 0; k < in; ++k) g[k] += e * y[l][size_t(b) * in + k];
        }
        float* w = &net.w[l][size_t(o) * in];
        for (int k = 0; k < in; ++k) w[k] = rounded(keep * w[k] - step * g[k]);
        net.b[l][o] = rounded(net.b[l][o] - step * gb);
      }
    }
  }
}

// |got - want| / |want - start|, over one tensor: the error of what training changed.
double change_error(const std::vector<float>& got, const std::vector<float>& want,
                    const std::vector<float>& start) {
  double error = 0, change = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    error += std::pow(double(got[i]) - want[i], 2),
        change += std::pow(double(want[i]) - start[i], 2);
    if (std::isnan(got[i])) return NAN;
  }
  return std::sqrt(error / std::max(change, 1e-30));
}

MlpTrainShape shape_of(std::vector<int> sizes, int batch, MlpActivation f = MlpActivation::relu,
                       bool masters = false, MlpHalf half = MlpHalf::fp16) {
  MlpTrainShape s;
  s.layers = int(sizes.size()) - 1;
  std::copy(sizes.begin(), sizes.end(), s.sizes);
  s.batch = batch, s.activation = f, s.masters = masters, s.half = half;
  return s;
}

using LayoutOf = MlpTrainLayout (*)(const MlpTrainShape&, int);
constexpr LayoutOf kLayouts[] = {mlp_train_cluster_layout, mlp_train_resident_layout,
                                 mlp_train_streamed_layout};

void launch(const Net& net, const MlpTrainLayout& layout, OnDevice<char>& workspace) {
  CHECK_CUDA(mlp_train_launch(net.args, layout, workspace.p(), nullptr));
  CHECK_CUDA(cudaGetLastError());
}

// Two launches: weights must survive between them. A third run of both must give the same bits.
bool check(const MlpTrainShape& shape, const MlpTrainLayout& layout, int steps, double decay,
           unsigned seed) {
  if (!layout.refusal.empty()) {
    std::printf("  refused %-13s %-40s %s\n", name(layout.how), describe(shape).c_str(),
                layout.refusal.c_str());
    return true;
  }
  const Data d =
      make_data(shape.sizes[0], shape.sizes[shape.layers], 500, 3 + 2 * steps * shape.batch, seed);
  std::vector<double> rates, both;
  for (int t = 0; t < steps; ++t) rates.push_back(0.02 / (1 + 0.1 * t));
  const Weights start = make_weights(shape, seed + 1);
  Weights want = start, runs[2];
  std::vector<double> want_loss;
  std::vector<int> want_correct;
  OnDevice<char> workspace(layout.workspace_bytes);
  std::vector<float> loss;
  std::vector<int> correct;
  for (auto& run : runs) {
    Net net(shape, start, d, rates, 3);
    net.args.weight_decay = decay;
    loss.clear(), correct.clear();
    for (int part = 0; part < 2; ++part) {
      workspace.poison();
      net.first.set({3 + int64_t(part) * steps * shape.batch});
      launch(net, layout, workspace);
      CHECK_CUDA(cudaDeviceSynchronize());
      for (float v : net.loss.get()) loss.push_back(v);
      for (int v : net.correct.get()) correct.push_back(v);
    }
    run = net.read();
    if (want_loss.empty()) {
      auto twice = rates;
      twice.insert(twice.end(), rates.begin(), rates.end());
      reference(net.args, d, 3, twice, want, want_loss, want_correct);
    }
  }
  double worst = 0, loss_error = 0;
  int wrong = 0;
  for (int l = 0; l < shape.layers; ++l) {
    worst = std::max({worst, change_error(runs[0].w[l], want.w[l], start.w[l]),
                      change_error(runs[0].b[l], want.b[l], start.b[l])});
    if (std::isnan(change_error(runs[0].w[l], want.w[l], start.w[l]))) worst = NAN;
  }
  for (size_t t = 0; t < loss.size(); ++t) {
    loss_error = std::max(loss_error, std::abs(loss[t] - want_loss[t]));
    if (std::isnan(loss[t])) loss_error = NAN;
    wrong += std::abs(correct[t] - want_correct[t]);
  }
  const bool same = runs[0].w == runs[1].w && runs[0].b == runs[1].b;
  // One sample of 32 left out moves a change by about 18 %, one tile of 16 inputs of 784 by 14 %. A
  // rounding that falls the other way near a tie moves it by an ulp of one weight or gradient; a
  // ReLU that opens for one sum and stays shut for the other (about one in a million), by one
  // sample of one unit: up to 1 / sqrt(batch * units).
  const int units = *std::min_element(shape.sizes + 1, shape.sizes + shape.layers + 1);
  const bool relu = shape.activation == MlpActivation::relu;
  const double gate = relu ? 2.5 / std::sqrt(double(shape.batch) * std::max(units, 32)) : 0.0;
  const double bound =
      (shape.half == MlpHalf::fp16 ? 1.0 : 8.0) * (shape.masters ? 0.003 : 0.02) + gate;
  const double loss_bound = shape.half == MlpHalf::fp16 ? 5e-3 : 4e-2;
  const bool ok =
      worst <= bound && loss_error <= loss_bound && wrong <= 1 + int(loss.size()) / 8 && same;
  std::printf("  %s %-13s %3d blocks %-40s change error %.2e loss error %.1e correct off %d%s\n",
              ok ? "ok     " : "FAILED ", name(layout.how), layout.blocks, describe(shape).c_str(),
              worst, loss_error, wrong, same ? "" : " NOT REPEATABLE");
  std::fflush(stdout);
  return ok;
}

int run_checks(bool brief) {
  using A = MlpActivation;
  std::vector<MlpTrainShape> shapes = {shape_of({784, 37, 61, 10}, 13), shape_of({20, 16, 5}, 1),
                                       shape_of({30, 17, 33, 19, 40, 7}, 29, A::tanh),
                                       shape_of({784, 128, 128, 128, 10}, 32)};
  if (!brief) {
    for (const auto& s :
         {shape_of({784, 256, 10}, 32, A::sigmoid), shape_of({50, 300, 200, 300, 33}, 32),
          shape_of({784, 512, 512, 512, 10}, 32), shape_of({784, 1024, 1024, 1024, 10}, 32),
          shape_of({100, 150, 80, 10}, 64), shape_of({100, 150, 80, 10}, 100),
          shape_of({100, 1100, 1100, 10}, 20)}) {
      shapes.push_back(s);
    }
  }
  bool ok = true;
  unsigned seed = unsigned(time(nullptr));
  std::printf("seed %u\n", seed);
  for (auto shape : shapes) {
    for (bool masters : {false, true}) {
      for (auto half : {MlpHalf::fp16, MlpHalf::bf16}) {
#ifdef RIDGELINE_MLP_TRAIN_BRIEF
        if (half != MlpHalf::fp16 || shape.batch > 32) continue;
#endif
        if (brief && half != MlpHalf::fp16) continue;
        shape.masters = masters, shape.half = half;
        const bool large = shape.sizes[1] > 500;
        for (const auto layout_of : kLayouts) {
          ok &= check(shape, layout_of(shape, 0),
                      brief   ? 2
                      : large ? 1
                              : 4,
                      masters ? 0.01 : 0.0, seed += 7);
        }
      }
    }
  }
  std::printf(ok ? "all checks passed\n" : "SOME CHECKS FAILED\n");
  return ok ? 0 : 1;
}

void bench_one(const MlpTrainShape& shape, const MlpTrainLayout& layout, int steps) {
  if (!layout.refusal.empty()) {
    std::printf("%-13s %-38s refused: %s\n", name(layout.how), describe(shape).c_str(),
                layout.refusal.c_str());
    return;
  }
  const int launches = 9;
  const Data d = make_data(shape.sizes[0], shape.sizes[shape.layers], 10000,
                           steps * shape.batch * launches, 5);
  Net net(shape, make_weights(shape, 6), d, std::vector<double>(steps, 0.01), 0);
  OnDevice<char> workspace(layout.workspace_bytes);
  cudaEvent_t begin, end;
  CHECK_CUDA(cudaEventCreate(&begin));
  CHECK_CUDA(cudaEventCreate(&end));
  // A launch of one step, taken off: what loading and storing weights costs is shown apart.
  const auto time_of = [&](int count) {
    std::vector<float> ms;
    net.args.steps = count;
    for (int i = 0; i < launches; ++i) {
      net.first.set({int64_t(i) * steps * shape.batch});
      CHECK_CUDA(cudaEventRecord(begin));
      launch(net, layout, workspace);
      CHECK_CUDA(cudaEventRecord(end));
      CHECK_CUDA(cudaEventSynchronize(end));
      float m;
      CHECK_CUDA(cudaEventElapsedTime(&m, begin, end));
      ms.push_back(m);
    }
    std::sort(ms.begin(), ms.end());
    return ms[ms.size() / 2] * 1e3;
  };
  time_of(1);
  const double whole = time_of(steps), one = time_of(1);
  const auto loss = [&] {
    net.args.steps = steps;
    launch(net, layout, workspace);
    CHECK_CUDA(cudaDeviceSynchronize());
    return net.loss.get();
  }();
  std::printf(
      "%-13s %-38s %3d blocks %3zu KB: %8.2f us a step over %d steps (%.2f beyond the first, "
      "launch of one %.1f) loss %.4f\n",
      name(layout.how), describe(shape).c_str(), layout.blocks, layout.shared_bytes >> 10,
      whole / steps, steps, (whole - one) / (steps - 1), one, loss.back());
  std::fflush(stdout);
  CHECK_CUDA(cudaEventDestroy(begin));
  CHECK_CUDA(cudaEventDestroy(end));
}

std::vector<uint8_t> read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    std::printf("%s: cannot open\n", path.c_str());
    std::exit(1);
  }
  return {std::istreambuf_iterator<char>(in), {}};
}

// 5 epochs at 0.05 over the test images: the loss and the hits of first and last epoch.
void train_mnist(const std::string& folder) {
  const auto images = read_file(folder + "/t10k-images-idx3-ubyte");
  const auto labels = read_file(folder + "/t10k-labels-idx1-ubyte");
  Data d{784, 10, 10000, {images.begin() + 16, images.end()}, {}, {}};
  for (int i = 0; i < d.rows; ++i) d.labels.push_back(labels[8 + i]);
  std::mt19937 rng(3);
  const int epochs = 5, batch = 32, an_epoch = d.rows / batch;
  for (int e = 0; e < epochs; ++e) {
    std::vector<int32_t> order(d.rows);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), rng);
    d.order.insert(d.order.end(), order.begin(), order.begin() + an_epoch * batch);
  }
  for (int h : {128, 512}) {
    for (bool masters : {false, true}) {
      for (const auto layout_of : kLayouts) {
        const auto shape = shape_of({784, h, h, h, 10}, batch, MlpActivation::relu, masters);
        const auto layout = layout_of(shape, 0);
        if (!layout.refusal.empty()) continue;
        Net net(shape, make_weights(shape, 4), d, std::vector<double>(an_epoch, 0.05), 0);
        OnDevice<char> workspace(layout.workspace_bytes);
        std::printf("mnist %-13s %-32s", name(layout.how), describe(shape).c_str());
        for (int e = 0; e < epochs; ++e) {
          net.first.set({int64_t(e) * an_epoch * batch});
          launch(net, layout, workspace);
          CHECK_CUDA(cudaDeviceSynchronize());
          double loss = 0, correct = 0;
          for (float v : net.loss.get()) loss += v;
          for (int v : net.correct.get()) correct += v;
          std::printf("  %.4f %.2f%%", loss / an_epoch, 100 * correct / (an_epoch * batch));
        }
        std::printf("\n");
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "check";
  if (what == "check") return run_checks(false);
  if (what == "sanitize") return run_checks(true);
  if (what == "mnist" && argc > 2) return train_mnist(argv[2]), 0;
  std::vector<int> widths;
  for (int i = 2; i < argc; ++i) widths.push_back(std::atoi(argv[i]));
  if (widths.empty()) widths = {128, 256, 512, 1024, 2048, 4096, 8192};
  for (bool masters : {false, true}) {
    for (int h : widths) {
      const auto shape = shape_of({784, h, h, h, 10}, 32, MlpActivation::relu, masters);
      for (const auto layout_of : kLayouts) {
        const auto layout = layout_of(shape, 0);
        if (layout.how == MlpTrainHow::resident && h > 2048) continue;
        bench_one(shape, layout, h <= 2048 ? 300 : 30);
      }
      if (h <= 512) bench_one(shape, mlp_train_cluster_layout(shape, 8), 300);
      if (h >= 256 && h <= 1024) bench_one(shape, mlp_train_resident_layout(shape, h / 16), 300);
    }
  }
}
