// The fused convolution kernels on the net of 72 x 72 images (7x7 1->12, tanh, pool, 7x7 12->24,
// tanh, pool, linear 120, tanh, linear 10), checked and timed beside cuDNN in the same run.
//   conv_bench check            against loops in double precision
//   conv_bench time FILE [n...] ms at n images (default 100 1000 10000), lines of JSON to FILE
//   conv_bench train FILE       us of each convolution of a training step of fashion-lenet, batch
//   128 conv_bench sanitize         a few images through every kernel, to run under
//   compute-sanitizer

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

#include "ridgeline/cuda/conv/direct.h"
#include "ridgeline/cuda/conv/implicit.h"
#include "ridgeline/cuda/conv/twice.h"
#include "ridgeline/cuda/gemm_products.h"
#include "ridgeline/cuda/plain/conv.h"
#include "ridgeline/cuda/plain/elementwise.h"
#include "ridgeline/cuda/vendor/cudnn_api.h"

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
struct OnDevice {
  explicit OnDevice(size_t n) : n(n) {
    CHECK_CUDA(cudaMalloc(&p, std::max<size_t>(n, 1) * sizeof(T)));
  }
  explicit OnDevice(const std::vector<T>& v) : OnDevice(v.size()) {
    CHECK_CUDA(cudaMemcpy(p, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice));
  }
  OnDevice(const OnDevice&) = delete;
  ~OnDevice() { cudaFree(p); }
  std::vector<T> get() const {
    std::vector<T> v(n);
    CHECK_CUDA(cudaMemcpy(v.data(), p, n * sizeof(T), cudaMemcpyDeviceToHost));
    return v;
  }
  void poison() { CHECK_CUDA(cudaMemset(p, 0xff, n * sizeof(T))); }
  T* p = nullptr;
  size_t n = 0;
};

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

// The two layers of image i of the batch, from weights as they are in T and inputs rounded
// likewise.
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

// Everything on the device, in one type.
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
  int processors() const { return 132; }

  cudaError_t twice(int variant, cudaStream_t stream) const {
    const TwiceArgs<T> args{source(), w1.p, w2.p, {b1.p}, {b2.p}, y.p, Curve::tanh, Curve::tanh};
    return launch_conv_pool_twice<T>({kSide, kSide, 7, kOut1, 7, kOut2}, args, variant,
                                     processors(), stream);
  }
  cudaError_t direct(int which, cudaStream_t stream) const {
    if constexpr (sizeof(T) == 4) {
      DirectArgs args;
      args.curve = Curve::tanh;
      if (which == 1) {
        args.shape = {1, kSide, kSide, kOut1, 7, 0};
        args.source = source(), args.w = w1.p, args.b = b1.p, args.y = map.p;
      } else {
        args.shape = {kOut1, kMap, kMap, kOut2, 7, 0};
        args.source.x = map.p, args.source.n = n, args.w = w2.p, args.b = b2.p, args.y = y.p;
      }
      return launch_conv_pool_direct(args, processors(), stream);
    }
    return cudaSuccess;
  }
  // The two linear layers behind, by the tensor-core products.
  std::function<void(cudaStream_t)> linears() const {
    const GemmType type = sizeof(T) == 4              ? GemmType::tf32
                          : std::is_same_v<T, __half> ? GemmType::fp16
                                                      : GemmType::bf16;
    auto one = linear_gemms({type, n, kFeatures, 120, y.p, w3.p, b3.p, hidden.p, false});
    auto two = linear_gemms({type, n, 120, 10, activated.p, w4.p, b4.p, out.p, false});
    if (one.empty() || two.empty()) return {};
    return [this, one, two](cudaStream_t stream) {
      one[0].run(stream);
      CHECK_CUDA(
          launch_activation<T>(Curve::tanh, hidden.p, activated.p, int64_t(n) * 120, stream));
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
    for (int variant = 0; variant < kTwiceVariants; ++variant) {
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

// ---- cuDNN's convolutions, at their best layout and algorithm ----

class VendorConv {
 public:
  VendorConv(const Cudnn& library, int n, int c, int side, int k, cudnnDataType_t type, bool last,
             cudnnMathType_t math)
      : library_(library),
        elements_x_(size_t(n) * c * side * side),
        elements_y_(size_t(n) * k * (side - 6) * (side - 6)),
        width_(type == CUDNN_DATA_FLOAT ? 4 : 2),
        x_memory_(elements_x_ * width_),
        y_memory_(elements_y_ * width_),
        w_memory_(size_t(k) * c * 49 * width_) {
    const auto& api = library.api();
    const auto layout = last ? CUDNN_TENSOR_NHWC : CUDNN_TENSOR_NCHW;
    api.tensor_create(&x_), api.tensor_create(&y_), api.filter_create(&w_), api.conv_create(&conv_);
    api.tensor_set(x_, layout, type, n, c, side, side);
    api.tensor_set(y_, layout, type, n, k, side - 6, side - 6);
    api.filter_set(w_, type, layout, k, c, 7, 7);
    api.conv_set(conv_, 0, 0, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT);
    api.conv_set_math(conv_, math);
    fill(x_memory_), fill(w_memory_);
  }
  ~VendorConv() {
    const auto& api = library_.api();
    api.tensor_destroy(x_), api.tensor_destroy(y_), api.filter_destroy(w_), api.conv_destroy(conv_);
  }
  // Algorithms the heuristics offer, with their workspaces.
  std::vector<cudnnConvolutionFwdAlgoPerf_t> offers() const {
    std::vector<cudnnConvolutionFwdAlgoPerf_t> list(16), good;
    int count = 0;
    if (library_.api().forward_algorithms(handle(), x_, w_, conv_, y_, 16, &count, list.data()) !=
        CUDNN_STATUS_SUCCESS) {
      return {};
    }
    for (int i = 0; i < count; ++i) {
      if (list[i].status == CUDNN_STATUS_SUCCESS && list[i].memory < (size_t{6} << 30)) {
        good.push_back(list[i]);
      }
    }
    return good;
  }
  cudnnStatus_t run(const cudnnConvolutionFwdAlgoPerf_t& how, void* workspace) const {
    const float one = 1, zero = 0;
    return library_.api().forward(handle(), &one, x_, x_memory_.p, w_, w_memory_.p, conv_, how.algo,
                                  workspace, how.memory, &zero, y_, y_memory_.p);
  }

 private:
  cudnnHandle_t handle() const { return static_cast<cudnnHandle_t>(library_.handle()); }
  // Random numbers of moderate size in either type: bytes with exponents near 1.
  void fill(OnDevice<uint8_t>& memory) {
    std::vector<uint8_t> bytes(std::min<size_t>(memory.n, size_t{8} << 20));
    std::mt19937 rng(7);
    for (size_t i = 0; i + width_ <= bytes.size(); i += width_) {
      const float v = float(double(rng()) / 4294967296.0 - 0.5);
      const __nv_bfloat16 h = __float2bfloat16(v);
      std::memcpy(&bytes[i], width_ == 4 ? static_cast<const void*>(&v) : &h, width_);
    }
    for (size_t at = 0; at < memory.n; at += bytes.size()) {
      CHECK_CUDA(cudaMemcpy(memory.p + at, bytes.data(), std::min(bytes.size(), memory.n - at),
                            cudaMemcpyHostToDevice));
    }
  }

  const Cudnn& library_;
  size_t elements_x_, elements_y_, width_;
  OnDevice<uint8_t> x_memory_, y_memory_, w_memory_;
  cudnnTensorDescriptor_t x_ = nullptr, y_ = nullptr;
  cudnnFilterDescriptor_t w_ = nullptr;
  cudnnConvolutionDescriptor_t conv_ = nullptr;
};

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
  for (int v = 0; v < kTwiceVariants; ++v) {
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

// ---- the convolutions of a training step ----

// Microseconds of one call, in a graph of many: no launch gaps.
double graph_us(const std::function<void(cudaStream_t)>& run) {
  constexpr int kCalls = 20;
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CHECK_CUDA(cudaStreamCreate(&stream));
  run(stream);
  CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < kCalls; ++i) run(stream);
  CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
  CHECK_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  std::vector<double> us;
  cudaEvent_t begin, end;
  CHECK_CUDA(cudaEventCreate(&begin));
  CHECK_CUDA(cudaEventCreate(&end));
  for (int round = 0; round < 8; ++round) {
    CHECK_CUDA(cudaEventRecord(begin, stream));
    CHECK_CUDA(cudaGraphLaunch(exec, stream));
    CHECK_CUDA(cudaEventRecord(end, stream));
    CHECK_CUDA(cudaEventSynchronize(end));
    float ms = 0;
    CHECK_CUDA(cudaEventElapsedTime(&ms, begin, end));
    us.push_back(ms * 1000 / kCalls);
  }
  std::sort(us.begin(), us.end());
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
  return us[us.size() / 2];
}

ConvGeometry plain_geometry(const ImplicitShape& s) {
  const Axis axis{s.filter, 1, s.pad, 1};
  return {s.n, s.c, s.h, s.w, s.k, s.out_h(), s.out_w(), s.c, s.k, axis, axis};
}

// One layer: x, w, dy at random, the plain kernels in double as reference.
struct TrainLayer {
  ImplicitShape shape;
  std::vector<float> hx, hw, hdy;
  OnDevice<float> x, w, dy, y, dx, dw, db;
  OnDevice<uint8_t> workspace;

  static std::vector<float> random(size_t n, unsigned seed, double most) {
    std::mt19937 rng(seed);
    std::vector<float> v(n);
    for (float& e : v) e = float(most * (double(rng()) / 2147483648.0 - 1.0));
    return v;
  }
  explicit TrainLayer(const ImplicitShape& s)
      : shape(s),
        hx(random(size_t(s.n) * s.c * s.h * s.w, 1, 1)),
        hw(random(size_t(s.k) * s.c * s.filter * s.filter, 2, 0.1)),
        hdy(random(size_t(s.n) * s.k * s.out_h() * s.out_w(), 3, 1)),
        x(hx),
        w(hw),
        dy(hdy),
        y(hdy.size()),
        dx(hx.size()),
        dw(hw.size()),
        db(size_t(s.k)),
        workspace(size_t{256} << 20) {
    y.poison(), dx.poison(), dw.poison(), db.poison();
  }
  cudaError_t forward(cudaStream_t stream) const {
    return launch_conv2d_implicit<float>({shape, x.p, w.p, {}, y.p, false}, workspace.p, stream);
  }
  cudaError_t grad_x(cudaStream_t stream) const {
    return launch_conv2d_implicit<float>({shape.turned(), dy.p, w.p, {}, dx.p, true}, workspace.p,
                                         stream);
  }
  cudaError_t grad_w(cudaStream_t stream) const {
    return launch_conv2d_grad_w_implicit<float>({shape, x.p, dy.p, {dw.p}, {db.p}}, workspace.p,
                                                132, stream);
  }
  static bool near(const char* name, const std::vector<float>& got,
                   const std::vector<double>& want) {
    double off = 0, size = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      off += (got[i] - want[i]) * (got[i] - want[i]), size += want[i] * want[i];
    }
    const double ratio = std::sqrt(off / size);
    std::printf("%-28s relative error %.2e %s\n", name, ratio, ratio <= 1e-3 ? "ok" : "WRONG");
    return ratio <= 1e-3;
  }
  bool check() const {
    const auto wide = [](const std::vector<float>& v) {
      return std::vector<double>(v.begin(), v.end());
    };
    const OnDevice<double> dx64(hx.size()), dw64(hw.size()), db64(size_t(shape.k)), y64(hdy.size());
    const OnDevice<double> x64(wide(hx)), w64(wide(hw)), dy64(wide(hdy));
    const ConvGeometry g = plain_geometry(shape);
    CHECK_CUDA(launch_conv2d<double>(g, x64.p, w64.p, {}, y64.p, nullptr));
    CHECK_CUDA(launch_conv2d_grad_x<double>(g, dy64.p, w64.p, dx64.p, nullptr));
    CHECK_CUDA(launch_conv2d_grad_w<double>(g, x64.p, dy64.p, {dw64.p}, {db64.p}, nullptr));
    CHECK_CUDA(forward(nullptr));
    CHECK_CUDA(grad_x(nullptr));
    CHECK_CUDA(grad_w(nullptr));
    CHECK_CUDA(cudaDeviceSynchronize());
    bool good = near("implicit forward", y.get(), y64.get());
    good &= near("implicit grad_x", dx.get(), dx64.get());
    good &= near("implicit grad_w", dw.get(), dw64.get());
    good &= near("implicit grad_b", db.get(), db64.get());
    return good;
  }
  // The best of cuDNN's algorithms in tf32, by the same graphs.
  double vendor(const Cudnn& library, int pass, bool last) const {
    const auto& api = library.api();
    const auto handle = static_cast<cudnnHandle_t>(library.handle());
    const auto layout = last ? CUDNN_TENSOR_NHWC : CUDNN_TENSOR_NCHW;
    cudnnTensorDescriptor_t xd, yd;
    cudnnFilterDescriptor_t wd;
    cudnnConvolutionDescriptor_t conv;
    api.tensor_create(&xd), api.tensor_create(&yd), api.filter_create(&wd), api.conv_create(&conv);
    api.tensor_set(xd, layout, CUDNN_DATA_FLOAT, shape.n, shape.c, shape.h, shape.w);
    api.tensor_set(yd, layout, CUDNN_DATA_FLOAT, shape.n, shape.k, shape.out_h(), shape.out_w());
    api.filter_set(wd, CUDNN_DATA_FLOAT, layout, shape.k, shape.c, shape.filter, shape.filter);
    api.conv_set(conv, shape.pad, shape.pad, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT);
    api.conv_set_math(conv, CUDNN_TENSOR_OP_MATH);
    double best = 1e30;
    const auto try_all = [&](auto offers, int count, auto call) {
      for (int i = 0; i < count; ++i) {
        if (offers[i].status != CUDNN_STATUS_SUCCESS || offers[i].memory > workspace.n) continue;
        api.set_stream(handle, nullptr);
        if (call(offers[i]) != CUDNN_STATUS_SUCCESS) continue;
        best = std::min(best, graph_us([&](cudaStream_t stream) {
                          api.set_stream(handle, stream);
                          call(offers[i]);
                        }));
      }
    };
    const float one = 1, zero = 0;
    int count = 0;
    if (pass == 0) {
      std::vector<cudnnConvolutionFwdAlgoPerf_t> offers(16);
      api.forward_algorithms(handle, xd, wd, conv, yd, 16, &count, offers.data());
      try_all(offers, count, [&](const auto& o) {
        return api.forward(handle, &one, xd, x.p, wd, w.p, conv, o.algo, workspace.p, o.memory,
                           &zero, yd, y.p);
      });
    } else if (pass == 1) {
      std::vector<cudnnConvolutionBwdDataAlgoPerf_t> offers(16);
      api.data_algorithms(handle, wd, yd, conv, xd, 16, &count, offers.data());
      try_all(offers, count, [&](const auto& o) {
        return api.backward_data(handle, &one, wd, w.p, yd, dy.p, conv, o.algo, workspace.p,
                                 o.memory, &zero, xd, dx.p);
      });
    } else {
      std::vector<cudnnConvolutionBwdFilterAlgoPerf_t> offers(16);
      api.filter_algorithms(handle, xd, yd, conv, wd, 16, &count, offers.data());
      try_all(offers, count, [&](const auto& o) {
        return api.backward_filter(handle, &one, xd, x.p, yd, dy.p, conv, o.algo, workspace.p,
                                   o.memory, &zero, wd, dw.p);
      });
    }
    api.set_stream(handle, nullptr);
    api.tensor_destroy(xd), api.tensor_destroy(yd), api.filter_destroy(wd), api.conv_destroy(conv);
    return best;
  }
};

bool time_training(std::FILE* file) {
  const Cudnn library;
  bool good = true;
  const ImplicitShape shapes[] = {{128, 1, 28, 28, 32, 5, 2}, {128, 32, 14, 14, 64, 5, 2}};
  const char* names[] = {"forward", "grad_x", "grad_w"};
  for (const ImplicitShape& shape : shapes) {
    const TrainLayer layer(shape);
    good &= layer.check();
    for (int pass = 0; pass < 3; ++pass) {
      const double ours = graph_us([&](cudaStream_t stream) {
        CHECK_CUDA(pass == 0   ? layer.forward(stream)
                   : pass == 1 ? layer.grad_x(stream)
                               : layer.grad_w(stream));
      });
      double theirs[2] = {0, 0};
      if (library.refusal().empty()) {
        for (const bool last : {false, true}) theirs[last] = layer.vendor(library, pass, last);
      }
      std::printf("conv 5x5 %d->%d %-8s implicit tf32 %7.2f us, cudnn tf32 nchw %7.2f nhwc %7.2f\n",
                  shape.c, shape.k, names[pass], ours, theirs[0], theirs[1]);
      if (file != nullptr) {
        std::fprintf(file,
                     "{\"batch\": 128, \"name\": \"conv5x5.%d-%d.%s.tf32\", \"us\": %.3f, "
                     "\"cudnn_nchw_us\": %.3f, \"cudnn_nhwc_us\": %.3f}\n",
                     shape.c, shape.k, names[pass], ours, theirs[0], theirs[1]);
      }
    }
  }
  return good;
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
