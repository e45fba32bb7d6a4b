// Compares every CUDA kernel with the double-precision oracle on the CPU, wherever it covers ops of
// a case.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <set>
#include <string>

#include "ridgeline/cuda/channels_last/kernels.h"
#include "ridgeline/cuda/conv/kernels.h"
#include "ridgeline/cuda/conv1d/kernels.h"
#include "ridgeline/cuda/gemm/kernels.h"
#include "ridgeline/cuda/generate/kernels.h"
#include "ridgeline/cuda/kernels.h"
#include "ridgeline/cuda/ladder/constant_conv_kernels.h"
#include "ridgeline/cuda/ladder/rnn_rung_kernels.h"
#include "ridgeline/cuda/mlp_step/fp16_split_u8_kernels.h"
#include "ridgeline/cuda/mlp_step/int8_split_kernels.h"
#include "ridgeline/cuda/mlp_step/kernels.h"
#include "ridgeline/cuda/recurrent/kernels.h"
#include "ridgeline/cuda/tile/head_kernels.h"
#include "ridgeline/cuda/tile/kernels.h"
#include "ridgeline/cuda/vendor/kernels.h"
#include "tests/cuda/compile_ahead.h"
#include "tests/cuda/device_self.h"
#include "tests/cuda/gpu.h"
#include "tests/cuda/libraries.h"
#include "tests/cuda/signal_cases.h"
#include "tests/support/nans.h"

namespace ridgeline::test {
namespace {

// Products larger than a tile in every direction, and long enough for k to be split; and thin ones
// in whole units of 16 bytes, which go straight from memory into registers.
std::vector<Case> large_cases(DType dtype) {
  std::vector<Case> all;
  for (const auto& [n, in, out] :
       {std::array{200, 300, 150}, std::array{33, 1100, 70}, std::array{1500, 65, 10},
        std::array{328, 296, 264}, std::array{16, 520, 264}, std::array{24, 328, 136},
        std::array{64, 200, 72}}) {
    const auto title = [&, n = n](const char* op) {
      return fmt::format("{} of {} samples", op, n);
    };
    const auto kind = n == 328 ? ActivationKind::relu : ActivationKind::tanh;
    CaseBuilder forward(title("linear+activation"), dtype);
    const Value x = forward.in("x", {n, in}), w = forward.param("w", {out, in});
    const Value z = forward.temp("z", {n, out});
    forward.add(Linear{x, w, forward.param("b", {out}), z});
    forward.add(Activation{kind, z, forward.out("y", {n, out})});
    all.push_back(forward.done());

    CaseBuilder grad_x(title("linear_grad_x"), dtype);
    const Value dy = grad_x.in("dy", {n, out}), wx = grad_x.param("w", {out, in});
    grad_x.add(LinearGradX{dy, wx, grad_x.out("dx", {n, in})});
    all.push_back(grad_x.done());

    CaseBuilder grad_w(title("linear_grad_w+sgd"), dtype);
    const Value xs = grad_w.in("x", {n, in}), dys = grad_w.in("dy", {n, out});
    const Value dw = grad_w.temp("dw", {out, in}), db = grad_w.temp("db", {out});
    grad_w.add(LinearGradW{xs, dys, dw, db});
    grad_w.add_update("momentum", grad_w.param("w", {out, in}), dw);
    grad_w.add_update("momentum", grad_w.param("b", {out}), db);
    all.push_back(grad_w.done());
  }
  return all;
}

// Convolutions and their pools for inference, from numbers and from a gather's bytes.
struct Layer {
  int64_t k, filter, pad;
};

// Two linear layers after them, and softmax.
struct LinearTail {
  int64_t hidden, classes;
  bool softmax;
};

void add_tail(CaseBuilder& c, Value x, ActivationKind kind, const LinearTail& tail) {
  const int64_t n = x.shape[0], in = x.shape[1];
  const Shape hidden{n, tail.hidden}, out{n, tail.classes};
  const Value z = c.temp("z", hidden), h = c.temp("h", hidden);
  c.add(Linear{x, c.param("w", {tail.hidden, in}, normal(1 / std::sqrt(double(in)))),
               n > 3 ? c.param("b", {tail.hidden}) : Value{}, z});
  c.add(Activation{kind, z, h});
  const Value logits = tail.softmax ? c.temp("logits", out) : c.out("logits", out);
  c.add(Linear{h, c.param("last.w", {tail.classes, tail.hidden}),
               n > 3 ? c.param("last.b", {tail.classes}) : Value{}, logits});
  if (tail.softmax) c.add(Softmax{logits, c.accumulator("p", out, Role::output)});
}

Case conv_net(DType dtype, int64_t n, const Image& in, const std::vector<Layer>& layers,
              ActivationKind kind, bool gathers, bool trains = false,
              const LinearTail* tail = nullptr) {
  CaseBuilder c(fmt::format("conv net {} of {} {} {}", n, to_string(in), layers.size(),
                            gathers ? "gathered" : "given"),
                dtype);
  Value x = gathers ? c.temp("x", {n, in.numel()}) : c.in("x", {n, in.numel()});
  if (gathers) {
    const Value set =
        c.make("set", DType::uint8, {41, in.c, in.h, in.w}, Role::input, normal(1), 256);
    const Value labels = c.make("labels", DType::int32, {41}, Role::input, normal(1), 10);
    const Value order = c.make("order", DType::int32, {3 + 3 * n}, Role::input, normal(1), 41);
    const Value first = c.make("first", DType::int64, {1}, Role::input, constant(3));
    c.add(Gather{set, order, first, c.tick(), x, 1.0 / 255, -0.5});
    const Value label = c.make("label", DType::int32, {n}, Role::output, constant(0), 10);
    if (n > 1) c.add(Gather{labels, order, first, c.tick(), label});
  }
  Image image = in;
  for (size_t l = 0; l < layers.size(); ++l) {
    const auto& [k, filter, pad] = layers[l];
    const Slide slide{filter, 1, pad, 1};
    const Conv2dShape shape{image, k, {slide, slide}, 1};
    const PoolShape pool{shape.out(), {Slide{2, 2, 0, 1}, Slide{2, 2, 0, 1}}};
    const auto name = [&](const char* what) { return fmt::format("{}{}", what, l); };
    const double size = 1 / std::sqrt(double(image.c * filter * filter));
    const Value z = c.temp(name("z"), {n, shape.out().numel()});
    const Value a = c.temp(name("a"), {n, shape.out().numel()});
    const Shape pooled{n, pool.out().numel()};
    const bool inner = l + 1 < layers.size() || tail != nullptr;
    const Value y = inner ? c.temp(name("y"), pooled) : c.out(name("y"), pooled);
    const Value w = c.param(name("w"), shape.weight(), normal(size));
    const Value b = l == 0 || n > 2 ? c.param(name("b"), {k}) : Value{};
    c.add(Conv2d{x, w, b, z, shape});
    c.add(Activation{kind, z, a});
    c.add(MaxPool{a, y, pool});
    if (trains) {  // the lowest layer's backward pass: x, gathered, is read again
      const Value da = c.temp(name("da"), a.shape), dz = c.temp(name("dz"), z.shape);
      c.add(MaxPoolGrad{a, y, c.in(name("dy"), pooled), da, pool});
      c.add(ActivationGrad{kind, a, da, dz});
      c.add(Conv2dGradW{x, dz, c.out(name("dw"), shape.weight()), {}, shape});
    }
    x = y;
    image = pool.out();
  }
  if (tail != nullptr) add_tail(c, x, kind, *tail);
  return c.done();
}

std::vector<Case> conv_net_cases(DType dtype) {
  std::vector<Case> all;
  const ActivationKind tanh = ActivationKind::tanh, relu = ActivationKind::relu;
  for (const bool gathers : {false, true}) {
    all.push_back(conv_net(dtype, 2, {3, 17, 19}, {{20, 7, 0}}, relu, gathers));
    all.push_back(conv_net(dtype, 5, {1, 12, 9}, {{12, 3, 0}}, tanh, gathers));
    all.push_back(conv_net(dtype, 2, {5, 9, 11}, {{7, 5, 2}}, ActivationKind::sigmoid, gathers));
    all.push_back(conv_net(dtype, 2, {2, 8, 14}, {{16, 3, 1}, {8, 3, 1}}, relu, gathers));
    all.push_back(conv_net(dtype, 3, {1, 10, 6}, {{37, 5, 2}}, relu, gathers, true));
  }
  return all;
}

// Larger networks for which kernels of two layers and of whole networks are built. Only these
// kernels run, because the oracle is slow on such networks.
std::vector<Case> large_conv_net_cases(DType dtype) {
  const std::vector<Layer> layers{{12, 7, 0}, {24, 7, 0}};
  return {conv_net(dtype, 3, {1, 72, 72}, layers, ActivationKind::tanh, true),
          conv_net(dtype, 1, {1, 72, 72}, layers, ActivationKind::relu, false)};
}
std::vector<Case> whole_net_cases(DType dtype) {
  const std::vector<Layer> layers{{12, 7, 0}, {24, 7, 0}};
  const LinearTail small{37, 5, false}, large{120, 10, true};
  return {conv_net(dtype, 9, {1, 72, 72}, layers, ActivationKind::tanh, true, false, &large),
          conv_net(dtype, 2, {1, 72, 72}, layers, ActivationKind::relu, false, false, &small)};
}

// A perceptron's forward pass for inference. `mixed`: biases in fp32, as in a run with master
// weights.
Case perceptron(DType dtype, int64_t n, const std::vector<int64_t>& widths, ActivationKind kind,
                bool mixed, bool labels) {
  CaseBuilder c(fmt::format("perceptron forward {} of {}{}{}", n, fmt::join(widths, "-"),
                            mixed ? " mixed" : "", labels ? " labels" : ""),
                dtype);
  const Value set = c.make("set", DType::uint8, {37, widths[0]}, Role::input, normal(1), 256);
  const Value order = c.make("order", DType::int32, {3 + 3 * n}, Role::input, normal(1), 37);
  const Value first = c.make("first", DType::int64, {1}, Role::input, constant(3));
  Value x = c.temp("x", {n, widths[0]});
  c.add(Gather{set, order, first, c.tick(), x, 1.0 / 255, -0.5});
  for (size_t l = 1; l < widths.size(); ++l) {
    const auto name = [&](const char* what) { return fmt::format("{}{}", what, l); };
    const double size = 1 / std::sqrt(double(widths[l - 1]));
    const Value w = c.param(name("w"), {widths[l], widths[l - 1]}, normal(size));
    const Value b = l == 2 && n == 5 ? Value{}
                    : mixed          ? c.accumulator(name("b"), {widths[l]}, Role::param)
                                     : c.param(name("b"), {widths[l]});
    const Value z = c.temp(name("z"), {n, widths[l]});
    c.add(Linear{x, w, b, z});
    x = z;
    if (l + 1 == widths.size()) break;
    x = c.temp(name("y"), {n, widths[l]});
    c.add(Activation{kind, z, x});
  }
  const Value p = c.accumulator("p", {n, widths.back()}, Role::output);
  c.add(Softmax{x, p});
  if (labels) c.add(Argmax{p, c.make("label", DType::int32, {n}, Role::output, constant(0), 32)});
  c.add(Tick{c.tick()});
  return c.done();
}

// Narrow layers and wide ones, batches of one sample, of parts of a tile, of many tiles.
std::vector<Case> perceptron_cases(DType dtype) {
  using A = ActivationKind;
  std::vector<Case> all;
  for (const bool mixed : {false, true}) {
    if (mixed && size_of(dtype) != 2) continue;
    all.push_back(perceptron(dtype, 1, {8, 3}, A::relu, mixed, true));
    all.push_back(perceptron(dtype, 5, {24, 16, 40, 10}, A::relu, mixed, false));
    all.push_back(perceptron(dtype, 17, {104, 8, 72, 32}, A::tanh, mixed, true));
    all.push_back(perceptron(dtype, 33, {200, 136, 264, 24, 31}, A::sigmoid, mixed, true));
    all.push_back(perceptron(dtype, 2, {784, 128, 128, 128, 10}, A::relu, mixed, false));
    all.push_back(perceptron(dtype, 70, {48, 520, 10}, A::gelu, mixed, true));
    all.push_back(perceptron(dtype, 1100, {16, 64, 5}, A::relu, mixed, true));
  }
  return all;
}

// The kernels of the table that belong to one of these families.
using Family = KernelTable (*)();
KernelTable of_families(const KernelTable& table, std::initializer_list<Family> families) {
  std::set<std::string> names;
  for (const Family family : families) {
    for (const Kernel& kernel : family()) names.insert(kernel.name);
  }
  KernelTable some;
  std::ranges::copy_if(table, std::back_inserter(some),
                       [&](const Kernel& kernel) { return names.contains(kernel.name); });
  return some;
}

class CudaTableWalk : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped() || !wanted_kernel("cuda.all_reduce")) return;  // to connect takes long
    gpu().set_ranks(&alone_);  // one rank, so that its collectives are exercised too
    gpu().connect_ranks();
  }

  void walk_all(Precision precision) {
    const DType dtype = storage(precision);
    const KernelTable table = cuda::kernels();
    Exercised exercised;
    const auto walk_cases = [&](const std::vector<Case>& cases, const KernelTable& kernels) {
      compile_ahead(cases, gpu());
      for (const Case& c : cases) {
        if (wanted(c)) walk(c, kernels, gpu(), exercised);
      }
    };
    walk_cases(all_cases(dtype), table);
    walk_cases(large_cases(dtype), table);
    walk_cases(tall_training_cases(dtype), table);
    walk_cases(conv_net_cases(dtype), table);
    walk_cases(large_conv_net_cases(dtype), of_families(table, {cuda::conv_kernels}));
    walk_cases(whole_net_cases(dtype), of_families(table, {cuda::conv_kernels}));
    walk_cases(perceptron_cases(dtype), table);
    walk_cases({norm_and_gradient(2, 16384, true, false, dtype)}, table);
    expect_all(table, exercised, precision);
  }

  void expect_all(const KernelTable& table, Exercised& exercised, Precision precision) {
    for (const auto family :
         {cuda::signal_chain_kernels, cuda::signal_kernels, cuda::signal_training_kernels}) {
      for (const Kernel& kernel : family()) ++exercised[kernel.name];  // signal_test.cpp walks them
    }
    for (const auto family :
         {cuda::channels_last_conv_kernels, cuda::channels_last_implicit_kernels,
          cuda::channels_last_unrolled_kernels, cuda::channels_last_norm_kernels,
          cuda::channels_last_image_kernels}) {
      for (const Kernel& kernel : family()) ++exercised[kernel.name];  // channels_last_test.cpp
    }
    for (const Kernel& kernel : table) {
      if (kernel.traits.fp16_sums) ++exercised[kernel.name];  // these have a walk of their own
    }
    expect_exercised(table, precision, gpu(), exercised,
                     [&](Library library) { return lacks(gpu(), library); });
  }

 private:
  static inline DeviceSelf alone_;
};

TEST_F(CudaTableWalk, Fp64KernelsAgreeWithTheOracle) { walk_all(Precision::fp64); }
TEST_F(CudaTableWalk, Fp32KernelsAgreeWithTheOracle) { walk_all(Precision::fp32); }
TEST_F(CudaTableWalk, Bf16KernelsAgreeWithTheOracle) { walk_all(Precision::bf16); }
TEST_F(CudaTableWalk, Fp16KernelsAgreeWithTheOracle) { walk_all(Precision::fp16); }

TEST_F(CudaTableWalk, KernelsThatSumInFp16AgreeWithTheOracle) {
  KernelTable table = cuda::kernels();
  std::erase_if(table, [](const Kernel& kernel) { return !kernel.traits.fp16_sums; });
  ASSERT_FALSE(table.empty());
  Exercised exercised;
  for (const auto& cases : {op_cases, mixed_cases, large_cases}) {
    for (Case& c : cases(DType::fp16)) {
      c.program.accumulate = Precision::fp16;
      if (wanted(c)) walk(c, table, gpu(), exercised);
    }
  }
  for (const Kernel& kernel : table) EXPECT_GT(exercised[kernel.name], 0) << kernel.name;
}

// The same programs with the factors of products rounded to tf32, or split in two, by the kernels
// that do so. Whole steps are left to kernels that round to nearest: truncation biases sums of one
// sign, which the bound of a step does not allow.
class CudaRoundedTableWalk : public CudaTableWalk {
 protected:
  void walk_fp32_as(Precision precision, std::initializer_list<Family> others) {
    KernelTable all = cuda::kernels();
    std::erase_if(all,
                  [&](const Kernel& kernel) { return !kernel.traits.precisions.has(precision); });
    const KernelTable to_nearest =
        of_families(all, {cuda::tile_kernels, cuda::mlp_step_kernels,
                          cuda::mlp_fp16_split_u8_kernels, cuda::mlp_int8_split_kernels,
                          cuda::head_kernels, cuda::gemm_kernels, cuda::generated_kernels});
    KernelTable table = of_families(all, others);
    table.insert(table.begin(), to_nearest.begin(), to_nearest.end());
    Exercised exercised;
    const auto walk_cases = [&](std::vector<Case> cases, const KernelTable& kernels) {
      for (Case& c : cases) c.program.precision = precision;
      compile_ahead(cases, gpu());
      for (const Case& c : cases) {
        if (wanted(c)) walk(c, kernels, gpu(), exercised);
      }
    };
    walk_cases(op_cases(DType::fp32), table);
    walk_cases(fused_cases(DType::fp32), table);
    walk_cases(recurrent_cases(DType::fp32), table);
    walk_cases(large_cases(DType::fp32), table);
    walk_cases(conv_net_cases(DType::fp32), table);
    walk_cases(large_conv_net_cases(DType::fp32), of_families(table, {cuda::conv_kernels}));
    walk_cases(perceptron_cases(DType::fp32), to_nearest);
    walk_cases(training_cases(DType::fp32), to_nearest);
    walk_cases(tall_training_cases(DType::fp32), to_nearest);
    expect_all(table, exercised, precision);
  }
};

TEST_F(CudaRoundedTableWalk, Tf32KernelsAgreeWithTheOracle) {
  walk_fp32_as(
      Precision::tf32,
      {cuda::cublaslt_kernels, cuda::cudnn_kernels, cuda::conv_kernels, cuda::implicit_conv_kernels,
       cuda::pooled_conv_kernels, cuda::wgmma_conv_kernels, cuda::conv_grads_kernels,
       cuda::rnn_stack_kernels, cuda::rnn_persistent_kernels, cuda::rnn_classifier_kernels,
       cuda::rnn_batch_parallel_kernels, cuda::rnn_split_k_kernels, cuda::rnn_loop_kernels,
       cuda::rnn_product_kernels, cuda::constant_conv_kernels, cuda::rnn_rung_kernels,
       [] { return cuda::cudnn_rnn_kernels(false); }});
}
TEST_F(CudaRoundedTableWalk, Fp32x3KernelsAgreeWithTheOracle) {
  walk_fp32_as(Precision::fp32x3, {});
}

// A NaN in the inputs makes every output that depends on it NaN, through relu and gates. (cuBLASLt
// is an exception: relu in some of its kernels turns it into zero.)
TEST_F(CudaTableWalk, NansComeThroughLayers) {
  KernelTable table = cuda::kernels();
  std::erase_if(table, [](const Kernel& kernel) {
    return kernel.name.starts_with("cuda.linear_relu.cublaslt");
  });
  Exercised exercised;
  for (const Precision precision :
       {Precision::bf16, Precision::fp16, Precision::tf32, Precision::fp32, Precision::fp64}) {
    for (Case& c : layer_cases(storage(precision))) {
      c.program.precision = precision;
      expect_nans(c, table, gpu(), exercised);
    }
  }
  for (const char* kernel : {"cuda.linear.plain", "cuda.rnn.plain"}) {
    EXPECT_GT(exercised[kernel], 0) << kernel << ": no case exercises this kernel";
  }
}

// More rows than one block takes.
TEST_F(CudaTableWalk, LossesOfLargeBatchesAgreeWithTheOracle) {
  const KernelTable table = cuda::kernels();
  Exercised exercised;
  for (const auto& [n, classes] :
       {std::array{257, 10}, std::array{3000, 10}, std::array{700, 40}}) {
    CaseBuilder c("softmax_xent of a large batch", DType::fp32);
    const Shape shape{n, classes};
    const Value x = c.in("x", shape, normal(3)), label = c.labels({n}, classes);
    c.add(SoftmaxXent{x, label, c.tick(), c.loss(), c.correct(), 1.0 / n});
    c.add(SoftmaxXentGrad{x, label, c.out("dx", shape), 1.0 / n});
    walk(c.done(), table, gpu(), exercised);
  }
  EXPECT_GT(exercised["cuda.softmax_xent_and_grad.plain"], 0);
}

}  // namespace
}  // namespace ridgeline::test
