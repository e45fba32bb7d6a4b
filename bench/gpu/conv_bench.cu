// The fused convolution kernels on the net of 72 x 72 images (7x7 1->12, tanh, pool, 7x7 12->24,
// tanh, pool, linear 120, tanh, linear 10), checked and timed beside cuDNN in the same run.
//   conv_bench check            against loops in double precision
//   conv_bench time FILE [n...] ms at n images (default 100 1000 10000), lines of JSON to FILE
//   conv_bench train FILE       us of each convolution of fashion-lenet's step, batch 128
//   conv_bench sanitize         a few images through every kernel, for compute-sanitizer

#include <cuda_bf16.h>
#include <cuda_fp16.h>

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

#include "bench/gpu/conv_device.cuh"
#include "bench/gpu/conv_train.cuh"
#include "bench/gpu/conv_vendor.cuh"
#include "ridgeline/cuda/conv/direct.h"
#include "ridgeline/cuda/conv/fused_conv2.h"
#include "ridgeline/cuda/gemm/products.h"
#include "ridgeline/cuda/plain/elementwise.h"

namespace {

using namespace ridgeline::cuda;

constexpr int kSide = 72, kPixels = kSide * kSide, kFilter = 7, kOut1 = 12, kOut2 = 24;
constexpr int kMap = 33, kSmall = 13, kFeatures = kOut2 * kSmall * kSmall;
constexpr int64_t kFirst = 5, kTick = 0;
constexpr float kScale = 1 / 255.0f, kShift = -0.5f;

struct Net {
  std::vector<uint8_t> images;
  std::vector<int32_t> order;
  std::vector<float> w1, b1, w2, b2, w3, b3, w4, b4;
};

Net make_net(int n, unsigned seed) {
  std::mt19937 rng(seed);
  const auto fill = [&](size_t count, double most) {
    std::vector<float> v(count);
    for (float& x : v) x = float(most * (double(rng()) / 2147483648.0 - 1.0));
    return v;
  };
  Net net;
  net.images.resize(size_t(n) * kPixels);
  for (size_t i = 0; i < net.images.size(); i += 4) {
    const uint32_t r = rng();
    std::memcpy(&net.images[i], &r, 4);
  }
  net.order.resize(size_t(n) + kFirst);
  for (auto& o : net.order) o = int32_t(rng() % unsigned(n));
  net.w1 = fill(kOut1 * 49, 0.5), net.b1 = fill(kOut1, 0.2);
  net.w2 = fill(kOut2 * kOut1 * 49, 0.07), net.b2 = fill(kOut2, 0.2);
  net.w3 = fill(120 * kFeatures, 0.03), net.b3 = fill(120, 0.1);
  net.w4 = fill(10 * 120, 0.15), net.b4 = fill(10, 0.1);
  return net;
}

template <typename T>
std::vector<T> rounded(const std::vector<float>& v) {
  std::vector<T> out;
  for (float x : v) out.push_back(T(x));
  return out;
}

// One layer in double: conv, bias, tanh, pool.
std::vector<double> layer(const std::vector<double>& x, int c, int side,
                          const std::vector<float>& w, const std::vector<float>& b, int k) {
  const int out = side - kFilter + 1, half = out / 2;
  std::vector<double> y(size_t(k) * half * half);
  for (int o = 0; o < k; ++o) {
    for (int p = 0; p < half; ++p) {
      for (int q = 0; q < half; ++q) {
        double most = -1e300;
        for (int e = 0; e < 4; ++e) {
          double sum = b[o];
          for (int i = 0; i < c; ++i) {
            for (int u = 0; u < kFilter; ++u) {
              const double* row = &x[(size_t(i) * side + 2 * p + e / 2 + u) * side + 2 * q + e % 2];
              const float* tap = &w[((size_t(o) * c + i) * kFilter + u) * kFilter];
              for (int v = 0; v < kFilter; ++v) sum += row[v] * tap[v];
            }
          }
          most = std::max(most, sum);
        }
        y[(size_t(o) * half + p) * half + q] = std::tanh(most);
      }
    }
  }
  return y;
}

// The two layers for image i of the batch in double, from weights and inputs rounded to T.
template <typename T>
std::vector<double> reference(const Net& net, int i) {
  const auto as_t = [](const std::vector<float>& v) {
    std::vector<float> out;
    for (float x : v) out.push_back(float(T(x)));
    return out;
  };
  std::vector<double> x(kPixels);
  const uint8_t* bytes = &net.images[size_t(net.order[size_t(kFirst + i)]) * kPixels];
  for (int p = 0; p < kPixels; ++p) x[p] = float(T(std::fma(float(bytes[p]), kScale, kShift)));
  const auto map = layer(x, 1, kSide, as_t(net.w1), as_t(net.b1), kOut1);
  return layer(map, kOut1, kMap, as_t(net.w2), as_t(net.b2), kOut2);
}

// All operands on the device, in one type.
template <typename T>
struct Device {
  OnDevice<uint8_t> set;
  OnDevice<int32_t> order, tick;
  OnDevice<int64_t> first;
  OnDevice<T> w1, b1, w2, b2, w3, w4, map, y, hidden, activated, out;
  OnDevice<float> b3, b4;
  int n;

  Device(const Net& net, int n)
      : set(net.images),
        order(net.order),
        tick(std::vector<int32_t>{int32_t(kTick)}),
        first(std::vector<int64_t>{kFirst}),
        w1(rounded<T>(net.w1)),
        b1(rounded<T>(net.b1)),
        w2(rounded<T>(net.w2)),
        b2(rounded<T>(net.b2)),
        w3(rounded<T>(net.w3)),
        w4(rounded<T>(net.w4)),
        map(sizeof(T) == 4 ? size_t(n) * kOut1 * kMap * kMap : 1),
        y(size_t(n) * kFeatures),
        hidden(size_t(n) * 120),
        activated(size_t(n) * 120),
        out(size_t(n) * 10),
        b3(net.b3),
        b4(net.b4),
        n(n) {
    y.poison(), map.poison(), out.poison();
  }
  ImageSource source() const {
    ImageSource s;
    s.set = set.p, s.order = order.p, s.first = first.p, s.tick = tick.p;
    s.scale = kScale, s.shift = kShift, s.n = n;
    return s;
  }
  int sms() const { return 132; }

  cudaError_t twice(int variant, cudaStream_t stream) const {
    const FusedConv2Args<T> args{
        source(), w1.p, w2.p, {b1.p}, {b2.p}, y.p, ActivationFn::tanh, ActivationFn::tanh};
    return launch_fused_conv2<T>({kSide, kSide, 7, kOut1, 7, kOut2}, args, variant, sms(), stream);
  }
  cudaError_t direct(int which, cudaStream_t stream) const {
    if constexpr (sizeof(T) == 4) {
      DirectArgs args;
      args.activation = ActivationFn::tanh;
      if (which == 1) {
        args.shape = {1, kSide, kSide, kOut1, 7, 0};
        args.source = source(), args.w = w1.p, args.b = b1.p, args.y = map.p;
      } else {
        args.shape = {kOut1, kMap, kMap, kOut2, 7, 0};
        args.source.x = map.p, args.source.n = n, args.w = w2.p, args.b = b2.p, args.y = y.p;
      }
      return launch_conv_pool_direct(args, sms(), stream);
    }
    return cudaSuccess;
  }
  // The two linear layers that follow, by the tensor-core products.
  std::function<void(cudaStream_t)> linears() const {
    const GemmType type = sizeof(T) == 4              ? GemmType::tf32
                          : std::is_same_v<T, __half> ? GemmType::fp16
                                                      : GemmType::bf16;
    auto one = linear_gemms({type, n, kFeatures, 120, y.p, w3.p, b3.p, hidden.p, false});
    auto two = linear_gemms({type, n, 120, 10, activated.p, w4.p, b4.p, out.p, false});
    if (one.empty() || two.empty()) return {};
    return [this, one, two](cudaStream_t stream) {
      one[0].run(stream);
      CHECK_CUDA(launch_activation<T>({ElementwiseFn::tanh}, hidden.p, activated.p,
                                      int64_t(n) * 120, stream));
      two[0].run(stream);
    };
  }
};

struct Error {
  double off = 0, size = 0;
  double ratio() const { return std::sqrt(off / size); }
};

// ||got - want|| / ||want|| over some images, the last among them; NaN fails.
template <typename T>
bool check(const char* name, const Net& net, const Device<T>& device,
           const std::vector<std::vector<double>>& want, const std::vector<int>& which,
           double limit) {
  CHECK_CUDA(cudaDeviceSynchronize());
  const auto got = device.y.get();
  Error error;
  for (const T v : got) {
    if (!std::isfinite(float(v))) error.off = NAN;
  }
  for (size_t e = 0; e < which.size(); ++e) {
    for (int j = 0; j < kFeatures; ++j) {
      const double off = double(float(got[size_t(which[e]) * kFeatures + j])) - want[e][j];
      error.off += off * off, error.size += want[e][j] * want[e][j];
    }
  }
  const bool good = error.ratio() <= limit;
  std::printf("%-28s n %5d  relative error %.2e (limit %.0e) %s\n", name, device.n, error.ratio(),
              limit, good ? "ok" : "WRONG");
  (void)net;
  return good;
}

template <typename T>
bool check_type(const char* type, double limit, const std::vector<int>& sizes) {
  bool good = true;
  for (const int n : sizes) {
    const Net net = make_net(n, unsigned(n));
    std::vector<int> which;
    for (int i = 0; i < n; i += std::max(1, n / 8)) which.push_back(i);
    which.push_back(n - 1);
    std::vector<std::vector<double>> want;
    for (const int i : which) want.push_back(reference<T>(net, i));
    Device<T> device(net, n);
    for (int variant = 0; variant < kFusedConv2Variants; ++variant) {
      device.y.poison();
      CHECK_CUDA(device.twice(variant, nullptr));
      const std::string name = std::string("twice.") + type + "." + std::to_string(variant);
      good &= check(name.c_str(), net, device, want, which, limit);
    }
    if (sizeof(T) == 4) {
      device.y.poison();
      CHECK_CUDA(device.direct(1, nullptr));
      CHECK_CUDA(device.direct(2, nullptr));
      good &= check("direct.fp32", net, device, want, which, 2e-6);
    }
  }
  return good;
}

bool check_all(const std::vector<int>& sizes) {
  bool good = check_type<__nv_bfloat16>("bf16", 1e-2, sizes);
  good &= check_type<__half>("fp16", 1.5e-3, sizes);
  good &= check_type<float>("tf32", 1.5e-3, sizes);
  return good;
}

// ---- timing ----

struct Entry {
  std::string name;
  std::function<void()> run;
  std::vector<double> ms;
};

double time_once(const std::function<void()>& run, int repeats) {
  static cudaEvent_t begin = nullptr, end = nullptr;
  if (begin == nullptr) {
    CHECK_CUDA(cudaEventCreate(&begin));
    CHECK_CUDA(cudaEventCreate(&end));
  }
  CHECK_CUDA(cudaEventRecord(begin));
  for (int r = 0; r < repeats; ++r) run();
  CHECK_CUDA(cudaEventRecord(end));
  CHECK_CUDA(cudaEventSynchronize(end));
  float ms = 0;
  CHECK_CUDA(cudaEventElapsedTime(&ms, begin, end));
  return ms / repeats;
}

// The fastest of cuDNN's algorithms and layouts for one convolution, by three timings of each.
void add_vendor(std::vector<Entry>& entries, const Cudnn& library, int n, int which,
                const char* type_name, cudnnDataType_t type, cudnnMathType_t math,
                std::vector<std::shared_ptr<VendorConv>>& keep, void* workspace) {
  double best = 1e30;
  std::function<void()> run;
  std::string how;
  std::shared_ptr<VendorConv> chosen;
  for (const bool last : {false, true}) {
    auto conv =
        which == 1 ? std::make_shared<VendorConv>(library, n, 1, kSide, kOut1, type, last, math)
                   : std::make_shared<VendorConv>(library, n, kOut1, kMap, kOut2, type, last, math);
    for (const auto& offer : conv->offers()) {
      if (conv->run(offer, workspace) != CUDNN_STATUS_SUCCESS) continue;
      double ms = 1e30;
      for (int round = 0; round < 3; ++round) {
        ms = std::min(ms, time_once([&] { conv->run(offer, workspace); }, 1));
      }
      if (ms < best) {
        best = ms, chosen = conv;
        run = [conv = conv.get(), offer, workspace] { conv->run(offer, workspace); };
        how = std::string(last ? "nhwc" : "nchw") + ".algo" + std::to_string(int(offer.algo));
      }
    }
  }
  if (!run) {
    std::printf("cudnn.conv%d.%s: nothing offered\n", which, type_name);
    return;
  }
  keep.push_back(chosen);
  entries.push_back(
      {"cudnn.conv" + std::to_string(which) + "." + type_name + " (" + how + ")", run, {}});
}

void time_all(std::FILE* file, int n) {
  const Net net = make_net(n, 3);
  Device<__nv_bfloat16> bf16(net, n);
  Device<__half> fp16(net, n);
  Device<float> fp32(net, n);
  std::vector<Entry> entries;
  const auto add = [&](std::string name, auto run) {
    entries.push_back({std::move(name), run, {}});
  };
  for (int v = 0; v < kFusedConv2Variants; ++v) {
    add("twice.bf16." + std::to_string(v), [&, v] { CHECK_CUDA(bf16.twice(v, nullptr)); });
    add("twice.tf32." + std::to_string(v), [&, v] { CHECK_CUDA(fp32.twice(v, nullptr)); });
  }
  add("twice.fp16.0", [&] { CHECK_CUDA(fp16.twice(0, nullptr)); });
  add("direct.fp32.conv1", [&] { CHECK_CUDA(fp32.direct(1, nullptr)); });
  add("direct.fp32.conv2", [&] { CHECK_CUDA(fp32.direct(2, nullptr)); });
  if (auto rest = bf16.linears()) {
    add("linears.bf16", [rest] { rest(nullptr); });
    add("net.bf16", [&, rest] {
      CHECK_CUDA(bf16.twice(0, nullptr));
      rest(nullptr);
    });
  }
  const Cudnn library;
  std::vector<std::shared_ptr<VendorConv>> keep;
  OnDevice<uint8_t> workspace(size_t{6} << 30);
  if (library.refusal().empty()) {
    for (const int which : {1, 2}) {
      add_vendor(entries, library, n, which, "fp32", CUDNN_DATA_FLOAT, CUDNN_FMA_MATH, keep,
                 workspace.p);
      add_vendor(entries, library, n, which, "tf32", CUDNN_DATA_FLOAT, CUDNN_TENSOR_OP_MATH, keep,
                 workspace.p);
      add_vendor(entries, library, n, which, "bf16", CUDNN_DATA_BFLOAT16, CUDNN_TENSOR_OP_MATH,
                 keep, workspace.p);
    }
  } else {
    std::printf("%s\n", library.refusal().c_str());
  }
  const int repeats = n <= 100 ? 20 : n <= 1000 ? 5 : 1, rounds = 9;
  for (Entry& e : entries) e.run();
  for (int round = 0; round < rounds; ++round) {
    for (Entry& e : entries) e.ms.push_back(time_once(e.run, repeats));
  }
  CHECK_CUDA(cudaDeviceSynchronize());
  for (Entry& e : entries) {
    std::sort(e.ms.begin(), e.ms.end());
    std::printf("n %5d  %-40s %8.4f ms (least %.4f, most %.4f)\n", n, e.name.c_str(),
                e.ms[rounds / 2], e.ms.front(), e.ms.back());
    if (file != nullptr) {
      std::fprintf(file,
                   "{\"images\": %d, \"name\": \"%s\", \"ms\": %.5f, \"least\": %.5f, \"most\": "
                   "%.5f}\n",
                   n, e.name.c_str(), e.ms[rounds / 2], e.ms.front(), e.ms.back());
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "check";
  if (mode == "check") return check_all({1, 3, 300, 601}) ? 0 : 1;
  if (mode == "sanitize") return check_all({3}) ? 0 : 1;
  if ((mode != "time" && mode != "train") || argc < 3) {
    std::printf("conv_bench check | time FILE [n...] | train FILE | sanitize\n");
    return 2;
  }
  std::FILE* file = std::fopen(argv[2], "w");
  if (mode == "train") {
    const bool good = time_training(file);
    if (file != nullptr) std::fclose(file);
    return good ? 0 : 1;
  }
  std::vector<int> sizes;
  for (int i = 3; i < argc; ++i) sizes.push_back(std::atoi(argv[i]));
  if (sizes.empty()) sizes = {100, 1000, 10000};
  for (const int n : sizes) time_all(file, n);
  if (file != nullptr) std::fclose(file);
  return 0;
}
