// The whole-step training kernels, checked and timed.
//   mlp_train_bench check [KERNEL]   against a loop in double precision with the kernels' roundings
//   mlp_train_bench steps [KERNEL]   step by step, each value within a bound derived for it
//   mlp_train_bench bench [KERNEL] [h ...]  us a step of 784-h-h-h-10, batch 32
//   mlp_train_bench mnist FOLDER     trains on the 10,000 images of IDX files there
//   mlp_train_bench sanitize [KERNEL]  small and short, to run under compute-sanitizer

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

#include "bench/gpu/mlp_train_steps.h"
#include "ridgeline/core/half.h"
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
  return how == MlpTrainHow::mirrored   ? "mirrored"
         : how == MlpTrainHow::spread   ? "spread"
         : how == MlpTrainHow::cluster  ? "cluster"
         : how == MlpTrainHow::resident ? "grid-resident"
                                        : "grid-streamed";
}

std::string describe(const MlpTrainShape& s) {
  std::string text;
  for (int l = 0; l <= s.layers; ++l) {
    if (l > 0) text += '-';
    text += std::to_string(s.sizes[l]);
  }
  const char* f[] = {"relu", "tanh", "sigmoid"};
  return text + " b" + std::to_string(s.batch) + " " + f[int(s.activation)] +
         (s.half == MlpHalf::fp16 ? " fp16" : " bf16") + (s.masters ? "+masters" : "");
}

uint16_t to_bits(MlpHalf half, float v) {
  return half == MlpHalf::fp16 ? ridgeline::Fp16(v).bits : ridgeline::Bf16(v).bits;
}
float from_bits(MlpHalf half, uint16_t bits) {
  ridgeline::Fp16 fp16;
  ridgeline::Bf16 bf16;
  fp16.bits = bf16.bits = bits;
  return half == MlpHalf::fp16 ? float(fp16) : float(bf16);
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

MlpTrainShape shape_of(std::vector<int> sizes, int batch, MlpActivation f = MlpActivation::relu,
                       bool masters = false, MlpHalf half = MlpHalf::fp16) {
  MlpTrainShape s;
  s.layers = int(sizes.size()) - 1;
  std::copy(sizes.begin(), sizes.end(), s.sizes);
  s.batch = batch, s.activation = f, s.masters = masters, s.half = half;
  return s;
}

using LayoutOf = MlpTrainLayout (*)(const MlpTrainShape&, int);
constexpr LayoutOf kLayouts[] = {mlp_train_mirrored_layout, mlp_train_spread_layout,
                                 mlp_train_cluster_layout, mlp_train_resident_layout,
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
  const Problem problem = make_problem(shape, 2 * steps, decay, seed);
  const std::vector<double> rates(problem.rates.begin(), problem.rates.begin() + steps);
  OnDevice<char> workspace(layout.workspace_bytes);
  Outcome runs[2];
  for (Outcome& run : runs) {
    Net net(shape, problem.start, problem.data, rates, problem.first);
    net.args.weight_decay = decay;
    for (int part = 0; part < 2; ++part) {
      workspace.poison();
      net.first.set({problem.first + int64_t(part) * steps * shape.batch});
      net.lr.set(
          {problem.rates.begin() + part * steps, problem.rates.begin() + (part + 1) * steps});
      launch(net, layout, workspace);
      CHECK_CUDA(cudaDeviceSynchronize());
      for (float v : net.loss.get()) run.loss.push_back(v);
      for (int v : net.correct.get()) run.correct.push_back(v);
    }
    run.weights = net.read();
  }
  const Outcome want = replay<double>(problem);
  const Distance off = distance(problem, runs[0], want);
  const bool same =
      runs[0].weights.w == runs[1].weights.w && runs[0].weights.b == runs[1].weights.b;
  const bool ok = within(shape, off) && same;
  std::printf(
      "  %s %-13s %3d blocks %-40s change error %.1e of %.1e loss error %.1e correct off %d%s\n",
      ok ? "ok     " : "FAILED ", name(layout.how), layout.blocks, describe(shape).c_str(),
      off.change, change_bound(shape), off.loss, off.correct, same ? "" : " NOT REPEATABLE");
  std::fflush(stdout);
  return ok;
}

// One step a launch, each from the weights that the one before left.
bool check_steps(const MlpTrainShape& shape, const MlpTrainLayout& layout, int steps, double decay,
                 unsigned seed) {
  if (!layout.refusal.empty()) return true;
  Problem problem = make_problem(shape, steps, decay, seed);
  OnDevice<char> workspace(layout.workspace_bytes);
  Net net(shape, problem.start, problem.data, {problem.rates[0]}, problem.first);
  net.args.weight_decay = decay;
  StepCheck all;
  Weights before = problem.start;
  for (int t = 0; t < steps; ++t) {
    workspace.poison();
    net.first.set({problem.first + int64_t(t) * shape.batch});
    net.lr.set({problem.rates[t]});
    launch(net, layout, workspace);
    CHECK_CUDA(cudaDeviceSynchronize());
    const Weights after = net.read();
    all.join(check_step(problem, before, after, net.loss.get()[0], t));
    before = after;
  }
  std::printf(
      "  %s %-13s %-40s %lld values: %lld rounded otherwise, %lld outside; bounds to %.1e of the "
      "largest change",
      all.outside == 0 ? "ok     " : "FAILED ", name(layout.how), describe(shape).c_str(),
      static_cast<long long>(all.values), static_cast<long long>(all.moved),
      static_cast<long long>(all.outside), all.widest);
  if (all.outside > 0) {
    std::printf("; beyond by %.2e in %s %d", all.beyond, all.bias ? "bias" : "weight", all.layer);
  }
  std::printf("\n");
  std::fflush(stdout);
  return all.outside == 0;
}

int run_steps(const std::string& only) {
  using A = MlpActivation;
  unsigned seed = unsigned(time(nullptr));
  std::printf("seed %u\n", seed);
  bool ok = true;
  for (auto shape :
       {shape_of({784, 37, 61, 10}, 13), shape_of({50, 33, 64, 9, 16}, 31),
        shape_of({200, 121, 96, 10}, 32, A::sigmoid), shape_of({33, 1024, 16, 5}, 32, A::tanh),
        shape_of({40, 1000, 900, 24, 10}, 32)}) {
    for (const bool masters : {false, true}) {
      for (const auto half : {MlpHalf::fp16, MlpHalf::bf16}) {
        shape.masters = masters, shape.half = half;
        for (const auto layout_of : kLayouts) {
          const MlpTrainLayout layout = layout_of(shape, 0);
          if (std::string(name(layout.how)).find(only) == std::string::npos) continue;
          ok &= check_steps(shape, layout, 8, masters ? 0.01 : 0.0, seed += 7);
        }
      }
    }
  }
  std::printf(ok ? "all steps are within their bounds\n" : "SOME STEPS FAILED\n");
  return ok ? 0 : 1;
}

int run_checks(bool brief, const std::string& only = "") {
  using A = MlpActivation;
  std::vector<MlpTrainShape> shapes = {shape_of({784, 37, 61, 10}, 13),
                                       shape_of({20, 16, 5}, 1),
                                       shape_of({30, 17, 33, 19, 40, 7}, 29, A::tanh),
                                       shape_of({784, 128, 128, 128, 10}, 32),
                                       shape_of({50, 90, 128, 77, 16}, 31, A::tanh),
                                       shape_of({200, 121, 96, 10}, 32, A::sigmoid)};
  if (!brief) {
    for (const auto& s :
         {shape_of({784, 256, 10}, 32, A::sigmoid), shape_of({50, 300, 200, 300, 33}, 32),
          shape_of({784, 512, 512, 512, 10}, 32), shape_of({784, 1024, 1024, 1024, 10}, 32),
          shape_of({100, 150, 80, 10}, 64), shape_of({100, 150, 80, 10}, 100),
          shape_of({100, 1100, 1100, 10}, 20), shape_of({100, 17, 1000, 40, 10}, 32),
          shape_of({33, 1024, 16, 5}, 32, A::tanh)}) {
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
          const MlpTrainLayout layout = layout_of(shape, 0);
          if (std::string(name(layout.how)).find(only) == std::string::npos) continue;
          ok &= check(shape, layout, brief ? 2 : large ? 1 : 4, masters ? 0.01 : 0.0, seed += 7);
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
  if (what == "check") return run_checks(false, argc > 2 ? argv[2] : "");
  if (what == "steps") return run_steps(argc > 2 ? argv[2] : "");
  if (what == "sanitize") return run_checks(true, argc > 2 ? argv[2] : "");
  if (what == "mnist" && argc > 2) return train_mnist(argv[2]), 0;
  std::vector<int> widths;
  std::string only;
  for (int i = 2; i < argc; ++i) {
    if (std::atoi(argv[i]) > 0) {
      widths.push_back(std::atoi(argv[i]));
    } else {
      only = argv[i];
    }
  }
  if (widths.empty()) widths = {128, 256, 512, 1024, 2048, 4096, 8192};
  for (bool masters : {false, true}) {
    for (int h : widths) {
      const auto shape = shape_of({784, h, h, h, 10}, 32, MlpActivation::relu, masters);
      for (const auto layout_of : kLayouts) {
        const auto layout = layout_of(shape, 0);
        if (layout.how == MlpTrainHow::resident && h > 2048) continue;
        if (std::string(name(layout.how)).find(only) == std::string::npos) continue;
        bench_one(shape, layout, h <= 2048 ? 300 : 30);
      }
      if (!only.empty()) continue;
      if (h <= 512) bench_one(shape, mlp_train_cluster_layout(shape, 8), 300);
      if (h >= 256 && h <= 1024) bench_one(shape, mlp_train_resident_layout(shape, h / 16), 300);
    }
  }
}
