// The products of ridgeline/cuda/byte_products.h, checked against double precision and timed.
//   byte_bench [N IN OUT]   default 3000 784 512
#include <cmath>
#include <cstdlib>

#include "bench/gpu/tile_step.h"
#include "ridgeline/core/half.h"
#include "ridgeline/cuda/byte_products.h"

namespace ridgeline::bench {
namespace {

constexpr int kClasses = 10;

float as_fp16(double v) { return float(Fp16(float(v))); }
constexpr double kDzPower = 0x1p-20;  // of every output

// A step's worth of operands: bytes as they come, w, and dz already in terms.
struct Bytes {
  int n, in, out, terms;
  std::vector<uint8_t> set;
  std::vector<int32_t> order;
  std::vector<float> w, b;
  std::vector<double> dz;  // what the terms add up to
  DeviceArray<uint8_t> set_d;
  DeviceArray<int32_t> labels_d, label_d, order_d, tick_d;
  DeviceArray<int64_t> first_d;
  DeviceArray<double> lr_d;
  DeviceArray<uint16_t> x_d, w_terms_d, dz_d;
  DeviceArray<float> w_d, b_d, y_d, w_power_d, dz_power_d;
  DeviceArray<ByteScalars> scalars_d;

  Bytes(int n_, int in_, int out_, int terms_)
      : n(n_),
        in(in_),
        out(out_),
        terms(terms_),
        set_d(int64_t(n) * in),
        labels_d(n),
        label_d(n),
        order_d(n),
        tick_d(1),
        first_d(1),
        lr_d(1),
        x_d(int64_t(n) * terms * in),
        w_terms_d(int64_t(out) * terms * in),
        dz_d(int64_t(n) * terms * out),
        w_d(int64_t(out) * in),
        b_d(out),
        y_d(int64_t(n) * out),
        w_power_d(out),
        dz_power_d(out),
        scalars_d(1) {
    std::mt19937 engine(unsigned(time(nullptr)));
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < int64_t(n) * in; ++i) set.push_back(uint8_t(engine()));
    for (int i = 0; i < n; ++i) order.push_back(int32_t(engine() % unsigned(n)));
    for (int64_t i = 0; i < int64_t(out) * in; ++i) w.push_back(0.05f * normal(engine));
    for (int i = 0; i < out; ++i) b.push_back(normal(engine));
    std::vector<uint16_t> dz_terms(size_t(n) * terms * out);
    for (int64_t i = 0; i < int64_t(n) * out; ++i) {
      double left = 1e-3f * normal(engine) / kDzPower, sum = 0;
      for (int t = 0; t < terms; ++t) {
        const float term = as_fp16(left);
        dz_terms[size_t((i / out * terms + t) * out + i % out)] = Fp16(term).bits;
        left -= term, sum += term;
      }
      dz.push_back(sum * kDzPower);
    }
    copy(set_d, set), copy(order_d, order), copy(w_d, w), copy(b_d, b), copy(dz_d, dz_terms);
    copy(dz_power_d, std::vector<float>(size_t(out), float(kDzPower)));
    copy(lr_d, std::vector<double>{0.5}), copy(tick_d, std::vector<int32_t>{0});
    copy(first_d, std::vector<int64_t>{0}), copy(labels_d, std::vector<int32_t>(size_t(n), 1));
  }
  template <typename A, typename V>
  static void copy(const A& to, const V& from) {
    check_cuda(cudaMemcpy(to.get(), from.data(), from.size() * sizeof(from[0]), cudaMemcpyDefault),
               "copy");
  }
  cudaError_t prepare(cudaStream_t stream) const {
    BytePrepareArgs args{};
    args.gather = {set_d.get(),
                   nullptr,
                   labels_d.get(),
                   label_d.get(),
                   order_d.get(),
                   first_d.get(),
                   tick_d.get(),
                   n,
                   in,
                   1,
                   1.0 / 255,
                   0};
    args.w = w_d.get(), args.x = x_d.get(), args.w_terms = w_terms_d.get();
    args.w_power = w_power_d.get();
    args.scalars = scalars_d.get();
    args.sgd = {lr_d.get(), tick_d.get(), nullptr, 0, 0, false};
    args.in = in, args.out = out, args.terms = terms;
    return launch_byte_prepare(args, stream);
  }
  std::vector<PreparedGemm> forward() const {
    return byte_linear_gemms({n, in, out, terms, x_d.get(), w_terms_d.get(), w_power_d.get(),
                              b_d.get(), y_d.get(), 1.0f / 255, Curve::sigmoid});
  }
  std::vector<PreparedGemm> backward() const {
    return byte_grad_w_gemms({n, in, out, terms, x_d.get(), dz_d.get(), dz_power_d.get(), w_d.get(),
                              nullptr, scalars_d.get(), true});
  }
};

// The largest error of rows 0, 7, 14, ... against what one dropped term would be worth.
int check_variants(const Bytes& p) {
  int failures = 0;
  check_cuda(p.prepare(nullptr), "prepare");
  const double unit = p.terms == 1 ? std::ldexp(1.0, -11) : std::ldexp(1.0, -20);
  for (const PreparedGemm& g : p.forward()) {
    p.y_d.poison();
    g.run(nullptr);
    const std::vector<float> y = p.y_d.read();
    double worst = 0;
    for (int i = 0; i < p.n; i += 97) {
      for (int o = 0; o < p.out; o += 3) {
        double sum = 0, size = 0;
        for (int k = 0; k < p.in; ++k) {
          const double v =
              p.set[size_t(p.order[size_t(i)]) * p.in + k] / 255.0 * p.w[size_t(o) * p.in + k];
          sum += v, size += std::abs(v);
        }
        const double want = 1 / (1 + std::exp(-sum - p.b[size_t(o)]));
        const double got = y[size_t(i) * p.out + o];
        worst = std::max(worst, std::isnan(got) ? 1e9 : std::abs(got - want) / (unit * (size + 4)));
      }
    }
    if (worst > 1) ++failures;
    std::printf("%s forward %s, %d terms: %.3f of the bound\n", worst > 1 ? "WRONG" : "ok",
                g.name.c_str(), p.terms, worst);
  }
  for (const PreparedGemm& g : p.backward()) {
    Bytes::copy(p.w_d, p.w);
    g.run(nullptr);
    const std::vector<float> w = p.w_d.read();
    double worst = 0;
    for (int o = 0; o < p.out; o += 41) {
      for (int k = 0; k < p.in; k += 13) {
        double sum = 0, size = 0;
        for (int i = 0; i < p.n; ++i) {
          const double v =
              p.set[size_t(p.order[size_t(i)]) * p.in + k] / 255.0 * p.dz[size_t(i) * p.out + o];
          sum += v, size += std::abs(v);
        }
        const double old = p.w[size_t(o) * p.in + k], got = w[size_t(o) * p.in + k];
        const double bound = 0.5 * size * std::ldexp(1.0, -20) + std::ldexp(std::abs(old), -23);
        worst = std::max(worst, std::isnan(got) ? 1e9 : std::abs(got - (old - 0.5 * sum)) / bound);
      }
    }
    if (worst > 1) ++failures;
    std::printf("%s backward %s, %d terms: %.3f of the bound\n", worst > 1 ? "WRONG" : "ok",
                g.name.c_str(), p.terms, worst);
  }
  Bytes::copy(p.w_d, p.w);
  return failures;
}

void time_variants(const Bytes& p) {
  std::vector<Candidate> all;
  all.push_back({"prepare", [&](cudaStream_t s) { return p.prepare(s); }});
  const auto add = [&](const char* what, const std::vector<PreparedGemm>& list) {
    for (const PreparedGemm& g : list) {
      all.push_back({std::string(what) + g.name, [run = g.run](cudaStream_t s) {
                       run(s);
                       return cudaGetLastError();
                     }});
    }
  };
  const HeadLayout layout = head_layout(p.n, p.out, kClasses, sizeof(float));
  const int64_t sums = layout.sums(p.out, kClasses);
  const DeviceArray<float> top(kClasses * int64_t(p.out)), partial(layout.parts * sums);
  const DeviceArray<double> loss(layout.parts), total(1);
  const DeviceArray<int32_t> correct(layout.parts);
  HeadArgs<float> head{};
  head.h = p.y_d.get(), head.w = top.get(), head.label = p.label_d.get();
  head.dz_terms = p.dz_d.get(), head.dz_power = p.dz_power_d.get(), head.terms = p.terms;
  head.n = p.n, head.hidden = p.out, head.classes = kClasses, head.curve = Curve::sigmoid;
  head.scale = 1.0 / p.n, head.rows = layout.rows;
  head.partial = partial.get(), head.loss = loss.get(), head.correct = correct.get();
  HeadSums<float> added{};
  added.parts = layout.parts, added.hidden = p.out, added.classes = kClasses;
  added.partial = partial.get(), added.part_loss = loss.get(), added.part_correct = correct.get();
  added.w = top.get(), added.sgd = {p.lr_d.get(), p.tick_d.get(), nullptr, 0, 0, false};
  added.loss = total.get();
  all.push_back({"head", [&](cudaStream_t s) { return launch_head(head, layout, s); }});
  all.push_back({"sums", [&](cudaStream_t s) { return launch_head_sums(added, {}, layout, s); }});
  const std::vector<PreparedGemm> forwards = p.forward(), backwards = p.backward();
  for (const PreparedGemm& forward : forwards) {
    for (const PreparedGemm& backward : backwards) {
      all.push_back({"STEP " + forward.name + " " + backward.name, [&](cudaStream_t s) {
                       check_cuda(p.prepare(s), "prepare");
                       forward.run(s);
                       check_cuda(launch_head(head, layout, s), "head");
                       check_cuda(launch_head_sums(added, {}, layout, s), "sums");
                       backward.run(s);
                       return cudaGetLastError();
                     }});
    }
  }
  add("forward ", p.forward());
  add("backward ", p.backward());
  time_all(all, 10);
  std::printf("%d x %d -> %d, %d terms\n", p.n, p.in, p.out, p.terms);
  for (const Candidate& c : all) std::printf("  %8.2f us  %s\n", c.median(), c.name.c_str());
}

}  // namespace
}  // namespace ridgeline::bench

int main(int argc, char** argv) {
  using namespace ridgeline::bench;
  const int n = argc > 3 ? std::atoi(argv[1]) : 3000, in = argc > 3 ? std::atoi(argv[2]) : 784;
  const int out = argc > 3 ? std::atoi(argv[3]) : 512;
  int failures = 0;
  for (const int terms : {1, 2}) {
    const Bytes p(n, in, out, terms);
    failures += check_variants(p);
    time_variants(p);
  }
  std::printf(failures == 0 ? "all checks passed\n" : "%d CHECKS FAILED\n", failures);
  return failures == 0 ? 0 : 1;
}
