#pragma once

// The convolutions of a training step of fashion-lenet, checked and timed.

#include <cudnn.h>

#include <cmath>
#include <functional>
#include <random>
#include <string>

#include "bench/gpu/conv_device.cuh"
#include "ridgeline/cuda/conv/small_cin.h"
#include "ridgeline/cuda/conv/wgmma.h"
#include "ridgeline/cuda/libraries/cudnn.h"
#include "ridgeline/cuda/plain/conv.h"

namespace {

using namespace ridgeline::cuda;

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

// One layer: random x, w and dy in T; the reference is the plain kernels in double on the same
// numbers.
template <typename T>
struct TrainLayer {
  ImplicitShape shape;
  std::vector<T> hx, hw, hdy;
  OnDevice<T> x, w, dy, y, dx, pooled, slope;
  OnDevice<float> dw, db;
  OnDevice<uint8_t> workspace;

  static std::vector<T> random(size_t n, unsigned seed, double most) {
    std::mt19937 rng(seed);
    std::vector<T> v(n);
    for (T& e : v) e = T(float(most * (double(rng()) / 2147483648.0 - 1.0)));
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
        pooled(hdy.size() / 4),
        slope(random(hdy.size() / 4, 4, 1)),
        dw(hw.size()),
        db(size_t(s.k)),
        workspace(size_t{256} << 20) {
    y.poison(), dx.poison(), dw.poison(), db.poison();
  }
  cudaError_t forward(cudaStream_t stream) const {
    return launch_conv2d_implicit<T>({shape, x.p, w.p, {}, y.p, false}, {}, workspace.p, stream);
  }
  cudaError_t grad_x(cudaStream_t stream) const {
    return launch_conv2d_implicit<T>({shape.flipped(), dy.p, w.p, {}, dx.p, true}, {}, workspace.p,
                                     stream);
  }
  cudaError_t grad_w(cudaStream_t stream) const { return grad_w(OutputGrad<T>{dy.p}, stream); }
  ImplicitGradsArgs<T> grads(const OutputGrad<T>& from) const {
    ImplicitGradsArgs<T> args{shape, x.p, from, {dw.p, true}, {db.p, true}};
    args.workspace = workspace.p, args.sms = 132, args.shared_memory = 227 << 10;
    return args;
  }
  cudaError_t grad_w(const OutputGrad<T>& from, cudaStream_t stream) const {
    const auto args = grads(from);
    CHECK_CUDA(launch_conv2d_grad_maps<T>(args, stream));
    return launch_conv2d_grad_w_implicit<T>(args, stream);
  }
  // With relu and the pool in the same kernel; y is the input of the pool.
  PooledOutput<T> pool() const { return {true, ActivationFn::relu, y.p}; }
  cudaError_t pooled_forward(cudaStream_t stream) const {
    return launch_conv2d_implicit<T>({shape, x.p, w.p, {}, pooled.p, false}, pool(), workspace.p,
                                     stream);
  }
  static constexpr size_t kShared = 227 << 10;
  cudaError_t pooled_wgmma(cudaStream_t stream) const {
    const ImplicitArgs<T> args{shape, x.p, w.p, {}, pooled.p, false};
    CHECK_CUDA(launch_conv2d_wgmma_pack_filters<T>(args, true, kShared, workspace.p, stream));
    return launch_conv2d_wgmma<T>(args, pool(), kShared, workspace.p, stream);
  }
  // Both gradients of halves, through the pool.
  cudaError_t pooled_grads_wgmma(cudaStream_t stream) const {
    if constexpr (sizeof(T) == 2) {
      auto args = grads(pooled_grad());
      args.w = w.p, args.dx = dx.p;
      CHECK_CUDA(launch_stream_pack_filters<T>(args, stream));
      CHECK_CUDA(launch_stream_x<T>(args, stream));
      CHECK_CUDA(launch_stream_grad_x<T>(args, stream));
      return launch_stream_grad_w<T>(args, stream);
    }
    return cudaErrorNotSupported;
  }
  cudaError_t small_cin_forward(cudaStream_t stream) const {
    ImageSource source;
    source.x = x.p, source.n = shape.n;
    return launch_conv2d_pool_small_cin<T>({shape, source, {}, w.p, {}, pool(), pooled.p}, 132,
                                           stream);
  }
  OutputGrad<T> pooled_grad() const { return {slope.p, dy.p, ActivationFn::relu}; }
  cudaError_t pooled_grad_x(cudaStream_t stream) const {
    auto args = grads(pooled_grad());
    args.w = w.p, args.dx = dx.p;
    CHECK_CUDA(launch_conv2d_grad_maps<T>(args, stream));
    return launch_conv2d_grad_x_maps<T>(args, stream);
  }
  cudaError_t maps(cudaStream_t stream) const {
    auto args = grads(pooled_grad());
    args.w = w.p, args.dx = dx.p;
    return launch_conv2d_grad_maps<T>(args, stream);
  }
  cudaError_t pooled_grad_w(cudaStream_t stream) const { return grad_w(pooled_grad(), stream); }

  template <typename V>
  static bool near(const char* name, const std::vector<V>& got, const std::vector<double>& want) {
    const double most = sizeof(V) == 2 ? 5e-3 : 1e-3;  // bf16 is rounded when stored
    double off = 0, size = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      const double value = double(float(got[i]));
      off += (value - want[i]) * (value - want[i]), size += want[i] * want[i];
    }
    const double ratio = std::sqrt(off / size);
    std::printf("%-28s relative error %.2e %s\n", name, ratio, ratio <= most ? "ok" : "WRONG");
    return ratio <= most;
  }
  bool check() const {
    const auto wide = [](const std::vector<T>& v) {
      std::vector<double> d(v.size());
      for (size_t i = 0; i < v.size(); ++i) d[i] = double(float(v[i]));
      return d;
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
  // The best of cuDNN's algorithms, timed in the same way.
  double vendor(const Cudnn& library, int pass, bool last) const {
    const auto handle = static_cast<cudnnHandle_t>(library.handle());
    constexpr auto type = sizeof(T) == 2 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
    const auto layout = last ? CUDNN_TENSOR_NHWC : CUDNN_TENSOR_NCHW;
    cudnnTensorDescriptor_t xd, yd;
    cudnnFilterDescriptor_t wd;
    cudnnConvolutionDescriptor_t conv;
    cudnnCreateTensorDescriptor(&xd), cudnnCreateTensorDescriptor(&yd),
        cudnnCreateFilterDescriptor(&wd), cudnnCreateConvolutionDescriptor(&conv);
    cudnnSetTensor4dDescriptor(xd, layout, type, shape.n, shape.c, shape.h, shape.w);
    cudnnSetTensor4dDescriptor(yd, layout, type, shape.n, shape.k, shape.out_h(), shape.out_w());
    cudnnSetFilter4dDescriptor(wd, type, layout, shape.k, shape.c, shape.filter, shape.filter);
    cudnnSetConvolution2dDescriptor(conv, shape.pad, shape.pad, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION,
                                    CUDNN_DATA_FLOAT);
    cudnnSetConvolutionMathType(conv, CUDNN_TENSOR_OP_MATH);
    double best = 1e30;
    const auto try_all = [&](auto offers, int count, auto call) {
      for (int i = 0; i < count; ++i) {
        if (offers[i].status != CUDNN_STATUS_SUCCESS || offers[i].memory > workspace.n) continue;
        cudnnSetStream(handle, nullptr);
        if (call(offers[i]) != CUDNN_STATUS_SUCCESS) continue;
        best = std::min(best, graph_us([&](cudaStream_t stream) {
                          cudnnSetStream(handle, stream);
                          call(offers[i]);
                        }));
      }
    };
    const float one = 1, zero = 0;
    int count = 0;
    if (pass == 0) {
      std::vector<cudnnConvolutionFwdAlgoPerf_t> offers(16);
      cudnnGetConvolutionForwardAlgorithm_v7(handle, xd, wd, conv, yd, 16, &count, offers.data());
      try_all(offers, count, [&](const auto& o) {
        return cudnnConvolutionForward(handle, &one, xd, x.p, wd, w.p, conv, o.algo, workspace.p,
                                       o.memory, &zero, yd, y.p);
      });
    } else if (pass == 1) {
      std::vector<cudnnConvolutionBwdDataAlgoPerf_t> offers(16);
      cudnnGetConvolutionBackwardDataAlgorithm_v7(handle, wd, yd, conv, xd, 16, &count,
                                                  offers.data());
      try_all(offers, count, [&](const auto& o) {
        return cudnnConvolutionBackwardData(handle, &one, wd, w.p, yd, dy.p, conv, o.algo,
                                            workspace.p, o.memory, &zero, xd, dx.p);
      });
    } else {
      std::vector<cudnnConvolutionBwdFilterAlgoPerf_t> offers(16);
      cudnnGetConvolutionBackwardFilterAlgorithm_v7(handle, xd, yd, conv, wd, 16, &count,
                                                    offers.data());
      try_all(offers, count, [&](const auto& o) {
        return cudnnConvolutionBackwardFilter(handle, &one, xd, x.p, yd, dy.p, conv, o.algo,
                                              workspace.p, o.memory, &zero, wd, y.p);
      });
    }
    cudnnSetStream(handle, nullptr);
    cudnnDestroyTensorDescriptor(xd), cudnnDestroyTensorDescriptor(yd),
        cudnnDestroyFilterDescriptor(wd), cudnnDestroyConvolutionDescriptor(conv);
    return best;
  }
};

// One factor type and one layer: ours beside cuDNN's.
template <typename T>
bool time_layer(const char* type, const ImplicitShape& shape, std::FILE* file) {
  const Cudnn library;
  const TrainLayer<T> layer(shape);
  const bool good = layer.check();
  using Pass = cudaError_t (TrainLayer<T>::*)(cudaStream_t) const;
  struct Entry {
    const char* name;
    Pass run;
    int vendor;  // cuDNN's pass to compare with; -1 if there is none
  };
  const Pass plain_grad_w = &TrainLayer<T>::grad_w;
  std::vector<Entry> entries{{"forward", &TrainLayer<T>::forward, 0},
                             {"grad_x", &TrainLayer<T>::grad_x, 1},
                             {"grad_w", plain_grad_w, 2},
                             {"forward_pool", &TrainLayer<T>::pooled_forward, -1},
                             {"pool_grad_x", &TrainLayer<T>::pooled_grad_x, -1},
                             {"pool_grad_w", &TrainLayer<T>::pooled_grad_w, -1}};
  if (shape.c == 1) {
    entries.push_back({"forward_pool_small_cin", &TrainLayer<T>::small_cin_forward, -1});
  } else {
    entries.push_back({"forward_pool_wgmma", &TrainLayer<T>::pooled_wgmma, -1});
    if (sizeof(T) == 2) {
      entries.push_back({"pool_grads_wgmma", &TrainLayer<T>::pooled_grads_wgmma, -1});
    }
  }
  for (const Entry& entry : entries) {
    const double ours =
        graph_us([&](cudaStream_t stream) { CHECK_CUDA((layer.*entry.run)(stream)); });
    double theirs[2] = {0, 0};
    if (library.refusal().empty() && entry.vendor >= 0) {
      for (const bool last : {false, true})
        theirs[last] = layer.vendor(library, entry.vendor, last);
    }
    std::printf("conv 5x5 %d->%d %-16s %s %7.2f us, cudnn nchw %7.2f nhwc %7.2f\n", shape.c,
                shape.k, entry.name, type, ours, theirs[0], theirs[1]);
    if (file != nullptr) {
      std::fprintf(file,
                   "{\"batch\": 128, \"name\": \"conv5x5.%d-%d.%s.%s\", \"us\": %.3f, "
                   "\"cudnn_nchw_us\": %.3f, \"cudnn_nhwc_us\": %.3f}\n",
                   shape.c, shape.k, entry.name, type, ours, theirs[0], theirs[1]);
    }
  }
  return good;
}

bool time_training(std::FILE* file) {
  bool good = true;
  for (const ImplicitShape& shape :
       {ImplicitShape{128, 1, 28, 28, 32, 5, 2}, ImplicitShape{128, 32, 14, 14, 64, 5, 2}}) {
    good &= time_layer<float>("tf32", shape, file);
    good &= time_layer<__nv_bfloat16>("bf16", shape, file);
  }
  return good;
}

}  // namespace
