#pragma once

// A perceptron on the device with everything that a launch of the whole-step kernels needs.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "bench/gpu/check_cuda.h"
#include "bench/gpu/mlp_train_replay.h"

namespace ridgeline::cuda {

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

inline const char* name(MlpTrainHow how) {
  return how == MlpTrainHow::cluster_replicated ? "cluster_replicated"
         : how == MlpTrainHow::grid_sharded     ? "grid_sharded"
                                                : "weight_streaming";
}

inline std::string describe(const MlpTrainShape& s) {
  std::string text;
  for (int l = 0; l <= s.layers; ++l) {
    if (l > 0) text += '-';
    text += std::to_string(s.sizes[l]);
  }
  const char* f[] = {"none", "relu", "tanh", "sigmoid"};
  return text + " b" + std::to_string(s.batch) + " " + f[int(s.activation)] +
         (s.half == DType::fp16 ? " fp16" : " bf16") + (s.masters ? "+masters" : "");
}

inline uint16_t to_bits(DType half, float v) {
  return half == DType::fp16 ? Fp16(v).bits : Bf16(v).bits;
}
inline float from_bits(DType half, uint16_t bits) {
  Fp16 fp16;
  Bf16 bf16;
  fp16.bits = bf16.bits = bits;
  return half == DType::fp16 ? float(fp16) : float(bf16);
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

inline MlpTrainShape shape_of(std::vector<int> sizes, int batch,
                              ActivationFn f = ActivationFn::relu, bool masters = false,
                              DType half = DType::fp16) {
  MlpTrainShape s;
  s.layers = int(sizes.size()) - 1;
  std::copy(sizes.begin(), sizes.end(), s.sizes);
  s.batch = batch, s.activation = f, s.masters = masters, s.half = half;
  return s;
}

using LayoutOf = MlpTrainLayout (*)(const MlpTrainShape&, int);
constexpr LayoutOf kLayouts[] = {mlp_train_cluster_replicated_layout, mlp_train_grid_sharded_layout,
                                 mlp_train_weight_streaming_layout};

inline void launch(const Net& net, const MlpTrainLayout& layout, OnDevice<char>& workspace) {
  CHECK_CUDA(mlp_train_launch(net.args, layout, workspace.p(), nullptr));
  CHECK_CUDA(cudaGetLastError());
}

}  // namespace ridgeline::cuda
