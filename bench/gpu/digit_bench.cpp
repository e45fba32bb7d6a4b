// The products of ridgeline/cuda/digits, checked against sums in long double and timed.
//   digit_bench [N IN OUT]   default 3000 784 512
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "bench/gpu/tile_step.h"
#include "ridgeline/cuda/digits/digits.h"

namespace ridgeline::bench {
namespace {

constexpr int kClasses = 10;
constexpr double kScale = 1.0 / 255;
constexpr int kCenter = 100;  // what byte stands for 0

// A step's worth of operands.
template <typename T>
struct Digits {
  int n, in, out;
  std::vector<uint8_t> set;
  std::vector<int32_t> order;
  std::vector<T> w, b, dz;
  DeviceArray<uint8_t> set_d, x_d, x_transposed_d;
  DeviceArray<int32_t> labels_d, label_d, order_d, tick_d;
  DeviceArray<int64_t> first_d;
  DeviceArray<double> lr_d;
  DeviceArray<int8_t> w_digits_d, dz_digits_d;
  DeviceArray<T> w_d, b_d, y_d, dz_d, w_up_d, dz_up_d;
  DeviceArray<Bits<T>> most_d;
  DeviceArray<DigitRate> rate_d;
  DeviceArray<int> w_sums_d, dz_sums_d;
  DigitProduct forward, backward;

  Digits(int n_, int in_, int out_)
      : n(n_),
        in(in_),
        out(out_),
        set_d(int64_t(n) * in),
        x_d(n * digit_pitch(in)),
        x_transposed_d(in * digit_pitch(n)),
        labels_d(n),
        label_d(n),
        order_d(n),
        tick_d(1),
        first_d(1),
        lr_d(1),
        w_digits_d(digit_rows(out, kDigits<T>) * digit_pitch(in)),
        dz_digits_d(digit_rows(out, kDigits<T>) * digit_pitch(n)),
        w_d(int64_t(out) * in),
        b_d(out),
        y_d(int64_t(n) * out),
        dz_d(int64_t(n) * out),
        w_up_d(out),
        dz_up_d(out),
        most_d(out),
        rate_d(1),
        w_sums_d(digit_rows(out, kDigits<T>)),
        dz_sums_d(digit_rows(out, kDigits<T>)) {
    std::mt19937 engine(unsigned(time(nullptr)));
    std::normal_distribution<T> normal;
    for (int64_t i = 0; i < int64_t(n) * in; ++i) set.push_back(uint8_t(engine()));
    for (int i = 0; i < n; ++i) order.push_back(int32_t(engine() % unsigned(n)));
    for (int64_t i = 0; i < int64_t(out) * in; ++i) w.push_back(T(0.05) * normal(engine));
    for (int i = 0; i < out; ++i) b.push_back(normal(engine));
    for (int64_t i = 0; i < int64_t(n) * out; ++i) dz.push_back(T(1e-3) * normal(engine));
    std::vector<Bits<T>> most(static_cast<size_t>(out), 0);
    for (int64_t i = 0; i < int64_t(n) * out; ++i) {
      const T size = std::abs(dz[size_t(i)]);
      Bits<T> bits;
      std::memcpy(&bits, &size, sizeof(T));
      most[size_t(i % out)] = std::max(most[size_t(i % out)], bits);
    }
    copy(set_d, set), copy(order_d, order), copy(w_d, w), copy(b_d, b), copy(dz_d, dz);
    copy(most_d, most), copy(lr_d, std::vector<double>{0.5}), copy(tick_d, std::vector<int32_t>{0});
    copy(first_d, std::vector<int64_t>{0}), copy(labels_d, std::vector<int32_t>(size_t(n), 1));
    forward =
        digit_linear<T>({n, in, out, x_d.get(), w_digits_d.get(), w_up_d.get(), w_sums_d.get(),
                         b_d.get(), y_d.get(), T(kScale), kCenter, Curve::sigmoid});
    backward =
        digit_grad_w<T>({n, in, out, x_transposed_d.get(), dz_digits_d.get(), dz_up_d.get(),
                         dz_sums_d.get(), w_d.get(), nullptr, T(kScale), kCenter, sgd(), true});
  }
  SgdSettings sgd() const { return {lr_d.get(), tick_d.get(), nullptr, 0, 0, false}; }
  template <typename A, typename V>
  static void copy(const A& to, const V& from) {
    check_cuda(cudaMemcpy(to.get(), from.data(), from.size() * sizeof(from[0]), cudaMemcpyDefault),
               "copy");
  }
  // `most` is set to 0 by it: the bench's own is kept elsewhere while dz is given.
  cudaError_t prepare(Bits<T>* most, cudaStream_t stream) const {
    DigitPrepare<T> args{};
    args.gather.set = set_d.get(), args.gather.labels = labels_d.get();
    args.gather.label = label_d.get(), args.gather.order = order_d.get();
    args.gather.first = first_d.get(), args.gather.tick = tick_d.get(), args.gather.n = n;
    args.w = w_d.get(), args.x = x_d.get(), args.x_transposed = x_transposed_d.get();
    args.w_digits = w_digits_d.get(), args.w_up = w_up_d.get(), args.most = most;
    args.w_sums = w_sums_d.get(), args.dz_sums = dz_sums_d.get();
    args.lr = lr_d.get(), args.rate = rate_d.get();
    args.in = in, args.out = out;
    return launch_digit_prepare(args, stream);
  }
  cudaError_t split(const Bits<T>* most, cudaStream_t stream) const {
    return launch_digit_split<T>(
        {dz_d.get(), most, dz_digits_d.get(), dz_up_d.get(), dz_sums_d.get(), n, out}, stream);
  }
};

// The largest error of some elements, as a part of what one dropped bit of a factor of average size
// is worth.
template <typename T>
int check_products(const Digits<T>& p) {
  using Wide = long double;
  const DeviceArray<Bits<T>> spare(p.out);
  check_cuda(p.prepare(spare.get(), nullptr), "prepare");
  p.y_d.poison();
  check_cuda(p.forward(nullptr), "forward");
  const std::vector<T> y = p.y_d.read();
  const Wide unit = std::numeric_limits<T>::epsilon();
  Wide worst = 0;
  for (int i = 0; i < p.n; i += 97) {
    for (int o = 0; o < p.out; o += 3) {
      Wide sum = 0, size = 0;
      for (int k = 0; k < p.in; ++k) {
        const Wide v = Wide(p.set[size_t(p.order[size_t(i)]) * p.in + k] - kCenter) *
                       Wide(T(kScale)) * Wide(p.w[size_t(o) * p.in + k]);
        sum += v, size += std::abs(v);
      }
      const Wide want = 1 / (1 + std::exp(-sum - p.b[size_t(o)]));
      const Wide got = y[size_t(i) * p.out + o];
      worst = std::max(worst, std::isnan(got) ? 1e9 : std::abs(got - want) / (unit * (size + 4)));
    }
  }
  std::printf("%s forward, %d digits: %.3f of the bound\n", worst > 1 ? "WRONG" : "ok", kDigits<T>,
              double(worst));
  int failures = worst > 1;
  check_cuda(p.split(p.most_d.get(), nullptr), "split");
  check_cuda(p.backward(nullptr), "backward");
  const std::vector<T> w = p.w_d.read();
  worst = 0;
  for (int o = 0; o < p.out; o += 41) {
    for (int k = 0; k < p.in; k += 13) {
      Wide sum = 0, size = 0;
      for (int i = 0; i < p.n; ++i) {
        const Wide v = Wide(p.set[size_t(p.order[size_t(i)]) * p.in + k] - kCenter) *
                       Wide(T(kScale)) * Wide(p.dz[size_t(i) * p.out + o]);
        sum += v, size += std::abs(v);
      }
      const Wide old = p.w[size_t(o) * p.in + k], got = w[size_t(o) * p.in + k];
      const Wide bound = unit * (Wide(0.5) * size + std::abs(old));
      worst =
          std::max(worst, std::isnan(got) ? 1e9 : std::abs(got - (old - Wide(0.5) * sum)) / bound);
    }
  }
  std::printf("%s backward, %d digits: %.3f of the bound\n", worst > 1 ? "WRONG" : "ok", kDigits<T>,
              double(worst));
  Digits<T>::copy(p.w_d, p.w);
  return failures + (worst > 1);
}

template <typename T>
void time_parts(const Digits<T>& p) {
  const HeadLayout layout = head_layout(p.n, p.out, kClasses, sizeof(T));
  const int64_t sums = layout.sums(p.out, kClasses);
  const DeviceArray<T> top(kClasses * int64_t(p.out)), partial(layout.parts * sums);
  const DeviceArray<double> loss(layout.parts), total(1);
  const DeviceArray<int32_t> correct(layout.parts);
  HeadArgs<T> head{};
  head.h = p.y_d.get(), head.w = top.get(), head.label = p.label_d.get();
  head.dz = p.dz_d.get(), head.dz_most = p.most_d.get();
  head.n = p.n, head.hidden = p.out, head.classes = kClasses, head.curve = Curve::sigmoid;
  head.scale = 1.0 / p.n, head.rows = layout.rows;
  head.partial = partial.get(), head.loss = loss.get(), head.correct = correct.get();
  HeadSums<T> added{};
  added.parts = layout.parts, added.hidden = p.out, added.classes = kClasses;
  added.partial = partial.get(), added.part_loss = loss.get(), added.part_correct = correct.get();
  added.w = top.get(), added.sgd = p.sgd(), added.loss = total.get();
  std::vector<Candidate> all;
  all.push_back({"prepare", [&](cudaStream_t s) { return p.prepare(p.most_d.get(), s); }});
  all.push_back({"forward", p.forward});
  all.push_back({"head", [&](cudaStream_t s) { return launch_head(head, layout, s); }});
  all.push_back({"split", [&](cudaStream_t s) { return p.split(p.most_d.get(), s); }});
  all.push_back({"backward", p.backward});
  all.push_back({"sums", [&](cudaStream_t s) { return launch_head_sums(added, {}, layout, s); }});
  all.push_back({"STEP", [&](cudaStream_t s) {
                   check_cuda(p.prepare(p.most_d.get(), s), "prepare");
                   check_cuda(p.forward(s), "forward");
                   check_cuda(launch_head(head, layout, s), "head");
                   check_cuda(p.split(p.most_d.get(), s), "split");
                   check_cuda(launch_head_sums(added, {}, layout, s), "sums");
                   return p.backward(s);
                 }});
  time_all(all, 10);
  std::printf("%d x %d -> %d, %d digits\n", p.n, p.in, p.out, kDigits<T>);
  for (const Candidate& c : all) std::printf("  %8.2f us  %s\n", c.median(), c.name.c_str());
}

template <typename T>
int check_and_time(int n, int in, int out) {
  const Digits<T> p(n, in, out);
  const int failures = check_products(p);
  time_parts(p);
  return failures;
}

}  // namespace
}  // namespace ridgeline::bench

int main(int argc, char** argv) {
  using namespace ridgeline::bench;
  const int n = argc > 3 ? std::atoi(argv[1]) : 3000, in = argc > 3 ? std::atoi(argv[2]) : 784;
  const int out = argc > 3 ? std::atoi(argv[3]) : 512;
  const int failures = check_and_time<float>(n, in, out) + check_and_time<double>(n, in, out);
  std::printf(failures == 0 ? "all checks passed\n" : "%d CHECKS FAILED\n", failures);
  return failures == 0 ? 0 : 1;
}
