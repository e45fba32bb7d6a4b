#include <fmt/format.h>

#include "tests/support/cases.h"

namespace ridgeline::test {
namespace {

// n, length, symbols, out, kernel: ones, primes, one position, tails of a vector.
constexpr int64_t kTexts[][5] = {
    {1, 1, 1, 1, 1},    {2, 7, 3, 1, 7},     {3, 12, 5, 7, 3},
    {5, 40, 70, 19, 7}, {2, 150, 70, 64, 7}, {33, 11, 2, 33, 4},
};

// About a quarter of the codes stand for columns of zeros.
int64_t codes(int64_t symbols) { return symbols + 1 + symbols / 4; }

void add_one_hot(Cases& all, DType dtype) {
  for (const auto& [n, length, symbols, out, kernel] : kTexts) {
    for (const bool bias : {true, false}) {
      const std::string text =
          fmt::format("{}x{} of {} -> {} k{}{}", n, length, symbols, out, kernel, bias ? "" : " -");
      const int64_t steps = length - kernel + 1;
      CaseBuilder c("one_hot_conv1d " + text, dtype);
      const Value token =
          c.make("token", DType::int32, {n, length}, Role::input, normal(1), codes(symbols));
      const Value w = c.param("w", {out, symbols, kernel});
      const Value b = bias ? c.param("b", {out}) : Value{};
      c.add(OneHotConv1d{token, w, b, c.out("y", {n, out * steps})});
      all.push_back(c.done());

      CaseBuilder g("one_hot_conv1d_grad_w " + text, dtype);
      const Value tokens =
          g.make("token", DType::int32, {n, length}, Role::input, normal(1), codes(symbols));
      const Value dy = g.in("dy", {n, out * steps});
      g.add(OneHotConv1dGradW{tokens, dy, g.out("dw", {out, symbols, kernel}),
                              bias ? g.out("db", {out}) : Value{}});
      all.push_back(g.done());
    }
  }
}

void add_argmax(Cases& all, DType dtype) {
  constexpr int64_t kShapes[][2] = {{1, 1}, {5, 4}, {1, 37}, {300, 10}, {7, 1000}};
  for (const auto& [n, classes] : kShapes) {
    for (const Fill fill : {normal(1), relu_output()}) {  // the second is full of ties
      CaseBuilder c(fmt::format("argmax {}x{}", n, classes), dtype);
      const Value x = c.in("x", {n, classes}, fill);
      c.add(Argmax{x, c.make("y", DType::int32, {n}, Role::output, normal(1))});
      all.push_back(c.done());
    }
  }
}

// The first block of a character network for inference.
void add_blocks(Cases& all, DType dtype) {
  constexpr int64_t kBlocks[][5] = {{1, 3, 2, 1, 1}, {3, 20, 5, 19, 3}, {7, 63, 70, 32, 7}};
  for (const auto& [n, length, symbols, out, kernel] : kBlocks) {
    const int64_t steps = length - kernel + 1;
    CaseBuilder c(fmt::format("text block {}x{} -> {} k{}", n, length, out, kernel), dtype);
    const Value token =
        c.make("token", DType::int32, {n, length}, Role::input, normal(1), codes(symbols));
    const Value w = c.param("w", {out, symbols, kernel});
    const Value b = n != 3 ? c.param("b", {out}) : Value{};
    const Shape shape{n, out * steps};
    LayerNorm norm;
    norm.x = c.temp("x", shape);
    c.add(OneHotConv1d{token, w, b, norm.x});
    norm.gamma = c.param("gamma", {out, steps}, uniform(0.5, 1.5));
    norm.beta = c.param("beta", {out, steps}, normal(0.3));
    norm.y = c.temp("normed", shape);
    norm.width = out * steps;
    c.add(norm);
    const Value positive = c.temp("positive", shape);
    c.add(Activation{ActivationKind::relu, norm.y, positive});
    const PoolShape pool{{out, 1, steps}, {Slide{}, Slide{3, 3, 0, 1}}};
    c.add(MaxPool{positive, c.out("y", {n, out * (steps / 3)}), pool});
    all.push_back(c.done());
  }
}

// Texts moved within their length; the space is filled with padding.
void add_moved(Cases& all, DType dtype) {
  for (const int64_t move : {1, 5, 40}) {
    const int64_t n = 9, length = 31;
    CaseBuilder c(fmt::format("augment codes by {}", move), dtype);
    const Value set = c.make("set", DType::uint8, {23, length}, Role::input, normal(1), 71);
    const Value order = c.make("order", DType::int32, {64}, Role::input, normal(1), 23);
    const Value first = c.make("first", DType::int64, {1}, Role::input, constant(3));
    const Value epoch = c.make("epoch", DType::int64, {1}, Role::input, constant(2));
    const Value y = c.make("y", DType::int32, {n, length}, Role::output, normal(1));
    c.add(GatherAugment{set, order, first, c.tick(), epoch, y, 1, 70, Image{1, 1, length},
                        Augmentation{7, move, false}});
    all.push_back(c.done());
  }
}

}  // namespace

std::vector<Case> text_op_cases(DType dtype) {
  Cases all;
  add_one_hot(all, dtype);
  add_argmax(all, dtype);
  add_moved(all, dtype);
  add_blocks(all, dtype);
  return all;
}

}  // namespace ridgeline::test
