#pragma once

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <vector>

#include "tests/support/cases.h"

namespace ridgeline::test {

// The blocks of a character-level network for inference, with few channels and positions.

inline PoolShape pool_of_three(int64_t channels, int64_t length) {
  return {{channels, 1, length}, {Slide{}, Slide{3, 3, 0, 1}}};
}

// Appends a normalisation over whole samples, relu and a pool of three to x.
inline void add_norm_pool(CaseBuilder& c, const Value& x, int64_t channels, int64_t length) {
  const int64_t n = x.shape[0];
  LayerNorm norm;
  norm.x = x;
  norm.gamma = c.param("gamma", {channels, length}, uniform(0.5, 1.5));
  norm.beta = c.param("beta", {channels, length}, normal(0.3));
  norm.y = c.temp("normed", x.shape);
  norm.width = channels * length;
  c.add(norm);
  const Value positive = c.temp("positive", x.shape);
  c.add(Activation{ActivationKind::relu, norm.y, positive});
  c.add(
      MaxPool{positive, c.out("y", {n, channels * (length / 3)}), pool_of_three(channels, length)});
}

// More windows than a block takes at once (48), and fewer; a text of one window.
inline void add_first_blocks(std::vector<Case>& all, DType dtype) {
  constexpr int64_t kTexts[][4] = {{7, 177, 70, 7}, {2, 9, 5, 7}, {5, 20, 11, 3}};
  for (const auto& [n, length, symbols, kernel] : kTexts) {
    for (const bool bias : {true, false}) {
      const int64_t out = 128, steps = length - kernel + 1;
      CaseBuilder c(fmt::format("first block {}x{} k{}{}", n, length, kernel, bias ? "" : " -"),
                    dtype);
      const Value token =
          c.make("token", DType::int32, {n, length}, Role::input, normal(1), symbols + 1);
      const Value w = c.param("w", {out, symbols, kernel}, normal(0.5));
      const Value b = bias ? c.param("b", {out}) : Value{};
      const Value x = c.temp("x", {n, out * steps});
      c.add(OneHotConv1d{token, w, b, x});
      add_norm_pool(c, x, out, steps);
      all.push_back(c.done());
    }
  }
}

enum class Tail { none, relu, relu_pool, pool };

// Lengths whose rows keep their pitch; more rows than a tile has.
inline void add_convolutions(std::vector<Case>& all, DType dtype) {
  struct Sizes {
    int64_t n, channels, length, kernel;
    Tail tail;
  };
  const int64_t channels = 64;
  for (const auto& [n, c_in, length, kernel, tail] :
       {Sizes{9, channels, 48, 7, Tail::relu_pool}, Sizes{1, channels, 48, 7, Tail::pool},
        Sizes{7, 2 * channels, 20, 3, Tail::relu}, Sizes{2, channels, 18, 3, Tail::none},
        Sizes{3, channels, 30, 7, Tail::relu}, Sizes{5, channels, 44, 3, Tail::relu_pool}}) {
    Conv2dShape shape;
    shape.in = {c_in, 1, length};
    shape.k = 256;
    shape.window.w.kernel = kernel;
    const int64_t left = shape.out().w, numel = shape.out().numel();
    CaseBuilder c(fmt::format("conv1d {} of {} k{} {}", n, to_string(shape.in), kernel, int(tail)),
                  dtype);
    const Value x = c.in("x", {n, c_in * length});
    const Value w = c.param("w", {256, c_in, kernel}, normal(1 / std::sqrt(double(c_in * kernel))));
    const Value b = tail == Tail::pool ? Value{} : c.param("b", {256});
    const bool relu = tail == Tail::relu || tail == Tail::relu_pool;
    const bool pools = tail == Tail::pool || tail == Tail::relu_pool;
    Value y = relu || pools ? c.temp("z", {n, numel}) : c.out("z", {n, numel});
    c.add(Conv2d{x, w, b, y, shape});
    if (relu) {
      const Value positive = pools ? c.temp("a", {n, numel}) : c.out("a", {n, numel});
      c.add(Activation{ActivationKind::relu, y, positive});
      y = positive;
    }
    if (pools) {
      c.add(MaxPool{y, c.out("p", {n, 256 * (left / 3)}), pool_of_three(256, left)});
    }
    all.push_back(c.done());
  }
}

// Convolutions of 3 taps in sequence that end in normalisation and pool: a pair of samples and a
// single one, an even and an odd number of windows, positions left over. Through several layers of
// dense weights no useful bound remains; with sparse ones each sum has about six terms.
inline void add_chains(std::vector<Case>& all, DType dtype) {
  struct Sizes {
    int64_t n, length, layers;
    bool bias;
  };
  constexpr int64_t kChannels = 256;
  for (const auto& [n, length, layers, bias] : {Sizes{1, 110, 4, true}, Sizes{3, 99, 2, false},
                                                Sizes{2, 112, 1, true}, Sizes{5, 97, 3, true}}) {
    CaseBuilder c(fmt::format("conv1d chain {}x{} of {}{}", n, length, layers, bias ? "" : " -"),
                  dtype);
    Value x = c.in("x", {n, kChannels * length});
    int64_t left = length;
    for (int64_t layer = 0; layer < layers; ++layer) {
      Conv2dShape shape;
      shape.in = {kChannels, 1, left};
      shape.k = kChannels;
      shape.window.w.kernel = 3;
      left = shape.out().w;
      const auto name = [&](const char* of) { return fmt::format("{}{}", of, layer); };
      const Fill fill = layers < 2 ? normal(std::sqrt(2.0 / 768)) : sparse(0.6, 128);
      const Value w = c.param(name("w"), {kChannels, kChannels, 3}, fill);
      const Value z = c.temp(name("z"), {n, kChannels * left});
      c.add(Conv2d{x, w, bias ? c.param(name("b"), {kChannels}, normal(0.5)) : Value{}, z, shape});
      x = z;
      if (layer + 1 == layers) break;
      x = c.temp(name("a"), z.shape);
      c.add(Activation{ActivationKind::relu, z, x});
    }
    add_norm_pool(c, x, kChannels, left);
    all.push_back(c.done());
  }
}

inline void add_gradients(std::vector<Case>& all, DType dtype) {
  struct Sizes {
    int64_t n, channels, length, out, kernel;
  };
  for (const auto& [n, channels, length, out, kernel] :
       {Sizes{5, 64, 23, 128, 7}, Sizes{1, 128, 3, 64, 3}, Sizes{9, 64, 40, 64, 3}}) {
    Conv2dShape shape;
    shape.in = {channels, 1, length};
    shape.k = out;
    shape.window.w.kernel = kernel;
    const Shape weight{out, channels, kernel};
    for (const bool mixed : {false, true}) {  // gradients in fp32 beside halves
      CaseBuilder c(
          fmt::format("conv1d grads {} of {} k{} {}", n, to_string(shape.in), kernel, mixed),
          dtype);
      const Value x = c.in("x", {n, channels * length}), w = c.param("w", weight, normal(0.1));
      const Value dy = c.in("dy", {n, shape.out().numel()});
      const auto grad = [&](const char* name, const Shape& of) {
        return mixed ? c.accumulator(name, of, Role::output) : c.out(name, of);
      };
      c.add(Conv2dGradX{dy, w, c.out("dx", x.shape), shape});
      c.add(
          Conv2dGradW{x, dy, grad("dw", weight), kernel == 7 ? grad("db", {out}) : Value{}, shape});
      all.push_back(c.done());
    }
  }
}

// Gradients of the first convolution: whole tiles of positions and a partial one, few symbols, more
// shares than there are tiles.
inline void add_one_hot_gradients(std::vector<Case>& all, DType dtype) {
  struct Sizes {
    int64_t n, length, symbols, out, kernel;
  };
  for (const auto& [n, length, symbols, out, kernel] :
       {Sizes{5, 142, 70, 64, 7}, Sizes{1, 14, 70, 128, 7}, Sizes{3, 66, 71, 64, 3},
        Sizes{40, 71, 1, 64, 8}, Sizes{2, 8, 5, 64, 1}}) {
    for (const bool mixed : {false, true}) {
      CaseBuilder c(fmt::format("one-hot grad {}x{} of {} -> {} k{} {}", n, length, symbols, out,
                                kernel, mixed),
                    dtype);
      const Value token =
          c.make("token", DType::int32, {n, length}, Role::input, normal(1), symbols + 2);
      const Value dy = c.in("dy", {n, out * (length - kernel + 1)});
      const auto grad = [&](const char* name, const Shape& of) {
        return mixed ? c.accumulator(name, of, Role::output) : c.out(name, of);
      };
      c.add(OneHotConv1dGradW{token, dy, grad("dw", {out, symbols, kernel}),
                              n == 3 ? Value{} : grad("db", {out})});
      all.push_back(c.done());
    }
  }
}

// relu, a pool of three and their gradients; whole runs of 16 bytes and a rest.
inline void add_pools(std::vector<Case>& all, DType dtype) {
  for (const auto& [n, channels, length] :
       {std::array<int64_t, 3>{1, 1, 3}, {5, 7, 33}, {2, 16, 48}}) {
    CaseBuilder c(fmt::format("relu and pool {}x{}x{}", n, channels, length), dtype);
    const Shape shape{n, channels * length}, pooled{n, channels * length / 3};
    const Value z = c.in("z", shape), a = c.out("a", shape), y = c.out("y", pooled);
    const PoolShape pool = pool_of_three(channels, length);
    c.add(Activation{ActivationKind::relu, z, a});
    c.add(MaxPool{a, y, pool});
    const Value dy = c.in("dy", pooled), da = c.temp("da", shape), dz = c.out("dz", shape);
    c.add(MaxPoolGrad{a, y, dy, da, pool});
    c.add(ActivationGrad{ActivationKind::relu, a, da, dz});
    all.push_back(c.done());
  }
}

// A layer normalisation and its gradient; with weights of their own, mixed or like x, or without.
inline Case norm_and_gradient(int64_t rows, int64_t width, bool weights, bool mixed, DType dtype) {
  CaseBuilder c(fmt::format("layer_norm {}x{} {}{}", rows, width, weights, mixed), dtype);
  const auto weight = [&](const char* name, Fill fill) {
    if (!weights) return Value{};
    return mixed ? c.accumulator(name, {width}, Role::param, fill) : c.param(name, {width}, fill);
  };
  const auto grad_of = [&](const char* name) {
    if (!weights) return Value{};
    return mixed ? c.accumulator(name, {width}, Role::output) : c.out(name, {width});
  };
  LayerNorm norm;
  norm.x = c.in("x", {rows, width});
  norm.gamma = weight("gamma", uniform(0.5, 1.5));
  norm.beta = weight("beta", normal(1));
  norm.y = c.out("y", {rows, width});
  norm.mean = c.accumulator("mean", {rows}, Role::output);
  norm.rstd = c.accumulator("rstd", {rows}, Role::output);
  norm.width = width;
  c.add(norm);
  LayerNormGrad grad;
  grad.x = norm.x;
  grad.gamma = norm.gamma;
  grad.mean = norm.mean;
  grad.rstd = norm.rstd;
  grad.dy = c.in("dy", {rows, width});
  grad.dx = c.out("dx", {rows, width});
  grad.dgamma = grad_of("dgamma");
  grad.dbeta = grad_of("dbeta");
  grad.width = width;
  c.add(grad);
  return c.done();
}

inline std::vector<Case> signal_cases(DType dtype) {
  std::vector<Case> all;
  add_one_hot_gradients(all, dtype);
  add_pools(all, dtype);
  add_first_blocks(all, dtype);
  add_convolutions(all, dtype);
  if (size_of(dtype) == 2) add_chains(all, dtype);
  add_gradients(all, dtype);
  for (const auto& [n, length] : {std::pair<int64_t, int64_t>{5, 33}, {1, 102}, {300, 3}}) {
    CaseBuilder c(fmt::format("last block {}x{}", n, length), dtype);
    add_norm_pool(c, c.in("x", {n, 256 * length}), 256, length);
    all.push_back(c.done());
  }
  return all;
}

}  // namespace ridgeline::test
