#pragma once

// Operands of a training step of a perceptron with one hidden layer over bytes, its head, and the
// errors of its products, for fp16_split_u8_bench and int8_split_bench.
#include <cmath>
#include <cstdlib>

#include "bench/gpu/tile_step.h"

namespace ridgeline::bench {

constexpr int kByteClasses = 10;
constexpr double kByteScale = 1.0 / 255;

template <typename T>
struct ByteOperands {
  int n, in, out;
  int center;  // the byte that stands for 0
  std::vector<uint8_t> set;
  std::vector<int32_t> order;
  std::vector<T> w, b;
  DeviceArray<uint8_t> set_d;
  DeviceArray<int32_t> labels_d, label_d, order_d, tick_d;
  DeviceArray<int64_t> first_d;
  DeviceArray<double> lr_d;
  DeviceArray<T> w_d, b_d, y_d;
  std::mt19937 engine;

  ByteOperands(int n_, int in_, int out_, int center_)
      : n(n_),
        in(in_),
        out(out_),
        center(center_),
        set_d(int64_t(n) * in),
        labels_d(n),
        label_d(n),
        order_d(n),
        tick_d(1),
        first_d(1),
        lr_d(1),
        w_d(int64_t(out) * in),
        b_d(out),
        y_d(int64_t(n) * out),
        engine(unsigned(time(nullptr))) {
    std::normal_distribution<T> normal;
    for (int64_t i = 0; i < int64_t(n) * in; ++i) set.push_back(uint8_t(engine()));
    for (int i = 0; i < n; ++i) order.push_back(int32_t(engine() % unsigned(n)));
    for (int64_t i = 0; i < int64_t(out) * in; ++i) w.push_back(T(0.05) * normal(engine));
    for (int i = 0; i < out; ++i) b.push_back(normal(engine));
    copy(set_d, set), copy(order_d, order), copy(w_d, w), copy(b_d, b);
    copy(lr_d, std::vector<double>{0.5}), copy(tick_d, std::vector<int32_t>{0});
    copy(first_d, std::vector<int64_t>{0}), copy(labels_d, std::vector<int32_t>(size_t(n), 1));
  }
  template <typename A, typename V>
  static void copy(const A& to, const V& from) {
    check_cuda(cudaMemcpy(to.get(), from.data(), from.size() * sizeof(from[0]), cudaMemcpyDefault),
               "copy");
  }
  SgdSettings sgd() const { return {lr_d.get(), tick_d.get(), nullptr, 0, 0, false}; }
  GatherArgs gather() const {
    GatherArgs args;
    args.set = set_d.get(), args.labels = labels_d.get(), args.label = label_d.get();
    args.order = order_d.get(), args.first = first_d.get(), args.tick = tick_d.get();
    args.n = n, args.sample_size = in, args.scale = kByteScale;
    return args;
  }

  using Wide = long double;
  Wide input(int i, int k) const {
    return Wide(set[size_t(order[size_t(i)]) * in + k] - center) * Wide(T(kByteScale));
  }
  // The largest error of y = sigmoid(x . w^T + b) from the device, over samples 0, 97, and so on,
  // divided by unit * (sum of sizes + 4).
  double forward_error(Wide unit) const {
    const std::vector<T> y = y_d.read();
    Wide worst = 0;
    for (int i = 0; i < n; i += 97) {
      for (int o = 0; o < out; o += 3) {
        Wide sum = 0, size = 0;
        for (int k = 0; k < in; ++k) {
          const Wide v = input(i, k) * Wide(w[size_t(o) * in + k]);
          sum += v, size += std::abs(v);
        }
        const Wide want = 1 / (1 + std::exp(-sum - b[size_t(o)]));
        const Wide got = y[size_t(i) * out + o];
        worst = std::max(worst, std::isnan(got) ? 1e9 : std::abs(got - want) / (unit * (size + 4)));
      }
    }
    return double(worst);
  }
  // Returns the error of w minus half the gradient dz^T . x, divided by bound(sum of sizes, old
  // weight).
  template <typename V, typename Bound>
  double backward_error(const std::vector<V>& dz, const Bound& bound) const {
    const std::vector<T> now = w_d.read();
    Wide worst = 0;
    for (int o = 0; o < out; o += 41) {
      for (int k = 0; k < in; k += 13) {
        Wide sum = 0, size = 0;
        for (int i = 0; i < n; ++i) {
          const Wide v = input(i, k) * Wide(dz[size_t(i) * out + o]);
          sum += v, size += std::abs(v);
        }
        const Wide old = w[size_t(o) * in + k], got = now[size_t(o) * in + k];
        worst = std::max(worst, std::isnan(got) ? 1e9
                                                : std::abs(got - (old - Wide(0.5) * sum)) /
                                                      Wide(bound(size, std::abs(old))));
      }
    }
    return double(worst);
  }
};

// Prints the error; returns 1 if it exceeds its bound.
inline int report(double worst, const std::string& what) {
  std::printf("%s %s: %.3f of the bound\n", worst > 1 ? "WRONG" : "ok", what.c_str(), worst);
  return worst > 1;
}

// The head above the hidden layer y; its gradient goes to the memory that the caller names.
template <typename T>
struct ByteHead {
  HeadLayout layout;
  DeviceArray<T> top, partial;
  DeviceArray<double> loss, total;
  DeviceArray<int32_t> correct;
  HeadArgs<T> args{};
  HeadSums<T> sums{};

  explicit ByteHead(const ByteOperands<T>& p)
      : layout(head_layout(p.n, p.out, kByteClasses, sizeof(T))),
        top(kByteClasses * int64_t(p.out)),
        partial(layout.parts * layout.sums(p.out, kByteClasses)),
        loss(layout.parts),
        total(1),
        correct(layout.parts) {
    args.h = p.y_d.get(), args.w = top.get(), args.label = p.label_d.get();
    args.n = p.n, args.hidden = p.out, args.classes = kByteClasses,
    args.activation = ActivationFn::sigmoid;
    args.scale = 1.0 / p.n, args.rows = layout.rows;
    args.partial = partial.get(), args.loss = loss.get(), args.correct = correct.get();
    sums.parts = layout.parts, sums.hidden = p.out, sums.classes = kByteClasses;
    sums.partial = partial.get(), sums.part_loss = loss.get(), sums.part_correct = correct.get();
    sums.w = top.get(), sums.sgd = p.sgd(), sums.loss = total.get();
  }
  cudaError_t run(cudaStream_t stream) const { return launch_head(args, layout, stream); }
  cudaError_t add(cudaStream_t stream) const { return launch_head_sums(sums, {}, layout, stream); }
};

inline void print_times(std::vector<Candidate>& all, const std::string& what) {
  time_all(all, 10);
  std::printf("%s\n", what.c_str());
  for (const Candidate& c : all) std::printf("  %8.2f us  %s\n", c.median(), c.name.c_str());
}

// main() of both programs: f(n, in, out) returns how many checks failed.
template <typename F>
int check_and_time_all(int argc, char** argv, const F& f) {
  const int n = argc > 3 ? std::atoi(argv[1]) : 3000, in = argc > 3 ? std::atoi(argv[2]) : 784;
  const int failures = f(n, in, argc > 3 ? std::atoi(argv[3]) : 512);
  std::printf(failures == 0 ? "all checks passed\n" : "%d CHECKS FAILED\n", failures);
  return failures == 0 ? 0 : 1;
}

}  // namespace ridgeline::bench
