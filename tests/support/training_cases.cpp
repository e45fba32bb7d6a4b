#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "tests/support/cases.h"

namespace ridgeline::test {
namespace {

struct Net {
  std::string name;
  int64_t batch;
  std::vector<int64_t> widths;  // input, hidden..., classes
  ActivationKind activation = ActivationKind::relu;
  std::string update = "sgd";
  double dropout = 0;
  bool mse = false, clip = false, bias = true;
  int64_t steps = 1;
};

// One training step in the order that lowering gives: gather, forward, loss, then from the top
// layer down its gradients and updates (after all gradients when clipping), tick.
class TrainingStep {
 public:
  TrainingStep(const Net& net, DType dtype) : net_(net), c_("train " + net.name, dtype) {
    c_.repeats(net.steps + 1, net.steps > 1 ? 0 : 1);
  }

  Case make() {
    Value x = gather();
    for (size_t i = 0; i + 1 < net_.widths.size(); ++i) x = forward(i, x);
    Value dy = loss(x);
    for (size_t i = layers_.size(); i-- > 0;) dy = backward(i, dy);
    if (net_.clip) clip();
    c_.add(Tick{c_.tick()});
    return c_.done(net_.steps);
  }

 private:
  struct Layer {
    Value x, w, b;
    Value z, a, y;  // the linear's output, the activation's, what leaves (after dropout)
    DropoutMask mask{.p = 0};
  };

  Value gather() {
    const int64_t n = net_.batch, in = net_.widths.front(), classes = net_.widths.back();
    const auto make = [&](const char* name, DType dtype, const Shape& shape, int64_t below) {
      return c_.make(name, dtype, shape, Role::input, normal(1), below);
    };
    const Value images = make("images", DType::uint8, {29, in}, 256);
    const Value labels = make("labels", DType::int32, {29}, classes);
    const Value order = make("order", DType::int32, {n * (net_.steps + 2)}, 29);
    const Value first = c_.make("first", DType::int64, {1}, Role::input, constant(double(n)));
    const Value x = c_.temp("x0", {n, in});
    label_ = c_.make("label", DType::int32, {n}, Role::temp, normal(1), classes);
    c_.add(Gather{images, order, first, c_.tick(), x, 1.0 / 128, -1.0});
    c_.add(Gather{labels, order, first, c_.tick(), label_});
    return x;
  }

  Value forward(size_t i, const Value& x) {
    const int64_t in = net_.widths[i], out = net_.widths[i + 1];
    const Shape shape{net_.batch, out};
    Layer layer;
    layer.x = x;
    layer.w = c_.param(fmt::format("{}.weight", i), {out, in}, normal(1 / std::sqrt(double(in))));
    if (net_.bias) layer.b = c_.param(fmt::format("{}.bias", i), {out}, normal(0.1));
    layer.z = layer.y = c_.temp(fmt::format("z{}", i), shape);
    c_.add(Linear{x, layer.w, layer.b, layer.z});
    if (i + 2 < net_.widths.size()) {
      layer.a = layer.y = c_.temp(fmt::format("a{}", i), shape);
      c_.add(Activation{net_.activation, layer.z, layer.a});
      if (net_.dropout > 0) {
        layer.y = c_.temp(fmt::format("y{}", i), shape);
        layer.mask = {.p = net_.dropout, .seed = 99, .layer = uint32_t(i), .row_offset = 0};
        c_.add(Dropout{layer.a, c_.step(), c_.tick(), layer.y, layer.mask});
      }
    }
    layers_.push_back(layer);
    return layer.y;
  }

  Value loss(const Value& x) {
    const Value dx = c_.temp("dloss", x.shape);
    const double scale = 1.0 / double(net_.mse ? x.shape.numel() : net_.batch);
    if (net_.mse) {
      c_.add(Mse{x, label_, c_.tick(), c_.loss(), c_.correct(), scale});
      c_.add(MseGrad{x, label_, dx, scale});
    } else {
      c_.add(SoftmaxXent{x, label_, c_.tick(), c_.loss(), c_.correct(), scale});
      c_.add(SoftmaxXentGrad{x, label_, dx, scale});
    }
    return dx;
  }

  Value backward(size_t i, Value dy) {
    const Layer& layer = layers_[i];
    if (layer.mask.p > 0) {
      const Value da = c_.temp(fmt::format("da{}", i), layer.y.shape);
      c_.add(Dropout{dy, c_.step(), c_.tick(), da, layer.mask});
      dy = da;
    }
    if (layer.a) {
      const Value dz = c_.temp(fmt::format("dz{}", i), layer.z.shape);
      const Value& saved = saves_output(net_.activation) ? layer.a : layer.z;
      c_.add(ActivationGrad{net_.activation, saved, dy, dz});
      dy = dz;
    }
    Value dx;
    if (i > 0) {
      dx = c_.temp(fmt::format("dx{}", i), layer.x.shape);
      c_.add(LinearGradX{dy, layer.w, dx});
    }
    const Value dw = c_.temp(fmt::format("dw{}", i), layer.w.shape);
    const Value db = net_.bias ? c_.temp(fmt::format("db{}", i), layer.b.shape) : Value{};
    c_.add(LinearGradW{layer.x, dy, dw, db});
    update(layer.w, dw);
    if (net_.bias) update(layer.b, db);
    return dx;
  }

  void update(const Value& w, const Value& dw) {
    if (net_.clip) {
      later_.emplace_back(w, dw);
    } else {
      c_.add_update(net_.update, w, dw);
    }
  }

  void clip() {
    Values grads;
    for (const auto& [w, dw] : later_) grads.push_back(dw);
    const Value norm = c_.make("norm", DType::fp64, {1}, Role::output, normal(1));
    const Value factor = c_.make("factor", DType::fp64, {1}, Role::temp, normal(1));
    const Value clipped = c_.make("clipped", DType::int64, {1}, Role::state, constant(0));
    c_.add(GlobalNorm{grads, norm, factor, clipped, 0.1});
    for (const auto& [w, dw] : later_) c_.add_update(net_.update, w, dw, factor);
  }

  const Net& net_;
  CaseBuilder c_;
  Value label_;
  std::vector<Layer> layers_;
  std::vector<std::pair<Value, Value>> later_;  // weights and gradients, updated after clipping
};

}  // namespace

std::vector<Case> training_cases(DType dtype) {
  const Net nets[] = {
      {.name = "softmax regression", .batch = 8, .widths = {20, 4}},
      {.name = "one of everything", .batch = 1, .widths = {3, 2, 2}},
      {.name = "relu", .batch = 32, .widths = {50, 32, 10}},
      {.name = "deep, primes", .batch = 7, .widths = {41, 37, 29, 23, 5}},
      {.name = "deep, even", .batch = 32, .widths = {64, 32, 32, 32, 10}, .steps = 3},
      {.name = "sigmoid momentum",
       .batch = 16,
       .widths = {30, 17, 10},
       .activation = ActivationKind::sigmoid,
       .update = "momentum",
       .steps = 2},
      {.name = "tanh nesterov mse",
       .batch = 9,
       .widths = {20, 16, 3},
       .activation = ActivationKind::tanh,
       .update = "nesterov",
       .mse = true},
      {.name = "gelu adamw",
       .batch = 16,
       .widths = {33, 24, 10},
       .activation = ActivationKind::gelu,
       .update = "adamw"},
      {.name = "dropout adam",
       .batch = 16,
       .widths = {20, 33, 10},
       .update = "adam",
       .dropout = 0.5},
      {.name = "clipped", .batch = 12, .widths = {20, 16, 10}, .clip = true},
      {.name = "no bias", .batch = 12, .widths = {20, 16, 10}, .bias = false},
  };
  std::vector<Case> all;
  for (const Net& net : nets) all.push_back(TrainingStep(net, dtype).make());
  return all;
}

std::vector<Case> tall_training_cases(DType dtype) {
  const Net nets[] = {
      {.name = "tall sigmoid",
       .batch = 150,
       .widths = {100, 132, 10},
       .activation = ActivationKind::sigmoid,
       .steps = 2},
      {.name = "tall tanh momentum, primes",
       .batch = 131,
       .widths = {67, 79, 71, 13},
       .activation = ActivationKind::tanh,
       .update = "momentum"},
  };
  std::vector<Case> all;
  for (const Net& net : nets) all.push_back(TrainingStep(net, dtype).make());
  return all;
}

}  // namespace ridgeline::test
