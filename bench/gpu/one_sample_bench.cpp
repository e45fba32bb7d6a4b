// Times one sample through small networks, host to host: by the resident kernel, and by one graph
// launch per sample. Every answer is first compared with a double-precision reference.
// usage: one_sample_bench [--calls N] [--all]    --all: clusters of every size
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "ridgeline/cuda/one_sample/cluster_net.h"

namespace {

using namespace ridgeline;

struct Net {
  std::string name;
  LayerChain chain;
  std::vector<std::vector<float>> memory;
  std::mt19937 random{1};

  Net() = default;
  Net(Net&&) noexcept = default;  // a copy would point into the memory of the first
  Net& operator=(Net&&) noexcept = default;

  const float* numbers(int64_t count, int64_t fan_in) {
    std::uniform_real_distribution<float> each(-1, 1);
    std::vector<float> values(static_cast<size_t>(count));
    for (float& v : values) v = each(random) * float(std::sqrt(3.0 / double(fan_in)));
    memory.push_back(std::move(values));
    return memory.back().data();
  }
  void linear(int64_t in, int64_t out, std::optional<ActivationKind> activation) {
    ChainLayer layer;
    layer.in = in;
    layer.out = out;
    layer.activation = activation;
    layer.w = numbers(in * out, in);
    layer.b = numbers(out, in);
    chain.layers.push_back(layer);
  }
  void cell(CellKind kind, int64_t in, int64_t hidden) {
    ChainLayer layer;
    layer.cell = kind;
    layer.in = in;
    layer.out = hidden;
    const int64_t rows = gates(kind) * hidden;
    layer.w = numbers(rows * in, in);
    layer.b = numbers(rows, in);
    layer.w_hh = numbers(rows * hidden, hidden);
    layer.b_hh = numbers(rows, hidden);
    chain.layers.push_back(layer);
  }
};

Net perceptron(std::string name, std::vector<int64_t> widths,
               ActivationKind kind = ActivationKind::relu) {
  Net net;
  net.name = std::move(name);
  for (size_t i = 0; i + 1 < widths.size(); ++i) {
    const bool last = i + 2 == widths.size();
    net.linear(widths[i], widths[i + 1], last ? std::nullopt : std::optional(kind));
  }
  return net;
}

Net recurrent(std::string name, CellKind kind, int64_t layers, int64_t width, int64_t in,
              int64_t head = 0) {
  Net net;
  net.name = std::move(name);
  for (int64_t i = 0; i < layers; ++i) net.cell(kind, i == 0 ? in : width, width);
  if (head > 0) net.linear(width, head, std::nullopt);
  return net;
}

// The chain in double, with its state.
class Reference {
 public:
  explicit Reference(const LayerChain& chain) : chain_(chain) {
    for (const ChainLayer& layer : chain.layers) {
      h_.emplace_back(size_t(layer.out), 0.0);
      c_.emplace_back(size_t(layer.out), 0.0);
    }
  }
  std::vector<double> run(const std::vector<float>& input) {
    std::vector<double> x(input.begin(), input.end());
    for (size_t l = 0; l < chain_.layers.size(); ++l) {
      const ChainLayer& layer = chain_.layers[l];
      x = layer.cell ? step(layer, x, h_[l], c_[l]) : linear(layer, x);
    }
    return x;
  }

 private:
  static double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
  static double dot(const float* w, const std::vector<double>& x) {
    double sum = 0;
    for (size_t i = 0; i < x.size(); ++i) sum += double(w[i]) * x[i];
    return sum;
  }
  static std::vector<double> linear(const ChainLayer& layer, const std::vector<double>& x) {
    std::vector<double> y;
    for (int64_t r = 0; r < layer.out; ++r) {
      double v = dot(layer.w + r * layer.in, x) + double(layer.b[r]);
      if (layer.activation == ActivationKind::relu) v = std::max(v, 0.0);
      if (layer.activation == ActivationKind::tanh) v = std::tanh(v);
      if (layer.activation == ActivationKind::sigmoid) v = sigmoid(v);
      if (layer.activation == ActivationKind::gelu) v = 0.5 * v * std::erfc(-v / std::sqrt(2.0));
      y.push_back(v);
    }
    return y;
  }
  static std::vector<double> step(const ChainLayer& layer, const std::vector<double>& x,
                                  std::vector<double>& h, std::vector<double>& c) {
    std::vector<double> next;
    for (int64_t u = 0; u < layer.out; ++u) {
      const auto sums = [&](int64_t gate) {
        const int64_t row = gate * layer.out + u;
        return std::pair(dot(layer.w + row * layer.in, x) + double(layer.b[row]),
                         dot(layer.w_hh + row * layer.out, h) + double(layer.b_hh[row]));
      };
      const auto sum = [&](int64_t gate) {
        const auto [a, b] = sums(gate);
        return a + b;
      };
      const auto at = size_t(u);
      if (layer.cell == CellKind::lstm) {
        c[at] = sigmoid(sum(1)) * c[at] + sigmoid(sum(0)) * std::tanh(sum(2));
        next.push_back(sigmoid(sum(3)) * std::tanh(c[at]));
      } else if (layer.cell == CellKind::gru) {
        const double r = sigmoid(sum(0)), z = sigmoid(sum(1));
        const auto [a, b] = sums(2);
        next.push_back((1 - z) * std::tanh(a + r * b) + z * h[at]);
      } else {
        next.push_back(layer.cell == CellKind::rnn_tanh ? std::tanh(sum(0))
                                                        : std::max(sum(0), 0.0));
      }
    }
    return h = next;
  }

  const LayerChain& chain_;
  std::vector<std::vector<double>> h_, c_;
};

std::vector<float> random_input(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> each;
  std::vector<float> x(static_cast<size_t>(count));
  for (float& v : x) v = each(random);
  return x;
}

// The largest error over some samples, including a state that is saved, advanced and restored.
double check(OneSampleNet& net, const LayerChain& chain) {
  size_t floats = 0;
  bool cells = false;
  for (const ChainLayer& layer : chain.layers) {
    if (layer.cell) floats += size_t(layer.out) * (layer.cell == CellKind::lstm ? 2 : 1);
    cells |= layer.cell.has_value();
  }
  std::vector<float> state(floats, 0.0f), y(size_t(chain.layers.back().out));
  net.restore_state(state.data());
  Reference reference(chain);
  double worst = 0;
  const auto compare = [&](uint32_t seed, Reference& with) {
    const std::vector<float> x = random_input(chain.layers.front().in, seed);
    net.run(x.data(), y.data());
    const std::vector<double> want = with.run(x);
    for (size_t i = 0; i < y.size(); ++i) {
      const double error = std::abs(double(y[i]) - want[i]) / (1 + std::abs(want[i]));
      worst = std::isfinite(y[i]) ? std::max(worst, error) : INFINITY;
    }
  };
  for (uint32_t seed = 0; seed < 20; ++seed) compare(seed, reference);
  if (!cells) return worst;
  net.save_state(state.data());
  Reference before = reference;
  for (uint32_t seed = 20; seed < 25; ++seed) compare(seed, reference);
  net.restore_state(state.data());
  for (uint32_t seed = 30; seed < 35; ++seed) compare(seed, before);
  return worst;
}

struct Times {
  double median, p99, p999, least;
};
Times time(OneSampleNet& net, const LayerChain& chain, int calls) {
  using Clock = std::chrono::steady_clock;
  const std::vector<float> x = random_input(chain.layers.front().in, 7);
  std::vector<float> y(size_t(chain.layers.back().out));
  std::vector<double> us;
  for (int i = -calls / 10; i < calls; ++i) {
    const auto begin = Clock::now();
    net.run(x.data(), y.data());
    const auto end = Clock::now();
    if (i >= 0) us.push_back(std::chrono::duration<double, std::micro>(end - begin).count());
  }
  std::ranges::sort(us);
  const auto at = [&](double part) { return us[size_t(part * double(us.size() - 1))]; };
  return {at(0.5), at(0.99), at(0.999), us.front()};
}

int failures = 0;

void measure(cuda::CudaRuntime& runtime, const Net& net, bool resident, int blocks, int calls,
             double goal) {
  std::string why;
  OneSampleOptions options;
  options.resident = resident;
  const auto made = cuda::make_cluster_net(runtime, net.chain, options, why, blocks);
  if (!made) {
    fmt::print("{{\"net\": \"{}\", \"resident\": {}, \"blocks\": {}, \"refused\": \"{}\"}}\n",
               net.name, resident, blocks, why);
    return;
  }
  const double error = check(*made, net.chain);
  const bool good = error < 1e-4;
  failures += good ? 0 : 1;
  const Times t = good ? time(*made, net.chain, calls) : Times{};
  fmt::print(
      "{{\"net\": \"{}\", \"kernel\": \"{}\", \"blocks\": {}, \"median_us\": {:.2f}, \"p99_us\": "
      "{:.2f}, \"p999_us\": {:.2f}, \"min_us\": {:.2f}, \"goal_us\": {}, \"error\": {:.2g}, "
      "\"correct\": {}}}\n",
      net.name, made->name(), blocks, t.median, t.p99, t.p999, t.least, goal, error, good);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  int calls = 20000;
  bool all = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--all") == 0) all = true;
    if (std::strcmp(argv[i], "--calls") == 0 && i + 1 < argc) calls = std::atoi(argv[i + 1]);
  }
  try {
    cuda::CudaRuntime runtime(0);
    // Awkward shapes, every cell and activation; only their answers are checked.
    std::vector<Net> odd;
    odd.push_back(perceptron("1-1", {1, 1}));
    odd.push_back(perceptron("7-13-5-3 tanh", {7, 13, 5, 3}, ActivationKind::tanh));
    odd.push_back(perceptron("785-131-129-11 gelu", {785, 131, 129, 11}, ActivationKind::gelu));
    odd.push_back(perceptron("50-67-2 sigmoid", {50, 67, 2}, ActivationKind::sigmoid));
    odd.push_back(recurrent("gru 2x37", CellKind::gru, 2, 37, 5, 3));
    odd.push_back(recurrent("gru 1x129", CellKind::gru, 1, 129, 64));
    odd.push_back(recurrent("rnn 2x33", CellKind::rnn_tanh, 2, 33, 9));
    odd.push_back(recurrent("rnn relu 1x21", CellKind::rnn_relu, 1, 21, 3, 1));
    odd.push_back(recurrent("lstm 2x19", CellKind::lstm, 2, 19, 1, 1));
    for (const Net& net : odd) {
      for (const bool resident : {false, true}) {
        for (const int blocks : {1, 2, 4, 8, 16}) measure(runtime, net, resident, blocks, 200, 0);
      }
    }
    struct Case {
      Net net;
      double goal;
    };
    std::vector<Case> cases;
    cases.push_back({perceptron("784-10", {784, 10}), 4});
    cases.push_back({perceptron("784-128-128-128-10", {784, 128, 128, 128, 10}), 6});
    cases.push_back({perceptron("256-384-384-128", {256, 384, 384, 128}), 6});
    cases.push_back({recurrent("LSTM 2x128, one step", CellKind::lstm, 2, 128, 128), 6});
    cases.push_back({recurrent("LSTM 3x256, one step", CellKind::lstm, 3, 256, 256), 8});
    for (const auto& [net, goal] : cases) {
      for (const bool resident : {true, false}) {
        const double limit = resident ? goal : 10;
        measure(runtime, net, resident, 0, calls, limit);
        for (const int blocks : {1, 2, 4, 8, 16}) {
          if (all) measure(runtime, net, resident, blocks, calls / 4, limit);
        }
      }
    }
    fmt::print("{{\"failures\": {}}}\n", failures);
    return failures == 0 ? 0 : 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "one_sample_bench: {}\n", error.what());
    return 1;
  }
}
