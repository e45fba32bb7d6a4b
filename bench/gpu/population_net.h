#pragma once

// Members of a population on the host and on the device, for population_bench.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "bench/gpu/check_cuda.h"
#include "ridgeline/cuda/population/train.h"

namespace population_bench {

using ridgeline::cuda::MemberArgs;
using ridgeline::cuda::MemberLayer;
using ridgeline::cuda::PopulationLayout;
using ridgeline::cuda::PopulationNumbers;
using ridgeline::cuda::PopulationRule;
using ridgeline::cuda::PopulationShape;

constexpr int kSamples = 20000;
constexpr float kScale = 1 / 255.0f;

inline bool has_masters(PopulationNumbers numbers) {
  return numbers != PopulationNumbers::fp16 && numbers != PopulationNumbers::bf16;
}
inline bool is_bf16(PopulationNumbers numbers) {
  return numbers == PopulationNumbers::bf16 || numbers == PopulationNumbers::bf16_masters;
}
// Rounds like the operands of products.
inline double rounded(double x, PopulationNumbers numbers) {
  if (is_bf16(numbers)) return double(__bfloat162float(__float2bfloat16_rn(float(x))));
  if (numbers == PopulationNumbers::fp16) return double(__half2float(__float2half_rn(float(x))));
  return double(__half2float(__float2half_rn(float(64 * x)))) / 64;  // weights are scaled
}
inline double kept(double x, PopulationNumbers numbers) {
  return has_masters(numbers) ? double(float(x)) : rounded(x, numbers);
}
inline double plain_rounded(double x, PopulationNumbers numbers) {
  return is_bf16(numbers) ? rounded(x, numbers) : double(__half2float(__float2half_rn(float(x))));
}

// Weights are below a quarter, where fp16 has steps of 1.2e-4 and bf16 of 1e-3, and a sum near a
// tie may round either way. Master weights differ by the effect of such a rounding of an operand.
inline double tolerance(const PopulationShape& shape) {
  if (shape.rule == PopulationRule::adam) return 2e-3;  // of a rate of 1e-3: a sign may differ
  if (shape.numbers == PopulationNumbers::fp16) return 5e-4;
  if (shape.numbers == PopulationNumbers::bf16) return 4e-3;
  return is_bf16(shape.numbers) ? 1e-3 : 1e-4;
}

inline std::string text_of(const PopulationShape& s) {
  const char* numbers[] = {"fp16", "bf16", "fp16 masters", "bf16 masters", "tf32"};
  const char* rules[] = {"sgd", "momentum", "adam"};
  return std::to_string(s.inputs) + "-" + std::to_string(s.hidden) + "-" +
         std::to_string(s.classes) + ", batch " + std::to_string(s.batch) + ", " +
         numbers[int(s.numbers)] + ", " + rules[int(s.rule)];
}

template <typename T>
class OnDevice {
 public:
  explicit OnDevice(size_t count) {
    CHECK_CUDA(cudaMalloc(&data_, count * sizeof(T) + 256));
    CHECK_CUDA(cudaMemset(data_, 0, count * sizeof(T) + 256));
  }
  explicit OnDevice(const std::vector<T>& from) : OnDevice(from.size()) { put(from, 0); }
  ~OnDevice() { cudaFree(data_); }
  OnDevice(const OnDevice&) = delete;
  void put(const std::vector<T>& from, size_t at) {
    CHECK_CUDA(
        cudaMemcpy(data_ + at, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice));
  }
  std::vector<T> get(size_t at, size_t count) const {
    std::vector<T> to(count);
    CHECK_CUDA(cudaMemcpy(to.data(), data_ + at, count * sizeof(T), cudaMemcpyDeviceToHost));
    return to;
  }
  T* data() const { return data_; }

 private:
  T* data_ = nullptr;
};

struct Data {
  int inputs, classes;
  std::vector<uint8_t> x;
  std::vector<int32_t> labels = std::vector<int32_t>(kSamples);
  OnDevice<uint8_t> device_x;
  OnDevice<int32_t> device_labels;

  Data(int in, int out)
      : inputs(in),
        classes(out),
        x(size_t(kSamples) * size_t(in)),
        device_x(x.size()),
        device_labels(kSamples) {
    std::mt19937 random(1);
    for (int i = 0; i < kSamples; ++i) {
      const int label = labels[size_t(i)] = int(random() % unsigned(classes));
      for (int k = 0; k < in; ++k) {
        const bool bright = k * classes / in == label;
        x[size_t(i) * size_t(in) + size_t(k)] = uint8_t(random() % 160 + (bright ? 90 : 0));
      }
    }
    device_x.put(x, 0);
    device_labels.put(labels, 0);
  }
};

// The parameters of a member: w1, b1, w2, b2, as values that its type represents exactly.
struct Net {
  std::vector<double> p[4], m[4], v[4];
};

inline size_t count_of(const PopulationShape& s, int which) {
  const int sizes[] = {s.hidden * s.inputs, s.hidden, s.classes * s.hidden, s.classes};
  return size_t(sizes[which]);
}

inline Net make_net(const PopulationShape& s, int seed) {
  Net net;
  std::mt19937 random{unsigned(seed)};
  for (int which = 0; which < 4; ++which) {
    const double bound = 1 / std::sqrt(double(which < 2 ? s.inputs : s.hidden));
    for (size_t i = 0; i < count_of(s, which); ++i) {
      net.p[which].push_back(kept(bound * (double(random()) / 2147483648.0 - 1), s.numbers));
    }
    net.m[which].assign(count_of(s, which), 0);
    net.v[which].assign(count_of(s, which), 0);
  }
  return net;
}

// One step in double, with the kernel's roundings of operands.
inline double host_step(Net& net, const Data& data, const PopulationShape& s,
                        const MemberArgs& args, const int32_t* order, double rate, int step) {
  const int in = s.inputs, hidden = s.hidden, classes = s.classes;
  std::vector<double> gradients[4], w1, w2;
  for (int i = 0; i < 4; ++i) gradients[i].assign(count_of(s, i), 0);
  for (const double w : net.p[0]) w1.push_back(rounded(w, s.numbers));
  for (const double w : net.p[2]) w2.push_back(plain_rounded(w, s.numbers));
  double loss = 0;
  std::vector<double> h(size_t(hidden), 0.0), y(size_t(classes), 0.0), d(size_t(classes), 0.0);
  for (int i = 0; i < s.batch; ++i) {
    const uint8_t* x = data.x.data() + size_t(order[i]) * size_t(in);
    const int label = data.labels[size_t(order[i])];
    for (int j = 0; j < hidden; ++j) {
      double z = 0;
      for (int k = 0; k < in; ++k) z += double(x[k]) * w1[size_t(j * in + k)];
      h[size_t(j)] =
          plain_rounded(std::max(0.0, double(kScale) * z + net.p[1][size_t(j)]), s.numbers);
    }
    double total = 0, most = -1e300;
    for (int c = 0; c < classes; ++c) {
      y[size_t(c)] = net.p[3][size_t(c)];
      for (int j = 0; j < hidden; ++j) y[size_t(c)] += h[size_t(j)] * w2[size_t(c * hidden + j)];
      most = std::max(most, y[size_t(c)]);
    }
    for (const double each : y) total += std::exp(each - most);
    loss += std::log(total) + most - y[size_t(label)];
    for (int c = 0; c < classes; ++c) {
      const double exact = std::exp(y[size_t(c)] - most) / total - (c == label ? 1 : 0);
      gradients[3][size_t(c)] += exact;
      d[size_t(c)] = plain_rounded(exact, s.numbers);
      for (int j = 0; j < hidden; ++j)
        gradients[2][size_t(c * hidden + j)] += d[size_t(c)] * h[size_t(j)];
    }
    for (int j = 0; j < hidden; ++j) {
      if (h[size_t(j)] <= 0) continue;
      double dz = 0;
      for (int c = 0; c < classes; ++c) dz += d[size_t(c)] * w2[size_t(c * hidden + j)];
      dz = plain_rounded(dz, s.numbers);
      gradients[1][size_t(j)] += dz;
      for (int k = 0; k < in; ++k) gradients[0][size_t(j * in + k)] += double(kScale) * dz * x[k];
    }
  }
  for (int which = 0; which < 4; ++which) {
    for (size_t i = 0; i < net.p[which].size(); ++i) {
      double &w = net.p[which][i], &m = net.m[which][i], &v = net.v[which][i];
      double g = gradients[which][i] / s.batch;
      if (s.rule == PopulationRule::adam && args.decoupled) {
        w -= rate * double(args.decay) * w;
      } else {
        g += double(args.decay) * w;
      }
      if (s.rule == PopulationRule::momentum) {
        m = double(args.momentum) * m + g;
        g = args.nesterov ? g + double(args.momentum) * m : m;
      } else if (s.rule == PopulationRule::adam) {
        m += (1 - args.beta1) * (g - m);
        v += (1 - args.beta2) * (g * g - v);
        const double m1 = m / (1 - std::pow(args.beta1, step + 1));
        g = m1 / (std::sqrt(v / (1 - std::pow(args.beta2, step + 1))) + double(args.epsilon));
      }
      w = kept(w - rate * g, s.numbers);
    }
  }
  return loss / s.batch;
}

// A population on the device, whose members have their own rates, decays, seeds and, unless shared,
// orders.
struct Population {
  PopulationShape shape;
  int members, steps;
  OnDevice<char> memory;  // the parameters, then the moments, of member after member
  OnDevice<double> losses, rates;
  OnDevice<int32_t> corrects, order, ticks;
  OnDevice<int64_t> zero;
  OnDevice<MemberArgs> args;
  std::vector<MemberArgs> host_args;

  Population(const Data& data, const PopulationShape& s, int count, int number, bool shared_order)
      : shape(s),
        members(count),
        steps(number),
        memory(size_t(count) * member_bytes(s)),
        losses(size_t(count) * size_t(number)),
        rates(size_t(count) * size_t(number)),
        corrects(size_t(count) * size_t(number)),
        order(size_t(shared_order ? 1 : count) * size_t(number) * size_t(s.batch)),
        ticks(size_t(count)),
        zero(1),
        args(size_t(count)) {
    const int different = std::min(count, number > 50 ? 16 : count);  // nets to begin with
    std::vector<std::vector<char>> images;
    for (int i = 0; i < different; ++i) images.push_back(image_of(make_net(s, i)));
    for (int i = 0; i < count; ++i) {
      memory.put(images[size_t(i % different)], size_t(i) * member_bytes(s));
      rates.put(std::vector<double>(size_t(number), rate(s, i)), size_t(i) * size_t(number));
      const size_t at = size_t(shared_order ? 0 : i) * size_t(number) * size_t(s.batch);
      if (i == 0 || !shared_order) order.put(order_of(s, i, number), at);
      MemberArgs a;
      a.inputs = data.device_x.data();
      a.labels = data.device_labels.data();
      a.order = order.data() + at;
      a.first = a.step = zero.data();
      a.tick = ticks.data() + i;
      a.lr = rates.data() + size_t(i) * size_t(number);
      a.loss = losses.data() + size_t(i) * size_t(number);
      a.correct = corrects.data() + size_t(i) * size_t(number);
      for (int which = 0; which < 4; ++which) {
        MemberLayer& layer = a.layers[which / 2];
        char* p = memory.data() + size_t(i) * member_bytes(s) + offset(s, which);
        (which % 2 == 0 ? layer.w : layer.b) = p;
        char* moments = memory.data() + size_t(i) * member_bytes(s) + offset(s, 4);
        for (int j = 0; j < which; ++j) moments += aligned(4 * count_of(s, j));
        auto* m = reinterpret_cast<float*>(moments);
        auto* v = reinterpret_cast<float*>(moments + moment_bytes(s));
        (which % 2 == 0 ? layer.m_w : layer.m_b) = m;
        (which % 2 == 0 ? layer.v_w : layer.v_b) = v;
      }
      a.scale = kScale;
      a.decay = 1e-3f * float(i % 3);
      a.momentum = 0.9f;
      a.nesterov = i % 2 == 1;
      a.beta1 = 0.9;
      a.beta2 = 0.999;
      a.epsilon = 1e-3f;  // gradients near zero have no reliable sign
      a.decoupled = i % 2 == 1;
      a.steps = number;
      host_args.push_back(a);
    }
    args.put(host_args, 0);
  }
  static double rate(const PopulationShape& s, int member) {
    const double most = s.rule == PopulationRule::adam       ? 1e-3
                        : s.rule == PopulationRule::momentum ? 0.02
                                                             : 0.2;
    return most * (0.25 + 0.75 * double(member % 20) / 20);
  }
  static std::vector<int32_t> order_of(const PopulationShape& s, int member, int steps) {
    std::mt19937 random(unsigned(1000 + member));
    std::vector<int32_t> order(size_t(steps) * size_t(s.batch));
    for (int32_t& each : order) each = int32_t(random() % kSamples);
    return order;
  }

  void run(const PopulationLayout& layout, int first, int count) {
    CHECK_CUDA(train_population(shape, layout, count == 1 ? nullptr : args.data() + first, count,
                                host_args[size_t(first)], nullptr));
    CHECK_CUDA(cudaDeviceSynchronize());
  }
  void reset_ticks() { ticks.put(std::vector<int32_t>(size_t(members)), 0); }
  std::vector<char> bytes_of(int member) const {
    return memory.get(size_t(member) * member_bytes(shape), offset(shape, 4));
  }
  double difference(int member, const Net& net, int which) const {
    const std::vector<char> all = bytes_of(member);
    double worst = 0;
    for (size_t i = 0; i < net.p[which].size(); ++i) {
      const double off = std::abs(read(all.data() + offset(shape, which), i) - net.p[which][i]);
      worst = std::isnan(off) ? 1e9 : std::max(worst, off);
    }
    return worst;
  }

 private:
  static size_t aligned(size_t bytes) { return (bytes + 255) / 256 * 256; }
  static size_t weight_bytes(const PopulationShape& s) { return has_masters(s.numbers) ? 4 : 2; }
  static size_t offset(const PopulationShape& s, int which) {
    size_t at = 0;
    for (int i = 0; i < which; ++i) at += aligned(weight_bytes(s) * count_of(s, i));
    return at;
  }
  static size_t moment_bytes(const PopulationShape& s) {
    if (s.rule == PopulationRule::sgd) return 0;
    size_t bytes = 0;
    for (int i = 0; i < 4; ++i) bytes += aligned(4 * count_of(s, i));
    return bytes;
  }
  static size_t member_bytes(const PopulationShape& s) {
    return offset(s, 4) + 2 * moment_bytes(s);
  }
  double read(const char* from, size_t i) const {
    if (has_masters(shape.numbers)) return double(reinterpret_cast<const float*>(from)[i]);
    if (is_bf16(shape.numbers)) {
      return double(__bfloat162float(reinterpret_cast<const __nv_bfloat16*>(from)[i]));
    }
    return double(__half2float(reinterpret_cast<const __half*>(from)[i]));
  }
  std::vector<char> image_of(const Net& net) const {
    std::vector<char> all(offset(shape, 4));
    for (int which = 0; which < 4; ++which) {
      char* to = all.data() + offset(shape, which);
      for (size_t i = 0; i < net.p[which].size(); ++i) {
        const auto x = float(net.p[which][i]);
        if (has_masters(shape.numbers)) {
          reinterpret_cast<float*>(to)[i] = x;
        } else if (is_bf16(shape.numbers)) {
          reinterpret_cast<__nv_bfloat16*>(to)[i] = __float2bfloat16_rn(x);
        } else {
          reinterpret_cast<__half*>(to)[i] = __float2half_rn(x);
        }
      }
    }
    return all;
  }
};

}  // namespace population_bench
