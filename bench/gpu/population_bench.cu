// Many nets 784-128-10 trained at once, one a thread block: checked against a host computation in
// double, and timed.
//
//   population_bench [members...]     us a step of all members together (16, 132, 1024)
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "bench/gpu/check_cuda.h"
#include "ridgeline/cuda/population/train.h"

namespace {

using ridgeline::cuda::PopulationTraining;

constexpr int kInputs = PopulationTraining::kInputs, kHidden = PopulationTraining::kHidden,
              kBatch = PopulationTraining::kBatch, kClasses = 10, kSamples = 60000;
constexpr float kScale = 1 / 255.0f;

// A member on the host, as the kernel has it: weights are fp16, biases fp32.
struct Net {
  std::vector<__half> w1 = std::vector<__half>(kHidden * kInputs);
  std::vector<__half> w2 = std::vector<__half>(kClasses * kHidden);
  std::vector<float> b1 = std::vector<float>(kHidden), b2 = std::vector<float>(kClasses);
};

struct Data {
  std::vector<uint8_t> inputs = std::vector<uint8_t>(size_t(kSamples) * kInputs);
  std::vector<int32_t> labels = std::vector<int32_t>(kSamples);
};

Data make_data() {
  Data data;
  std::mt19937 random(1);
  for (int i = 0; i < kSamples; ++i) {
    const int label = data.labels[size_t(i)] = int(random() % kClasses);
    for (int k = 0; k < kInputs; ++k) {
      const bool bright = k * kClasses / kInputs == label;
      data.inputs[size_t(i) * kInputs + size_t(k)] = uint8_t(random() % 160 + (bright ? 90 : 0));
    }
  }
  return data;
}

Net make_net(int seed) {
  Net net;
  std::mt19937 random{unsigned(seed)};
  const auto fill = [&](auto& values, float bound) {
    for (auto& each : values) each = bound * (float(random()) / 2147483648.0f - 1);
  };
  fill(net.w1, 1 / std::sqrt(float(kInputs)));
  fill(net.w2, 1 / std::sqrt(float(kHidden)));
  fill(net.b1, 1 / std::sqrt(float(kInputs)));
  fill(net.b2, 1 / std::sqrt(float(kHidden)));
  return net;
}

std::vector<double> widened(const std::vector<__half>& from) {
  std::vector<double> to;
  for (const __half each : from) to.push_back(double(__half2float(each)));
  return to;
}

// One step in double, with fp16 where the kernel has it.
double host_step(Net& net, const Data& data, const int32_t* order, float rate, float decay) {
  std::vector<double> dw1(net.w1.size()), dw2(net.w2.size()), db1(kHidden), db2(kClasses);
  const std::vector<double> w1 = widened(net.w1), w2 = widened(net.w2);
  double loss = 0;
  for (int i = 0; i < kBatch; ++i) {
    const uint8_t* x = data.inputs.data() + size_t(order[i]) * kInputs;
    const int label = data.labels[size_t(order[i])];
    double h[kHidden], y[kClasses], total = 0, most = -1e300;
    for (int j = 0; j < kHidden; ++j) {
      double z = 0;
      for (int k = 0; k < kInputs; ++k) z += double(x[k]) * w1[size_t(j * kInputs + k)];
      h[j] = double(__half2float(
          __float2half_rn(float(std::max(0.0, double(kScale) * z + net.b1[size_t(j)])))));
    }
    for (int c = 0; c < kClasses; ++c) {
      y[c] = net.b2[size_t(c)];
      for (int j = 0; j < kHidden; ++j) y[c] += h[j] * w2[size_t(c * kHidden + j)];
      most = std::max(most, y[c]);
    }
    for (int c = 0; c < kClasses; ++c) total += std::exp(y[c] - most);
    loss += std::log(total) + most - y[label];
    double d[kClasses];
    for (int c = 0; c < kClasses; ++c) {
      d[c] = std::exp(y[c] - most) / total - (c == label ? 1 : 0);
      db2[size_t(c)] += d[c];
      d[c] = double(__half2float(__float2half_rn(float(d[c]))));
      for (int j = 0; j < kHidden; ++j) dw2[size_t(c * kHidden + j)] += d[c] * h[j];
    }
    for (int j = 0; j < kHidden; ++j) {
      if (h[j] <= 0) continue;
      double dz = 0;
      for (int c = 0; c < kClasses; ++c) dz += d[c] * w2[size_t(c * kHidden + j)];
      dz = double(__half2float(__float2half_rn(float(dz))));
      db1[size_t(j)] += dz;
      for (int k = 0; k < kInputs; ++k)
        dw1[size_t(j * kInputs + k)] += double(kScale) * dz * double(x[k]);
    }
  }
  const auto update = [&](auto& weights, const std::vector<double>& gradients, float wd) {
    for (size_t i = 0; i < weights.size(); ++i) {
      const double w = double(float(weights[i]));
      weights[i] = float(w - double(rate) * (gradients[i] / kBatch + double(wd) * w));
    }
  };
  update(net.w1, dw1, decay);
  update(net.w2, dw2, decay);
  update(net.b1, db1, 0);
  update(net.b2, db2, 0);
  return loss / kBatch;
}

template <typename T>
class OnDevice {
 public:
  explicit OnDevice(size_t count) : count_(count) {
    CHECK_CUDA(cudaMalloc(&data_, count * sizeof(T)));
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
  size_t count_;
  T* data_ = nullptr;
};

// A population on the device, with rates, seeds and, unless they are shared, orders of its own.
struct Population {
  Population(const Data& data, const OnDevice<uint8_t>& inputs, const OnDevice<int32_t>& labels,
             int members, int steps, bool shared_order)
      : w1(size_t(members) * kHidden * kInputs),
        w2(size_t(members) * kClasses * kHidden),
        b1(size_t(members) * kHidden),
        b2(size_t(members) * kClasses),
        losses(size_t(members) * size_t(steps)),
        rates(size_t(members) * size_t(steps)),
        decays(size_t(members)),
        corrects(size_t(members) * size_t(steps)),
        order(size_t(shared_order ? 1 : members) * size_t(steps) * kBatch) {
    (void)data;
    for (int m = 0; m < members; ++m) {
      const Net net = make_net(m);
      w1.put(net.w1, size_t(m) * net.w1.size());
      w2.put(net.w2, size_t(m) * net.w2.size());
      b1.put(net.b1, size_t(m) * net.b1.size());
      b2.put(net.b2, size_t(m) * net.b2.size());
      rates.put(std::vector<float>(size_t(steps), rate(m)), size_t(m) * size_t(steps));
      decays.put({decay(m)}, size_t(m));
      if (m == 0 || !shared_order) {
        order.put(order_of(m, steps), size_t(m) * size_t(steps) * kBatch);
      }
    }
    training.inputs = inputs.data();
    training.labels = labels.data();
    training.order = order.data();
    training.order_stride = shared_order ? 0 : int64_t(steps) * kBatch;
    training.rates = rates.data();
    training.decays = decays.data();
    training.w1 = w1.data();
    training.b1 = b1.data();
    training.w2 = w2.data();
    training.b2 = b2.data();
    training.losses = losses.data();
    training.corrects = corrects.data();
    training.scale = kScale;
    training.classes = kClasses;
    training.members = members;
    training.steps = steps;
  }
  static float rate(int member) { return 0.05f + 0.01f * float(member % 20); }
  static float decay(int member) { return 1e-3f * float(member % 3); }
  static std::vector<int32_t> order_of(int member, int steps) {
    std::mt19937 random(unsigned(1000 + member));
    std::vector<int32_t> order(size_t(steps) * kBatch);
    for (int32_t& each : order) each = int32_t(random() % kSamples);
    return order;
  }

  OnDevice<__half> w1, w2;
  OnDevice<float> b1, b2, losses, rates, decays;
  OnDevice<int32_t> corrects, order;
  PopulationTraining training;
};

// Members against the host, and each in a population against itself alone, bit for bit.
bool check_members(const Data& data, const OnDevice<uint8_t>& inputs,
                   const OnDevice<int32_t>& labels) {
  constexpr int kMembers = 140, kSteps = 6;  // more members than SMs: some follow others
  Population all(data, inputs, labels, kMembers, kSteps, false);
  CHECK_CUDA(train_population(all.training, nullptr));
  CHECK_CUDA(cudaDeviceSynchronize());
  bool good = true;
  for (const int m : {0, 7, 139}) {
    Net net = make_net(m);
    const std::vector<int32_t> order = Population::order_of(m, kSteps);
    double worst_loss = 0, worst = 0;
    const auto losses = all.losses.get(size_t(m) * kSteps, kSteps);
    for (int s = 0; s < kSteps; ++s) {
      const double loss = host_step(net, data, order.data() + s * kBatch, Population::rate(m),
                                    Population::decay(m));
      worst_loss = std::max(worst_loss, std::abs(loss - double(losses[size_t(s)])));
    }
    const auto w1 = all.w1.get(size_t(m) * net.w1.size(), net.w1.size());
    const auto w2 = all.w2.get(size_t(m) * net.w2.size(), net.w2.size());
    for (size_t i = 0; i < w1.size(); ++i) {
      worst =
          std::max(worst, std::abs(double(__half2float(w1[i])) - double(__half2float(net.w1[i]))));
    }
    for (size_t i = 0; i < w2.size(); ++i) {
      worst =
          std::max(worst, std::abs(double(__half2float(w2[i])) - double(__half2float(net.w2[i]))));
    }
    // Weights are below 0.25, where fp16 has steps of 1.2e-4; a sum on the edge rounds either way.
    const bool fits = worst_loss < 1e-3 && worst < 5e-4;
    std::printf("member %3d: loss %.6f, off by at most %.2g; weights off by at most %.2g  %s\n", m,
                double(losses.back()), worst_loss, worst, fits ? "ok" : "WRONG");
    good = good && fits;
  }
  Population alone(data, inputs, labels, kMembers, kSteps, false);
  PopulationTraining one = alone.training;
  constexpr size_t kLast = kMembers - 1;
  one.w1 += kLast * kHidden * kInputs;
  one.w2 += kLast * kClasses * kHidden;
  one.b1 += kLast * kHidden;
  one.b2 += kLast * kClasses;
  one.rates += kLast * kSteps;
  one.decays += kLast;
  one.order += kLast * size_t(one.order_stride);
  one.losses += kLast * kSteps;
  one.corrects += kLast * kSteps;
  one.members = 1;
  CHECK_CUDA(train_population(one, nullptr));
  CHECK_CUDA(cudaDeviceSynchronize());
  const auto a = all.w1.get(kLast * kHidden * kInputs, kHidden * kInputs);
  const auto b = alone.w1.get(kLast * kHidden * kInputs, kHidden * kInputs);
  const bool same = std::memcmp(a.data(), b.data(), a.size() * sizeof(__half)) == 0;
  std::printf("a member alone and among others: %s\n", same ? "the same bits" : "OTHER BITS");
  return good && same;
}

void time_members(const Data& data, const OnDevice<uint8_t>& inputs,
                  const OnDevice<int32_t>& labels, int members, bool shared_order) {
  constexpr int kSteps = 50;
  Population population(data, inputs, labels, members, kSteps, shared_order);
  cudaEvent_t begin, end;
  CHECK_CUDA(cudaEventCreate(&begin));
  CHECK_CUDA(cudaEventCreate(&end));
  float best = 1e30f;
  for (int i = 0; i < 5; ++i) {
    CHECK_CUDA(cudaEventRecord(begin));
    CHECK_CUDA(train_population(population.training, nullptr));
    CHECK_CUDA(cudaEventRecord(end));
    CHECK_CUDA(cudaEventSynchronize(end));
    float ms = 0;
    CHECK_CUDA(cudaEventElapsedTime(&ms, begin, end));
    best = std::min(best, ms);
  }
  const double us = 1e3 * double(best) / kSteps;
  const double flops = 4.0 * kBatch * kInputs * kHidden + 6.0 * kBatch * kHidden * kClasses;
  std::printf(
      "784-128-10, batch %d, fp16 weights, %4d members, %s: %8.1f us a step of all, %6.3f a "
      "member, "
      "%.0f TFLOP/s\n",
      kBatch, members, shared_order ? "one order " : "own orders", us, us / members,
      1e-6 * flops * members / us);
}

}  // namespace

int main(int argc, char** argv) {
  const Data data = make_data();
  const OnDevice<uint8_t> inputs(data.inputs);
  const OnDevice<int32_t> labels(data.labels);
  const bool good = check_members(data, inputs, labels);
  std::vector<int> counts;
  for (int i = 1; i < argc; ++i) counts.push_back(std::atoi(argv[i]));
  if (counts.empty()) counts = {16, 128, 132, 1024};
  for (const int members : counts) {
    for (const bool shared : {true, false}) time_members(data, inputs, labels, members, shared);
  }
  return good ? 0 : 1;
}
