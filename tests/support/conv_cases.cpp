#include "tests/support/conv_cases.h"

#include <fmt/format.h>

#include <cmath>

namespace ridgeline::test {
namespace {

Slide slide(int64_t kernel, int64_t stride = 1, int64_t pad = 0, int64_t dilation = 1) {
  return {kernel, stride, pad, dilation};
}

Fill filter(const Conv2dShape& shape) {
  const double taps = double(shape.weight().numel()) / double(shape.k);
  return normal(1 / std::sqrt(taps));
}

}  // namespace

// Ones, primes, tails, strides that leave a remainder, windows as large as the padded image,
// groups.
std::vector<ConvCase> conv_shapes() {
  return {
      {1, {{1, 1, 1}, 1, {slide(1), slide(1)}, 1}},
      {2, {{1, 5, 7}, 3, {slide(3, 1, 1), slide(3, 1, 1)}, 1}},
      {3, {{3, 9, 8}, 5, {slide(3, 2, 1), slide(2, 1, 0)}, 1}},
      {1, {{4, 11, 11}, 6, {slide(3, 1, 2, 2), slide(3, 1, 2, 2)}, 2}},
      {2, {{4, 8, 8}, 8, {slide(3, 1, 1), slide(3, 1, 1)}, 4}},
      {1, {{2, 2, 2}, 3, {slide(3, 2, 1), slide(4, 1, 1)}, 1}},
      {3, {{8, 6, 6}, 16, {slide(1), slide(1)}, 1}},
      {3, {{5, 1, 37}, 7, {slide(1), slide(5, 2, 2)}, 1}},
      {7, {{2, 6, 6}, 17, {slide(3, 1, 1), slide(3, 1, 1)}, 1}},
      {1, {{3, 17, 19}, 12, {slide(7), slide(7)}, 1}},
      {5, {{1, 16, 16}, 32, {slide(5, 1, 2), slide(5, 1, 2)}, 1}},
      {2, {{16, 14, 14}, 24, {slide(5, 1, 2), slide(5, 1, 2)}, 1}},
      {9, {{16, 4, 4}, 16, {slide(3, 1, 1), slide(3, 1, 1)}, 1}},
      {3, {{1, 8, 6}, 9, {slide(5, 1, 2), slide(5, 1, 2)}, 1}},
      {2, {{9, 8, 10}, 41, {slide(5, 1, 2), slide(5, 1, 2)}, 1}},
      {1, {{35, 6, 4}, 70, {slide(3, 1, 1), slide(3, 1, 1)}, 1}},
      {50, {{9, 4, 5}, 33, {slide(3, 1, 1), slide(3, 1, 1)}, 1}},   // images share a block
      {2, {{6, 27, 26}, 40, {slide(3, 1, 1), slide(3, 1, 1)}, 1}},  // an image takes several passes
      {2, {{32, 14, 14}, 64, {slide(3, 1, 1), slide(3, 1, 1)}, 1}},  // as fashion-lenet's second
      {2, {{70, 5, 4}, 10, {slide(3, 1, 1), slide(3, 1, 1)}, 1}},    // channels of several slabs
      {8, {{35, 6, 8}, 9, {slide(3, 1, 1), slide(3, 1, 1)}, 1}},     // and long sums of gradients
      {512, {{3, 7, 7}, 2, {slide(7), slide(7)}, 1}},                // a filter meets an image once
      {1, {{3, 7, 7}, 512, {slide(7), slide(7)}, 1}},
      {2, {{5, 9, 12}, 37, {slide(3, 2, 1), slide(3, 2, 1)}, 1}},  // strides, a column left over
      {2, {{1, 13, 10}, 6, {slide(5, 2, 2), slide(5, 2, 2)}, 1}},
      {3, {{10, 7, 8}, 6, {slide(3, 1, 1), slide(3, 1, 1)}, 2}},
      {1, {{18, 11, 10}, 68, {slide(5, 3, 2), slide(5, 3, 2)}, 2}},  // more than a block of a group
      {2, {{3, 6, 6}, 6, {slide(3, 4, 0), slide(3, 4, 0)}, 3}},      // filters that do not meet
  };
}

std::vector<PoolCase> pool_shapes() {
  return {
      {1, {{1, 1, 1}, {slide(1), slide(1)}}},
      {2, {{3, 8, 8}, {slide(2, 2), slide(2, 2)}}},
      {1, {{2, 5, 5}, {slide(2, 2), slide(2, 2)}}},
      {3, {{1, 7, 9}, {slide(3, 2, 1), slide(3, 2, 1)}}},
      {2, {{17, 6, 6}, {slide(3, 1, 1), slide(3, 1, 1)}}},
      {2, {{5, 1, 17}, {slide(1), slide(3, 2, 1)}}},
      {4, {{3, 6, 11}, {slide(2, 1), slide(3, 2)}}},
      {3, {{16, 28, 28}, {slide(2, 2), slide(2, 2)}}},
      {5, {{7, 7, 5}, {slide(7), slide(5)}}},
  };
}

std::string to_string(const ConvCase& c) {
  return fmt::format("{} of {}", c.n, c.shape.attributes());
}
std::string to_string(const PoolCase& c) {
  return fmt::format("{} of {}", c.n, c.shape.attributes());
}

DType statistics(DType dtype) { return dtype == DType::fp64 ? DType::fp64 : DType::fp32; }

namespace {

void add_conv(std::vector<Case>& all, DType dtype) {
  for (const ConvCase& conv : conv_shapes()) {
    const auto& [n, shape] = conv;
    const Shape in{n, shape.in.numel()}, out{n, shape.out().numel()};
    for (const bool bias : {true, false}) {
      const std::string title = to_string(conv) + (bias ? "" : " without bias");
      CaseBuilder forward("conv2d " + title, dtype);
      const Value x = forward.in("x", in), w = forward.param("w", shape.weight(), filter(shape));
      const Value b = bias ? forward.param("b", {shape.k}) : Value{};
      forward.add(Conv2d{x, w, b, forward.out("y", out), shape});
      all.push_back(forward.done());

      CaseBuilder grad_w("conv2d_grad_w " + title, dtype);
      const Value xs = grad_w.in("x", in), dy = grad_w.in("dy", out);
      const Value dw = grad_w.out("dw", shape.weight());
      const Value db = bias ? grad_w.out("db", {shape.k}) : Value{};
      grad_w.add(Conv2dGradW{xs, dy, dw, db, shape});
      all.push_back(grad_w.done());
    }
    CaseBuilder grad_x("conv2d_grad_x " + to_string(conv), dtype);
    const Value dy = grad_x.in("dy", out), w = grad_x.param("w", shape.weight(), filter(shape));
    grad_x.add(Conv2dGradX{dy, w, grad_x.out("dx", in), shape});
    all.push_back(grad_x.done());
  }
}

void add_pool(std::vector<Case>& all, DType dtype) {
  for (const PoolCase& pool : pool_shapes()) {
    const auto& [n, shape] = pool;
    const Shape in{n, shape.in.numel()}, out{n, shape.out().numel()};
    // Half of a relu's outputs are equal: the first of them must get the gradient.
    for (const Fill& fill : {normal(1), relu_output()}) {
      CaseBuilder c(fmt::format("max_pool {} {}", to_string(pool), int(fill.kind)), dtype);
      const Value x = c.in("x", in, fill), y = c.out("y", out);
      c.add(MaxPool{x, y, shape});
      c.add(MaxPoolGrad{x, y, c.in("dy", out), c.out("dx", in), shape});
      all.push_back(c.done());
    }
    for (const PoolCount count : {PoolCount::window, PoolCount::image}) {
      CaseBuilder c(fmt::format("avg_pool {} {}", to_string(pool), name(count)), dtype);
      c.add(AvgPool{c.in("x", in), c.out("y", out), shape, count});
      c.add(AvgPoolGrad{c.in("dy", out), c.out("dx", in), shape, count});
      all.push_back(c.done());
    }
  }
}

void add_layer_norm(std::vector<Case>& all, DType dtype) {
  constexpr int64_t kShapes[][3] = {{1, 1, 1},  {3, 1, 37},  {5, 1, 64},
                                    {4, 3, 17}, {2, 1, 784}, {33, 1, 10}};  // n, rows, width
  for (const auto& [n, rows, width] : kShapes) {
    for (const bool affine : {true, false}) {
      CaseBuilder c(
          fmt::format("layer_norm {}x{}x{}{}", n, rows, width, affine ? "" : " without gamma"),
          dtype);
      const Shape shape{n, rows * width};
      const auto made = [&, count = n * rows](const char* name) {
        return c.make(name, statistics(dtype), {count}, Role::output, normal(1));
      };
      const Value x = c.in("x", shape), mean = made("mean"), rstd = made("rstd");
      const Value gamma = affine ? c.param("gamma", {width}) : Value{};
      const Value beta = affine ? c.param("beta", {width}) : Value{};
      c.add(LayerNorm{x, gamma, beta, c.out("y", shape), mean, rstd, width});
      LayerNormGrad grad{x,  gamma, mean, rstd, c.in("dy", shape), c.out("dx", shape),
                         {}, {},    width};
      if (affine) {
        grad.dgamma = c.out("dgamma", {width});
        grad.dbeta = c.out("dbeta", {width});
      }
      c.add(grad);
      if (affine) {  // the lowest layer wants no dx; inference no statistics
        grad.dx = {};
        c.add(grad);
        c.add(LayerNorm{x, gamma, beta, c.out("inferred", shape), {}, {}, width});
      }
      all.push_back(c.done());
    }
  }
}

void add_batch_norm(std::vector<Case>& all, DType dtype) {
  const std::pair<int64_t, Image> shapes[] = {
      {2, {1, 1, 1}}, {5, {3, 1, 1}}, {3, {4, 5, 7}}, {9, {17, 3, 3}}, {4, {16, 8, 8}}};
  for (const auto& [n, in] : shapes) {
    for (const bool affine : {true, false}) {
      CaseBuilder c(fmt::format("batch_norm {} of {}{}", n, ridgeline::to_string(in),
                                affine ? "" : " without gamma"),
                    dtype);
      const Shape shape{n, in.numel()}, channels{in.c};
      const auto made = [&](const char* name, Role role, Fill fill) {
        return c.make(name, statistics(dtype), channels, role, fill);
      };
      const Value x = c.in("x", shape);
      const Value gamma = affine ? c.param("gamma", channels) : Value{};
      const Value beta = affine ? c.param("beta", channels) : Value{};
      const Value mean = made("mean", Role::output, normal(1));
      const Value rstd = made("rstd", Role::output, normal(1));
      const Value running_mean = made("running_mean", Role::state, normal(1));
      const Value running_var = made("running_var", Role::state, uniform(0.5, 2));
      const Value batches = c.make("batches", DType::int64, {1}, Role::state, constant(4));
      c.add(BatchNorm{x, gamma, beta, running_mean, running_var, batches, c.out("y", shape), mean,
                      rstd, in});
      BatchNormGrad grad{x, gamma, mean, rstd, c.in("dy", shape), c.out("dx", shape), {}, {}, in};
      if (affine) {
        grad.dgamma = c.out("dgamma", channels);
        grad.dbeta = c.out("dbeta", channels);
      }
      c.add(grad);
      if (affine) {
        grad.dx = {};
        c.add(grad);
      }
      c.add(
          BatchNormInfer{x, gamma, beta, running_mean, running_var, c.out("inferred", shape), in});
      all.push_back(c.done());
    }
  }
}

void add_augment(std::vector<Case>& all, DType dtype) {
  for (const auto& in : {Image{1, 1, 1}, Image{3, 5, 7}, Image{1, 28, 28}}) {
    for (const auto& [move, flip] : {std::pair{0, true}, {2, false}, {3, true}}) {
      constexpr int64_t kItems = 5;
      CaseBuilder c(fmt::format("augment {} by {} {}", ridgeline::to_string(in), move, flip),
                    dtype);
      const Value set =
          c.make("set", DType::uint8, {41, in.c, in.h, in.w}, Role::input, normal(1), 256);
      const Value order =
          c.make("order", DType::int32, {3 + 3 * kItems}, Role::input, normal(1), 41);
      const Value first = c.make("first", DType::int64, {1}, Role::input, constant(3));
      const Value epoch = c.make("epoch", DType::int64, {1}, Role::input, constant(2));
      c.add(GatherAugment{set,
                          order,
                          first,
                          c.tick(),
                          epoch,
                          c.out("y", {kItems, in.numel()}),
                          1.0 / 255,
                          -0.5,
                          in,
                          {99, move, flip}});
      all.push_back(c.done());
    }
  }
}

}  // namespace

std::vector<Case> conv_cases(DType dtype) {
  std::vector<Case> all;
  add_conv(all, dtype);
  add_pool(all, dtype);
  add_layer_norm(all, dtype);
  add_batch_norm(all, dtype);
  add_augment(all, dtype);
  return all;
}

// conv, activation, pool and their backward passes, in the order of lowering. `kept`: the
// intermediate values are read later, so that a kernel may not skip them.
std::vector<Case> fused_conv_cases(DType dtype) {
  std::vector<Case> all;
  const PoolShape halves{{}, {slide(2, 2), slide(2, 2)}};
  for (const size_t which : {1, 4, 8, 9, 10, 11, 13, 14, 15, 16, 17, 18, 19}) {
    const auto [n, shape] = conv_shapes()[which];
    PoolShape pool = halves;
    pool.in = shape.out();
    for (const ActivationKind kind : {ActivationKind::relu, ActivationKind::tanh}) {
      for (const bool kept : {false, true}) {
        CaseBuilder c(fmt::format("conv2d+{}+max_pool {} of {}{}", name(kind), n,
                                  shape.attributes(), kept ? " kept" : ""),
                      dtype);
        const auto made = [&](const char* name, const Shape& like) {
          return kept ? c.out(name, like) : c.temp(name, like);
        };
        const Shape in{n, shape.in.numel()}, out{n, shape.out().numel()};
        const Shape small{n, pool.out().numel()};
        const Value x = c.in("x", in), w = c.param("w", shape.weight(), filter(shape));
        const Value b = n != 1 ? c.param("b", {shape.k}) : Value{};
        const Value z = made("z", out), a = made("a", out), y = c.out("y", small);
        c.add(Conv2d{x, w, b, z, shape});
        c.add(Activation{kind, z, a});
        c.add(MaxPool{a, y, pool});
        if (which != 10) {  // inference otherwise
          const Value da = made("da", out), dz = made("dz", out);
          c.add(MaxPoolGrad{a, y, c.in("dy", small), da, pool});
          c.add(ActivationGrad{kind, a, da, dz});
          // The lowest layer of a network does not need the input's gradient.
          const bool lowest = kind == ActivationKind::tanh && shape.in.c <= 4;
          if (!lowest) c.add(Conv2dGradX{dz, w, c.out("dx", in), shape});
          const Value db = b ? c.out("db", {shape.k}) : Value{};
          c.add(Conv2dGradW{x, dz, c.out("dw", shape.weight()), db, shape});
        }
        all.push_back(c.done());
      }
    }
  }
  return all;
}

namespace {

// Three convolutions in sequence; the second's sums are long, and the last has no pool. `kept`: the
// input of the second is read later.
Case chained_convs(DType dtype, bool kept) {
  CaseBuilder c(kept ? "chained conv2d, kept" : "chained conv2d", dtype);
  constexpr int64_t kItems = 7;
  Image in{2, 15, 20};
  Value x = c.in("x", {kItems, in.numel()});
  const auto add = [&](const char* name, int64_t k, Window window, bool pooled, bool last) {
    const Conv2dShape shape{in, k, window, 1};
    const auto temp = [&](const char* what, const Image& image) {
      return c.temp(fmt::format("{}{}", what, name), {kItems, image.numel()});
    };
    const Value w = c.param(fmt::format("w{}", name), shape.weight(), filter(shape));
    const Value z = temp("z", shape.out()), b = c.param(fmt::format("b{}", name), {k});
    c.add(Conv2d{x, w, b, z, shape});
    in = shape.out();
    const Value a = last              ? c.out("y", {kItems, in.numel()})
                    : kept && k == 18 ? c.out("a", {kItems, in.numel()})
                                      : temp("a", in);
    c.add(Activation{ActivationKind::tanh, z, a});
    x = a;
    if (!pooled) return;
    const PoolShape pool{in, {slide(2, 2), slide(2, 2)}};
    in = pool.out();
    x = temp("p", in);
    c.add(MaxPool{a, x, pool});
  };
  add("1", 18, {slide(3, 1, 1), slide(3, 1, 1)}, true, false);
  add("2", 5, {slide(3), slide(3, 1, 0)}, true, false);
  add("3", 4, {slide(1), slide(3)}, false, true);
  return c.done();
}

// A convolution with its activation and pool, or alone, whose sums are long enough for kernels with
// fewer multiplications.
Case long_conv(DType dtype, const ConvCase& conv, bool pooled) {
  const auto& [n, shape] = conv;
  CaseBuilder c((pooled ? "long sums, pooled: " : "long sums: ") + to_string(conv), dtype);
  const Value x = c.in("x", {n, shape.in.numel()});
  const Value w = c.param("w", shape.weight(), filter(shape)), b = c.param("b", {shape.k});
  const Shape out{n, shape.out().numel()};
  if (!pooled) {
    c.add(Conv2d{x, w, b, c.out("y", out), shape});
    return c.done();
  }
  const PoolShape pool{shape.out(), {slide(2, 2), slide(2, 2)}};
  const Value z = c.temp("z", out), a = c.temp("a", out);
  c.add(Conv2d{x, w, b, z, shape});
  c.add(Activation{ActivationKind::tanh, z, a});
  c.add(MaxPool{a, c.out("y", {n, pool.out().numel()}), pool});
  return c.done();
}

}  // namespace

std::vector<Case> long_conv_cases(DType dtype) {
  const ConvCase shapes[] = {
      {1, {{12, 12, 23}, 8, {slide(7), slide(7)}, 1}},
      {2, {{7, 9, 70}, 5, {slide(5), slide(7, 1, 3)}, 1}},
      {2, {{33, 5, 11}, 7, {slide(3, 1, 1), slide(3, 1, 1)}, 1}},
      {3, {{9, 6, 5}, 2, {slide(5), slide(5)}, 1}},
      {2, {{1, 17, 42}, 5, {slide(7), slide(7)}, 1}},
      {2, {{2, 9, 12}, 3, {slide(5), slide(5)}, 1}},
      {1, {{3, 8, 11}, 7, {slide(4, 1, 1), slide(7, 1, 2)}, 1}},
  };
  std::vector<Case> all;
  for (const ConvCase& conv : shapes) {
    for (const bool pooled : {false, true}) all.push_back(long_conv(dtype, conv, pooled));
  }
  for (const bool kept : {false, true}) all.push_back(chained_convs(dtype, kept));
  return all;
}

}  // namespace ridgeline::test
