// The products of ridgeline/cuda/int8_split, checked against sums in long double and timed.
//   int8_split_bench [N IN OUT]   default 3000 784 512
#include <cstring>

#include "bench/gpu/byte_operands.h"
#include "ridgeline/cuda/int8_split/int8_split.h"

namespace ridgeline::bench {
namespace {

constexpr int kCenter = 100;

// The operands of a step.
template <typename T>
struct Int8Split : ByteOperands<T> {
  using ByteOperands<T>::n;
  using ByteOperands<T>::in;
  using ByteOperands<T>::out;
  using ByteOperands<T>::copy;
  std::vector<T> dz;
  DeviceArray<uint8_t> x_d, x_transposed_d;
  DeviceArray<int8_t> w_digits_d, dz_digits_d;
  DeviceArray<T> dz_d, w_up_d, dz_up_d;
  DeviceArray<OrderedBits<T>> most_d;
  DeviceArray<Int8SplitRate> rate_d;
  DeviceArray<int> w_sums_d, dz_sums_d;
  Int8SplitProduct forward, backward;

  Int8Split(int n_, int in_, int out_)
      : ByteOperands<T>(n_, in_, out_, kCenter),
        x_d(n * int8_split_pitch(in)),
        x_transposed_d(in * int8_split_pitch(n)),
        w_digits_d(int8_split_rows(out, kDigits<T>) * int8_split_pitch(in)),
        dz_digits_d(int8_split_rows(out, kDigits<T>) * int8_split_pitch(n)),
        dz_d(int64_t(n) * out),
        w_up_d(out),
        dz_up_d(out),
        most_d(out),
        rate_d(1),
        w_sums_d(int8_split_rows(out, kDigits<T>)),
        dz_sums_d(int8_split_rows(out, kDigits<T>)) {
    std::normal_distribution<T> normal;
    for (int64_t i = 0; i < int64_t(n) * out; ++i) dz.push_back(T(1e-3) * normal(this->engine));
    std::vector<OrderedBits<T>> most(static_cast<size_t>(out), 0);
    for (int64_t i = 0; i < int64_t(n) * out; ++i) {
      const T size = std::abs(dz[size_t(i)]);
      OrderedBits<T> bits;
      std::memcpy(&bits, &size, sizeof(T));
      most[size_t(i % out)] = std::max(most[size_t(i % out)], bits);
    }
    copy(dz_d, dz), copy(most_d, most);
    const T scale = T(kByteScale);
    forward = int8_split_linear<T>({n, in, out, x_d.get(), w_digits_d.get(), w_up_d.get(),
                                    w_sums_d.get(), this->b_d.get(), this->y_d.get(), scale,
                                    kCenter, ActivationFn::sigmoid});
    backward = int8_split_grad_w<T>({n, in, out, x_transposed_d.get(), dz_digits_d.get(),
                                     dz_up_d.get(), dz_sums_d.get(), this->w_d.get(), nullptr,
                                     scale, kCenter, this->sgd(), true});
  }
  // The launch sets `most` to 0, so the bench keeps its own elsewhere while dz is given.
  cudaError_t prepare(OrderedBits<T>* most, cudaStream_t stream) const {
    Int8SplitPrepare<T> args{};
    args.gather = this->gather();
    args.w = this->w_d.get(), args.x = x_d.get(), args.x_transposed = x_transposed_d.get();
    args.w_digits = w_digits_d.get(), args.w_up = w_up_d.get(), args.most = most;
    args.w_sums = w_sums_d.get(), args.dz_sums = dz_sums_d.get();
    args.lr = this->lr_d.get(), args.rate = rate_d.get();
    args.in = in, args.out = out;
    return launch_int8_split_prepare(args, stream);
  }
  cudaError_t split(const OrderedBits<T>* most, cudaStream_t stream) const {
    return launch_int8_split_gradient<T>(
        {dz_d.get(), most, dz_digits_d.get(), dz_up_d.get(), dz_sums_d.get(), n, out}, stream);
  }
};

// Errors may be at most the value of one dropped bit of a factor of average size.
template <typename T>
int check_products(const Int8Split<T>& p) {
  using Wide = long double;
  const DeviceArray<OrderedBits<T>> spare(p.out);
  const std::string digits = std::to_string(kDigits<T>) + " digits";
  check_cuda(p.prepare(spare.get(), nullptr), "prepare");
  p.y_d.poison();
  check_cuda(p.forward(nullptr), "forward");
  const Wide unit = std::numeric_limits<T>::epsilon();
  int failures = report(p.forward_error(unit), "forward, " + digits);
  check_cuda(p.split(p.most_d.get(), nullptr), "split");
  check_cuda(p.backward(nullptr), "backward");
  failures +=
      report(p.backward_error(p.dz, [&](Wide size, Wide old) { return unit * (size / 2 + old); }),
             "backward, " + digits);
  p.copy(p.w_d, p.w);
  return failures;
}

template <typename T>
void time_parts(const Int8Split<T>& p) {
  ByteHead<T> head(p);
  head.args.dz = p.dz_d.get(), head.args.dz_most = p.most_d.get();
  std::vector<Candidate> all;
  all.push_back({"prepare", [&](cudaStream_t s) { return p.prepare(p.most_d.get(), s); }});
  all.push_back({"forward", p.forward});
  all.push_back({"head", [&](cudaStream_t s) { return head.run(s); }});
  all.push_back({"split", [&](cudaStream_t s) { return p.split(p.most_d.get(), s); }});
  all.push_back({"backward", p.backward});
  all.push_back({"sums", [&](cudaStream_t s) { return head.add(s); }});
  all.push_back({"STEP", [&](cudaStream_t s) {
                   check_cuda(p.prepare(p.most_d.get(), s), "prepare");
                   check_cuda(p.forward(s), "forward");
                   check_cuda(head.run(s), "head");
                   check_cuda(p.split(p.most_d.get(), s), "split");
                   check_cuda(head.add(s), "sums");
                   return p.backward(s);
                 }});
  print_times(all, std::to_string(p.n) + " x " + std::to_string(p.in) + " -> " +
                       std::to_string(p.out) + ", " + std::to_string(kDigits<T>) + " digits");
}

template <typename T>
int check_and_time(int n, int in, int out) {
  const Int8Split<T> p(n, in, out);
  const int failures = check_products(p);
  time_parts(p);
  return failures;
}

}  // namespace
}  // namespace ridgeline::bench

int main(int argc, char** argv) {
  using namespace ridgeline::bench;
  return check_and_time_all(argc, argv, [](int n, int in, int out) {
    return check_and_time<float>(n, in, out) + check_and_time<double>(n, in, out);
  });
}
