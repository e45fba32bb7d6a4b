// The products of ridgeline/cuda/gemm/fp16_split_u8_products.h, checked against long double and
// timed.
//   fp16_split_u8_bench [N IN OUT]   default 3000 784 512
#include "bench/gpu/byte_operands.h"
#include "ridgeline/core/half.h"
#include "ridgeline/cuda/gemm/fp16_split_u8_products.h"

namespace ridgeline::bench {
namespace {

float as_fp16(double v) { return float(Fp16(float(v))); }
constexpr double kDzPower = 0x1p-20;  // of every output

// The operands of a step: raw bytes, w, and dz already split into terms.
struct Bytes : ByteOperands<float> {
  int terms;
  std::vector<double> dz;  // the sums of the terms
  DeviceArray<uint16_t> x_d, w_terms_d, dz_d;
  DeviceArray<float> w_power_d, dz_power_d;
  DeviceArray<Fp16SplitScalars> scalars_d;

  Bytes(int n_, int in_, int out_, int terms_)
      : ByteOperands(n_, in_, out_, 0),
        terms(terms_),
        x_d(int64_t(n) * terms * in),
        w_terms_d(int64_t(out) * terms * in),
        dz_d(int64_t(n) * terms * out),
        w_power_d(out),
        dz_power_d(out),
        scalars_d(1) {
    std::normal_distribution<float> normal;
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
    copy(dz_d, dz_terms);
    copy(dz_power_d, std::vector<float>(size_t(out), float(kDzPower)));
  }
  cudaError_t prepare(cudaStream_t stream) const {
    Fp16SplitPrepareArgs args{};
    args.gather = gather();
    args.w = w_d.get(), args.x = x_d.get(), args.w_terms = w_terms_d.get();
    args.w_power = w_power_d.get(), args.scalars = scalars_d.get();
    args.sgd = sgd();
    args.in = in, args.out = out, args.terms = terms;
    return launch_fp16_split_prepare(args, stream);
  }
  std::vector<PreparedGemm> forward() const {
    return fp16_split_linear_gemms({n, in, out, terms, x_d.get(), w_terms_d.get(), w_power_d.get(),
                                    b_d.get(), y_d.get(), float(kByteScale),
                                    ActivationFn::sigmoid});
  }
  std::vector<PreparedGemm> backward() const {
    return fp16_split_grad_w_gemms({n, in, out, terms, x_d.get(), dz_d.get(), dz_power_d.get(),
                                    w_d.get(), nullptr, scalars_d.get(), true});
  }
};

// Errors must be smaller than the value of one dropped term.
int check_variants(const Bytes& p) {
  int failures = 0;
  check_cuda(p.prepare(nullptr), "prepare");
  const std::string terms = ", " + std::to_string(p.terms) + " terms";
  const double unit = p.terms == 1 ? std::ldexp(1.0, -11) : std::ldexp(1.0, -20);
  for (const PreparedGemm& g : p.forward()) {
    p.y_d.poison();
    g.run(nullptr);
    failures += report(p.forward_error(unit), "forward " + g.name + terms);
  }
  for (const PreparedGemm& g : p.backward()) {
    p.copy(p.w_d, p.w);
    g.run(nullptr);
    const auto bound = [](long double size, long double old) {
      return 0.5L * size * 0x1p-20L + old * 0x1p-23L;
    };
    failures += report(p.backward_error(p.dz, bound), "backward " + g.name + terms);
  }
  p.copy(p.w_d, p.w);
  return failures;
}

void time_variants(const Bytes& p) {
  ByteHead<float> head(p);
  head.args.dz_terms = p.dz_d.get(), head.args.dz_power = p.dz_power_d.get();
  head.args.terms = p.terms;
  std::vector<Candidate> all;
  all.push_back({"prepare", [&](cudaStream_t s) { return p.prepare(s); }});
  all.push_back({"head", [&](cudaStream_t s) { return head.run(s); }});
  all.push_back({"sums", [&](cudaStream_t s) { return head.add(s); }});
  const std::vector<PreparedGemm> forwards = p.forward(), backwards = p.backward();
  for (const PreparedGemm& forward : forwards) {
    for (const PreparedGemm& backward : backwards) {
      all.push_back({"STEP " + forward.name + " " + backward.name, [&](cudaStream_t s) {
                       check_cuda(p.prepare(s), "prepare");
                       forward.run(s);
                       check_cuda(head.run(s), "head");
                       check_cuda(head.add(s), "sums");
                       backward.run(s);
                       return cudaGetLastError();
                     }});
    }
  }
  const auto add = [&](const char* what, const std::vector<PreparedGemm>& list) {
    for (const PreparedGemm& g : list) {
      all.push_back({std::string(what) + g.name, [run = g.run](cudaStream_t s) {
                       run(s);
                       return cudaGetLastError();
                     }});
    }
  };
  add("forward ", forwards);
  add("backward ", backwards);
  print_times(all, std::to_string(p.n) + " x " + std::to_string(p.in) + " -> " +
                       std::to_string(p.out) + ", " + std::to_string(p.terms) + " terms");
}

}  // namespace
}  // namespace ridgeline::bench

int main(int argc, char** argv) {
  using namespace ridgeline::bench;
  return check_and_time_all(argc, argv, [](int n, int in, int out) {
    int failures = 0;
    for (const int terms : {1, 2}) {
      const Bytes p(n, in, out, terms);
      failures += check_variants(p);
      time_variants(p);
    }
    return failures;
  });
}
