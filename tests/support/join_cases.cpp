#include <fmt/format.h>

#include "tests/support/cases.h"

namespace ridgeline::test {
namespace {

constexpr int64_t kJoinShapes[][2] = {{1, 1}, {3, 37}, {8, 64}, {1, 1021}, {64, 133}};

void add_sums(Cases& all, DType dtype) {
  for (const auto& [n, columns] : kJoinShapes) {
    for (const int count : {1, 2, 3, 5, int(kMostJoined)}) {
      if (count > 5 && columns > 64) continue;
      CaseBuilder c(fmt::format("add {} of [{}, {}]", count, n, columns), dtype);
      Values xs;
      for (int i = 0; i < count; ++i) xs.push_back(c.in(fmt::format("x{}", i), {n, columns}));
      if (count > 1) c.add(Add{xs, c.out("sum", {n, columns})});
      c.add(Add{xs, c.out("mean", {n, columns}), 1.0 / count});
      all.push_back(c.done());
    }
    CaseBuilder twice(fmt::format("add [{}, {}] to itself", n, columns), dtype);
    const Value x = twice.in("x", {n, columns});
    twice.add(Add{{x, x}, twice.out("y", {n, columns})});
    twice.add(Multiply{x, x, twice.out("square", {n, columns})});
    all.push_back(twice.done());

    CaseBuilder c(fmt::format("multiply [{}, {}]", n, columns), dtype);
    const Value a = c.in("a", {n, columns}), b = c.in("b", {n, columns});
    c.add(Multiply{a, b, c.out("y", {n, columns})});
    all.push_back(c.done());
  }
}

void add_concats(Cases& all, DType dtype) {
  struct Shape {
    int64_t n, outer;  // rows of a sample
    std::vector<int64_t> widths;
  };
  const std::vector<int64_t> many(kMostJoined, 3);
  for (const Shape& s : {Shape{1, 1, {1}},
                         {3, 1, {1, 5}},
                         {2, 7, {3, 16, 1}},
                         {5, 1, {196, 98}},
                         {1, 40, {64, 33, 2, 9}},
                         {2, 3, many},
                         {33, 2, {17, 17}}}) {
    CaseBuilder c(fmt::format("concat {} x {} of {}", s.n, s.outer, s.widths.size()), dtype);
    Concat op;
    int64_t whole = 0;
    for (size_t i = 0; i < s.widths.size(); ++i) {
      op.xs.push_back(c.in(fmt::format("x{}", i), {s.n, s.outer * s.widths[i]}));
      whole += s.widths[i];
    }
    op.y = c.out("y", {s.n, s.outer * whole});
    op.rows = s.n * s.outer;
    c.add(op);
    all.push_back(c.done());
  }
  CaseBuilder twice("concat with itself", dtype);
  const Value x = twice.in("x", {4, 6});
  twice.add(Concat{{x, x}, twice.out("y", {4, 12}), 4});
  all.push_back(twice.done());
}

using Extents = std::array<int64_t, 3>;

void add_pads(Cases& all, DType dtype) {
  struct Shape {
    int64_t n;
    Extents in, out, before;
    double value;
  };
  // Paddings, slices along each axis, both at once, everything cut off on one side, nothing of x
  // left.
  for (const Shape& s : {Shape{1, {1, 1, 1}, {1, 1, 3}, {0, 0, 1}, 0},
                         {3, {2, 5, 7}, {2, 9, 10}, {0, 2, 1}, 0},
                         {2, {3, 8, 8}, {4, 10, 10}, {0, 1, 1}, -1.5},
                         {5, {8, 6, 6}, {3, 6, 6}, {-2, 0, 0}, 0},
                         {2, {1, 17, 33}, {1, 9, 12}, {0, -8, -21}, 0},
                         {4, {2, 6, 5}, {5, 3, 9}, {1, -2, 3}, 2},
                         {2, {1, 4, 4}, {1, 2, 3}, {0, 0, -6}, 0.25},
                         {33, {1, 1, 100}, {1, 1, 37}, {0, 0, -50}, 0},
                         {2, {1, 40, 64}, {1, 40, 97}, {0, 0, 33}, 0}}) {
    CaseBuilder c(fmt::format("pad {} x {}x{}x{} to {}x{}x{}", s.n, s.in[0], s.in[1], s.in[2],
                              s.out[0], s.out[1], s.out[2]),
                  dtype);
    const auto shape = [&](const Extents& e) { return ridgeline::Shape{s.n, e[0] * e[1] * e[2]}; };
    const Value x = c.in("x", shape(s.in)), dy = c.in("dy", shape(s.out));
    c.add(Pad{x, c.out("y", shape(s.out)), s.in, s.out, s.before, s.value});
    const Extents back{-s.before[0], -s.before[1], -s.before[2]};
    c.add(Pad{dy, c.out("dx", shape(s.in)), s.out, s.in, back});
    all.push_back(c.done());
  }
}

void add_transposes(Cases& all, DType dtype) {
  struct Order {
    Shape in;
    std::array<int, Transpose::kAxes> axes;
  };
  for (const int64_t n : {1, 5}) {
    for (const Order& o : {Order{{1, 1}, {1, 0}},
                           {{7, 5}, {1, 0}},
                           {{32, 64}, {1, 0}},
                           {{3, 33, 17}, {2, 0, 1}},
                           {{4, 9, 16}, {0, 2, 1}},
                           {{2, 3, 4, 5}, {3, 1, 0, 2}},
                           {{2, 3, 2, 3, 4}, {4, 2, 3, 0, 1}},
                           {{6}, {0}},
                           {{3, 2, 8}, {1, 0, 2}}}) {
      CaseBuilder c(fmt::format("transpose {} x {}", n, to_string(o.in)), dtype);
      const Shape flat{n, o.in.numel()};
      const Value x = c.in("x", flat);
      c.add(Transpose{x, c.out("y", flat), o.in, o.axes});
      all.push_back(c.done());
    }
  }
}

void add_upsamples(Cases& all, DType dtype) {
  for (const UpsampleMode mode : {UpsampleMode::nearest, UpsampleMode::bilinear}) {
    for (const UpsampleShape& s : {UpsampleShape{{1, 1, 1}, 1, 1},
                                   {{1, 1, 1}, 3, 2},
                                   {{2, 3, 5}, 2, 2},
                                   {{3, 4, 4}, 1, 3},
                                   {{1, 1, 17}, 1, 4},
                                   {{4, 7, 9}, 3, 2}}) {
      for (const int64_t n : {1, 3}) {
        UpsampleShape shape = s;
        shape.mode = mode;
        CaseBuilder c(fmt::format("upsample {} x {}", n, to_string(shape)), dtype);
        const Shape small{n, shape.in.numel()}, large{n, shape.out().numel()};
        const Value x = c.in("x", small), dy = c.in("dy", large);
        c.add(Upsample{x, c.out("y", large), shape});
        c.add(UpsampleGrad{dy, c.out("dx", small), shape});
        all.push_back(c.done());
      }
    }
  }
}

}  // namespace

std::vector<Case> join_cases(DType dtype) {
  Cases all;
  add_sums(all, dtype);
  add_concats(all, dtype);
  return all;
}

std::vector<Case> rearrange_cases(DType dtype) {
  Cases all;
  add_pads(all, dtype);
  add_transposes(all, dtype);
  add_upsamples(all, dtype);
  return all;
}

}  // namespace ridgeline::test
