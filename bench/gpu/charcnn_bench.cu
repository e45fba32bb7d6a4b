// Checks the kernels of the character-level network against sums in double on the host, and times
// them at the sizes of configs/agnews-charcnn.toml: charcnn_bench [samples] [bf16|fp16|tf32|fp32]
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <string>

#include "bench/gpu/conv_device.cuh"
#include "ridgeline/core/philox.h"
#include "ridgeline/cuda/conv1d/chain.h"
#include "ridgeline/cuda/conv1d/conv1d.h"
#include "ridgeline/cuda/conv1d/norm_pool.h"
#include "ridgeline/cuda/conv1d/one_hot.h"
#include "ridgeline/cuda/conv1d/simt.h"

namespace ridgeline::cuda {
namespace {

constexpr int kSymbols = 70, kLength = 1014, kOut = 256;

template <typename T>
std::vector<T> random_values(size_t count, double deviation, double mean, uint64_t stream) {
  const Philox random{17, stream};
  std::vector<T> values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = T(float(mean + deviation * (2.0 * random.uniform(i) - 1.0) * 1.7));
  }
  return values;
}

// The relative error of vectors; NaN if any element is NaN.
struct Difference {
  double off = 0, size = 0;
  void add(double got, double want) {
    off += (got - want) * (got - want);
    size += want * want;
  }
  double relative() const { return std::sqrt(off / size); }
};

double time_ms(const std::function<void()>& run, int repeats = 15) {
  cudaEvent_t begin, end;
  CHECK_CUDA(cudaEventCreate(&begin));
  CHECK_CUDA(cudaEventCreate(&end));
  for (int i = 0; i < 3; ++i) run();
  std::vector<float> times;
  for (int i = 0; i < repeats; ++i) {
    CHECK_CUDA(cudaEventRecord(begin));
    run();
    CHECK_CUDA(cudaEventRecord(end));
    CHECK_CUDA(cudaEventSynchronize(end));
    float ms = 0;
    CHECK_CUDA(cudaEventElapsedTime(&ms, begin, end));
    times.push_back(ms);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

template <typename T>
class Network {
 public:
  Network(int n, bool exact) : n_(n), exact_(exact) {
    CHECK_CUDA(cudaDeviceGetAttribute(&sms_, cudaDevAttrMultiProcessorCount, 0));
    CHECK_CUDA(cudaDeviceGetAttribute(&shared_memory_, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
  }

  void run() {
    double total = first();
    OnDevice<T> x3(size_t(n_) * 112 * kOut), x4(x3.n);
    total += convolve("conv7 relu pool3", *x2_, x3, 336, 330, 7, 3, true);
    if constexpr (sizeof(T) == 2) {
      for (const int layers : {1, 2, 4}) chain(x3, layers);
    }
    total += convolve("conv3 relu", x3, x4, 112, 108, 3, 1, true);
    total += convolve("conv3 relu", x4, x3, 112, 106, 3, 1, true);
    total += convolve("conv3 relu", x3, x4, 112, 104, 3, 1, true);
    total += convolve("conv3", x4, x3, 112, 102, 3, 1, false);
    total += last(x3);
    std::printf("%-22s %9.3f ms  %9.0f samples/s without the linear layers\n", "sum", total,
                n_ / total * 1e3);
  }

 private:
  void report(const char* what, double ms, double flops, double error, double bound) {
    std::printf("%-22s %9.3f ms %8.1f TFLOP/s %7.4f us/sample  error %.2e %s\n", what, ms,
                flops / ms * 1e-9, ms * 1e3 / n_, error, error < bound ? "ok" : "WRONG");
  }

  double first() {
    const OneHotBlockShape s{n_, kLength, kSymbols, kOut, 7};
    const Philox random{3, 1};
    std::vector<uint8_t> codes(size_t(n_) * kLength);
    for (size_t i = 0; i < codes.size(); ++i) codes[i] = uint8_t(random.below(kSymbols + 1, i));
    std::vector<int32_t> order(static_cast<size_t>(n_));
    for (int i = 0; i < n_; ++i) order[size_t(i)] = (i * 7 + 3) % n_;
    const auto w = random_values<T>(size_t(kOut) * s.filter(), 0.05, 0.01, 2);
    const auto b = random_values<float>(kOut, 0.05, 0.02, 3);
    const auto gamma = random_values<T>(size_t(kOut) * s.steps(), 0.3, 1, 4);
    const auto beta = random_values<T>(size_t(kOut) * s.steps(), 0.3, 0, 5);
    const OnDevice<uint8_t> d_codes(codes);
    const OnDevice<int32_t> d_order(order), d_tick(std::vector<int32_t>{0});
    const OnDevice<int64_t> d_first(std::vector<int64_t>{0});
    const OnDevice<T> d_w(w), d_gamma(gamma), d_beta(beta);
    const OnDevice<float> d_b(b);
    OnDevice<char> workspace(one_hot_block_workspace(s, sizeof(T)));
    x2_ = std::make_unique<OnDevice<T>>(size_t(n_) * 336 * kOut);
    x2_->poison();
    OneHotBlockArgs<T> args;
    args.shape = s;
    args.codes = {nullptr, d_codes.p, d_order.p, d_first.p, d_tick.p};
    args.w = d_w.p;
    args.bias = {d_b.p, true};
    args.gamma = d_gamma.p;
    args.beta = d_beta.p;
    args.epsilon = 1e-5f;
    args.y = x2_->p;
    const std::string refusal = refuse_one_hot_block(s, sizeof(T), shared_memory_);
    if (!refusal.empty()) std::printf("refused: %s\n", refusal.c_str());
    const auto launch = [&] {
      CHECK_CUDA(launch_one_hot_block<T>(args, workspace.p, sms_, nullptr));
    };
    launch();
    CHECK_CUDA(cudaDeviceSynchronize());
    Difference difference;
    for (const int sample : samples()) {
      const uint8_t* text = &codes[size_t(order[size_t(sample)]) * kLength];
      std::vector<double> x(size_t(kOut) * s.steps());
      double mean = 0, var = 0;
      for (int o = 0; o < kOut; ++o) {
        for (int t = 0; t < s.steps(); ++t) {
          double sum = b[size_t(o)];
          for (int u = 0; u < 7; ++u) {
            if (text[t + u] < kSymbols)
              sum += double(float(w[(size_t(o) * kSymbols + text[t + u]) * 7 + u]));
          }
          x[size_t(o) * s.steps() + t] = sum;
          mean += sum;
        }
      }
      mean /= double(x.size());
      for (const double each : x) var += (each - mean) * (each - mean);
      const double rstd = 1 / std::sqrt(var / double(x.size()) + 1e-5);
      const auto got = slice(*x2_, size_t(sample) * 336 * kOut, 336 * kOut);
      for (int o = 0; o < kOut; ++o) {
        for (int j = 0; j < 336; ++j) {
          double best = 0;
          for (int k = 0; k < 3; ++k) {
            const size_t at = size_t(o) * s.steps() + 3 * j + k;
            best = std::max(
                best, (x[at] - mean) * rstd * double(float(gamma[at])) + double(float(beta[at])));
          }
          difference.add(got[size_t(j) * kOut + o], best);
        }
      }
    }
    const double ms = time_ms(launch);
    report("onehot7 norm relu pool3", ms, double(n_) * kOut * s.steps() * 7, difference.relative(),
           tolerance(1));
    return ms;
  }

  double convolve(const char* what, const OnDevice<T>& x, OnDevice<T>& y, int pitch, int length,
                  int taps, int pool, bool relu) {
    const auto w = random_values<T>(size_t(kOut) * kOut * taps, 1.4 / std::sqrt(kOut * taps), 0, 6);
    const auto b = random_values<float>(kOut, 0.1, 0, 7);
    const OnDevice<T> d_w(w);
    const OnDevice<float> d_b(b);
    OnDevice<char> workspace(conv1d_workspace(kOut, kOut, taps, sizeof(T)));
    y.poison();
    Conv1dArgs<T> args{n_, pitch, kOut, kOut, taps, pool, relu, x.p, d_w.p, {d_b.p, true}, y.p};
    std::function<cudaError_t(cudaStream_t)> step;
    if constexpr (sizeof(T) == 4) {
      if (exact_) {
        step = [&](cudaStream_t stream) { return launch_conv1d_fp32(args, workspace.p, stream); };
      }
    }
    if (!step) step = prepare_conv1d<T>(args, workspace.p, sms_);
    const auto launch = [&] { CHECK_CUDA(step(nullptr)); };
    launch();
    CHECK_CUDA(cudaDeviceSynchronize());
    Difference difference;
    for (const int sample : samples()) {
      const auto in = slice(x, size_t(sample) * pitch * kOut, pitch * kOut);
      const auto got = slice(y, size_t(sample) * (pitch / pool) * kOut, pitch / pool * kOut);
      for (int o = 0; o < kOut; o += 5) {
        for (int j = 0; j < length / pool; ++j) {
          double best = relu ? 0 : -1e30;
          for (int k = 0; k < pool; ++k) {
            double sum = b[size_t(o)];
            for (int u = 0; u < taps; ++u) {
              const double* row = &in[size_t(j * pool + k + u) * kOut];
              for (int c = 0; c < kOut; ++c)
                sum += row[c] * double(float(w[(size_t(o) * kOut + c) * taps + u]));
            }
            best = std::max(best, sum);
          }
          difference.add(got[size_t(j) * kOut + o], best);
        }
      }
    }
    const double ms = time_ms(launch);
    report(what, ms, 2.0 * n_ * length * kOut * kOut * taps, difference.relative(), tolerance(1));
    return ms;
  }

  double last(const OnDevice<T>& x) {
    const auto gamma = random_values<T>(size_t(kOut) * 102, 0.3, 1, 8);
    const auto beta = random_values<T>(size_t(kOut) * 102, 0.3, 0, 9);
    const OnDevice<T> d_gamma(gamma), d_beta(beta);
    OnDevice<T> y(size_t(n_) * 34 * kOut);
    y.poison();
    OnDevice<char> workspace(norm_pool_workspace(102, kOut, sizeof(T)));
    const NormPoolArgs<T> args{n_, 102, 112, kOut, x.p, d_gamma.p, d_beta.p, 1e-5f, y.p};
    const std::string refusal = refuse_norm_pool(102, kOut, sizeof(T));
    if (!refusal.empty()) std::printf("refused: %s\n", refusal.c_str());
    const auto launch = [&] { CHECK_CUDA(launch_norm_pool<T>(args, workspace.p, sms_, nullptr)); };
    launch();
    CHECK_CUDA(cudaDeviceSynchronize());
    Difference difference;
    for (const int sample : samples()) {
      add_norm_pool(slice(x, size_t(sample) * 112 * kOut, 102 * kOut), gamma, beta, sample, y,
                    difference);
    }
    const double ms = time_ms(launch);
    report("norm relu pool3", ms, 0, difference.relative(), tolerance(1));
    return ms;
  }

  // The last convolutions, normalisation, relu and pool in one kernel, compared with one kernel
  // each.
  void chain(const OnDevice<T>& x, int layers) {
    const int length = 102 + 2 * layers;
    std::vector<std::vector<T>> w;
    std::vector<std::vector<float>> b;
    std::vector<std::unique_ptr<OnDevice<T>>> d_w;
    std::vector<std::unique_ptr<OnDevice<float>>> d_b;
    for (int l = 0; l < layers; ++l) {
      w.push_back(random_values<T>(size_t(kOut) * kOut * 3, 1.4 / std::sqrt(kOut * 3), 0,
                                   uint64_t(20 + l)));
      b.push_back(random_values<float>(kOut, 0.1, 0, uint64_t(30 + l)));
      d_w.push_back(std::make_unique<OnDevice<T>>(w.back()));
      d_b.push_back(std::make_unique<OnDevice<float>>(b.back()));
    }
    const auto gamma = random_values<T>(size_t(kOut) * 102, 0.3, 1, 8);
    const auto beta = random_values<T>(size_t(kOut) * 102, 0.3, 0, 9);
    const OnDevice<T> d_gamma(gamma), d_beta(beta);
    OnDevice<T> y(size_t(n_) * 34 * kOut);
    y.poison();
    OnDevice<char> workspace(conv1d_chain_workspace(layers));
    Conv1dChainArgs<T> args;
    args.n = n_;
    args.length = length;
    args.layers = layers;
    args.x = x.p;
    for (size_t l = 0; l < size_t(layers); ++l) {
      args.w[l] = d_w[l]->p;
      args.bias[l] = {d_b[l]->p, true};
    }
    args.gamma = d_gamma.p;
    args.beta = d_beta.p;
    args.epsilon = 1e-5f;
    args.y = y.p;
    const std::string refusal = refuse_conv1d_chain(length, layers);
    if (!refusal.empty()) std::printf("refused: %s\n", refusal.c_str());
    const auto step = prepare_conv1d_chain<T>(args, workspace.p, sms_);
    const auto launch = [&] { CHECK_CUDA(step(nullptr)); };
    launch();
    CHECK_CUDA(cudaDeviceSynchronize());
    Difference difference;
    double flops = 0;
    for (const int sample : samples()) {
      auto rows = slice(x, size_t(sample) * 112 * kOut, size_t(length) * kOut);
      flops = 0;
      for (int l = 0; l < layers; ++l) {
        const int left = length - 2 * (l + 1);
        rows = convolved(rows, w[size_t(l)], b[size_t(l)], left, l + 1 < layers);
        flops += 2.0 * n_ * left * kOut * kOut * 3;
      }
      add_norm_pool(rows, gamma, beta, sample, y, difference);
    }
    // All samples in repeated launches: a missing barrier would show as different bits now and
    // then.
    const std::vector<T> once = y.get();
    const double ms = time_ms(launch);
    for (int i = 0; i < 5; ++i) {
      y.poison();
      launch();
      if (std::memcmp(y.get().data(), once.data(), once.size() * sizeof(T)) != 0) {
        std::printf("chain of %d: launches differ\n", layers);
      }
    }
    const std::string what = "chain of " + std::to_string(layers) + " + norm";
    report(what.c_str(), ms, flops, difference.relative(), tolerance(2));
  }

  // Rows of channels after a convolution of 3 taps, rounded to T.
  static std::vector<double> convolved(const std::vector<double>& in, const std::vector<T>& w,
                                       const std::vector<float>& b, int left, bool relu) {
    std::vector<double> transposed(w.size()), out(size_t(left) * kOut);
    for (size_t i = 0; i < w.size(); ++i) {
      transposed[i % 3 * kOut * kOut + i / 3] = double(float(w[i]));
    }
    for (size_t t = 0; t < size_t(left); ++t) {
      for (size_t o = 0; o < size_t(kOut); ++o) {
        double sum = b[o];
        for (size_t u = 0; u < 3; ++u) {
          const double *row = &in[(t + u) * kOut], *of = &transposed[(u * kOut + o) * kOut];
          for (size_t c = 0; c < size_t(kOut); ++c) sum += row[c] * of[c];
        }
        out[t * kOut + o] = double(float(T(float(relu ? std::max(sum, 0.0) : sum))));
      }
    }
    return out;
  }

  static void add_norm_pool(const std::vector<double>& in, const std::vector<T>& gamma,
                            const std::vector<T>& beta, int sample, const OnDevice<T>& y,
                            Difference& difference) {
    const auto got = slice(y, size_t(sample) * 34 * kOut, 34 * kOut);
    double mean = 0, var = 0;
    for (const double each : in) mean += each;
    mean /= double(in.size());
    for (const double each : in) var += (each - mean) * (each - mean);
    const double rstd = 1 / std::sqrt(var / double(in.size()) + 1e-5);
    for (size_t o = 0; o < size_t(kOut); ++o) {
      for (size_t j = 0; j < 34; ++j) {
        double best = 0;
        for (size_t k = 0; k < 3; ++k) {
          const size_t at = o * 102 + 3 * j + k;
          best =
              std::max(best, (in[(3 * j + k) * kOut + o] - mean) * rstd * double(float(gamma[at])) +
                                 double(float(beta[at])));
        }
        difference.add(got[o * 34 + j], best);
      }
    }
  }

  std::vector<int> samples() const { return {0, n_ / 2, n_ - 1}; }
  double tolerance(double factor) const {
    return factor * (sizeof(T) == 2 ? 4e-3 : exact_ ? 2e-6 : 6e-4);
  }
  static std::vector<double> slice(const OnDevice<T>& all, size_t begin, size_t count) {
    std::vector<T> part(count);
    CHECK_CUDA(cudaMemcpy(part.data(), all.p + begin, count * sizeof(T), cudaMemcpyDeviceToHost));
    std::vector<double> wide(count);
    for (size_t i = 0; i < count; ++i) wide[i] = double(float(part[i]));
    return wide;
  }

  int n_, sms_ = 1, shared_memory_ = 0;
  bool exact_;  // fp32 multiply-adds
  std::unique_ptr<OnDevice<T>> x2_;
};

}  // namespace
}  // namespace ridgeline::cuda

int main(int count, char** args) {
  const int n = count > 1 ? std::atoi(args[1]) : 4752;
  const std::string precision = count > 2 ? args[2] : "bf16";
  std::printf("%d samples, %s\n", n, precision.c_str());
  if (precision == "bf16") ridgeline::cuda::Network<__nv_bfloat16>(n, false).run();
  if (precision == "fp16") ridgeline::cuda::Network<__half>(n, false).run();
  if (precision == "fp32") ridgeline::cuda::Network<float>(n, true).run();
  if (precision == "tf32") ridgeline::cuda::Network<float>(n, false).run();
  return 0;
}
