#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "tests/support/training_net.h"

namespace ridgeline::test {
namespace {

// One training step in the order of lowering: gather, forward, loss, then from the top layer down
// its gradients and updates (with Adam, and with clipping, after all gradients), tick.
class TrainingStep {
 public:
  TrainingStep(const TrainingNet& net, DType dtype)
      : net_(net),
        c_("train " + net.name + (net.masters ? ", masters" : "") +
               (net.loss_scale > 0 ? ", scaled" : ""),
           dtype) {
    c_.repeats(net.steps + 1, net.steps > 1 ? 0 : 1);
  }

  Case make() {
    Value x = gather();
    for (size_t i = 0; i + 1 < net_.widths.size(); ++i) x = forward(i, x);
    Value dy = loss(x);
    for (size_t i = layers_.size(); i-- > 0;) dy = backward(i, dy);
    for (const AllReduceWait& wait : waits_) c_.add(wait);
    if (together()) {
      clip();
    } else {
      for (const Update& u : later_) c_.add_update(net_.update, u.w, u.dw, {}, u.copy);
    }
    c_.add(Tick{c_.tick()});
    return c_.done(net_.steps);
  }

 private:
  bool together() const { return net_.clip || net_.loss_scale > 0; }

  struct Layer {
    Value x, w, b;
    Value kept;     // of w: the weight that is updated
    Value z, a, y;  // the linear's output, the activation's, what leaves (after dropout)
    Value normed, gamma, beta, mean, rstd;  // of a normalisation behind the linear layer
    DropoutMask mask{.p = 0};
  };

  Value gather() {
    const int64_t n = net_.batch, in = net_.widths.front(), classes = net_.widths.back();
    const auto make = [&](const char* name, DType dtype, const Shape& shape, int64_t below) {
      return c_.make(name, dtype, shape, Role::input, normal(1), below);
    };
    const bool values = net_.target_columns > 0;
    const Value images =
        make("images", net_.floats ? DType::fp32 : DType::uint8, {net_.set_samples, in}, 256);
    const Value labels =
        values ? make("targets", DType::fp32, {net_.set_samples, net_.target_columns}, 0)
               : make("labels", DType::int32, {net_.set_samples}, classes);
    const Value order = make("order", DType::int32, {n * (net_.steps + 2)}, net_.set_samples);
    const Value first = c_.make("first", DType::int64, {1}, Role::input, constant(double(n)));
    const Value x = c_.temp("x0", {n, in});
    label_ = values ? c_.temp("target", {n, net_.target_columns})
                    : c_.make("label", DType::int32, {n}, Role::temp, normal(1), classes);
    Gather inputs{images, order, first, c_.tick(), x};
    if (!net_.floats) inputs.scale = 1.0 / 128, inputs.shift = net_.shift;
    c_.add(inputs);
    c_.add(Gather{labels, order, first, c_.tick(), label_});
    return x;
  }

  Value forward(size_t i, const Value& x) {
    const int64_t in = net_.widths[i], out = net_.widths[i + 1];
    const Shape shape{net_.batch, out};
    Layer layer;
    layer.x = x;
    const auto param = [&](const char* name, const Shape& own, Fill fill) {
      const std::string full = fmt::format("{}.{}", i, name);
      return net_.masters ? c_.accumulator(full, own, Role::param, fill)
                          : c_.param(full, own, fill);
    };
    layer.kept = layer.w = param("weight", {out, in}, normal(1 / std::sqrt(double(in))));
    if (net_.masters) layer.w = c_.copy(layer.kept);
    if (net_.bias) layer.b = param("bias", {out}, normal(0.1));
    layer.z = layer.y = c_.temp(fmt::format("z{}", i), shape);
    c_.add(Linear{x, layer.w, layer.b, layer.z});
    if (i + 2 < net_.widths.size()) {
      if (!net_.norm.empty()) normalise(i, layer, param);
      layer.a = layer.y = c_.temp(fmt::format("a{}", i), shape);
      c_.add(Activation{net_.activation, layer.normed ? layer.normed : layer.z, layer.a});
      if (net_.dropout > 0) {
        layer.y = c_.temp(fmt::format("y{}", i), shape);
        layer.mask = {.p = net_.dropout, .seed = 99, .layer = uint32_t(i), .sample_offset = 0};
        c_.add(Dropout{layer.a, c_.step(), c_.tick(), layer.y, layer.mask});
      }
    }
    layers_.push_back(layer);
    return layer.y;
  }

  template <typename Param>
  void normalise(size_t i, Layer& layer, const Param& param) {
    const int64_t out = layer.z.shape[1];
    const bool batch = net_.norm == "batchnorm", rms = net_.norm == "rmsnorm";
    const int64_t count = batch ? out : net_.batch;
    layer.normed = c_.temp(fmt::format("normed{}", i), layer.z.shape);
    layer.gamma = param("gamma", {out}, uniform(0.5, 1.5));
    if (!rms) layer.beta = param("beta", {out}, normal(0.1));
    if (!rms) layer.mean = c_.accumulator(fmt::format("mean{}", i), {count}, Role::temp);
    layer.rstd = c_.accumulator(fmt::format("rstd{}", i), {count}, Role::temp);
    if (batch) {
      const auto running = [&](const char* name, Fill fill) {
        return c_.make(fmt::format("{}.{}", i, name), DType::fp32, {out}, Role::state, fill);
      };
      BatchNorm op;
      op.x = layer.z, op.gamma = layer.gamma, op.beta = layer.beta;
      op.running_mean = running("running_mean", normal(1));
      op.running_var = running("running_var", uniform(0.5, 2));
      op.batches =
          c_.make(fmt::format("{}.batches", i), DType::int64, {1}, Role::state, constant(0));
      op.y = layer.normed, op.mean = layer.mean, op.rstd = layer.rstd;
      op.in = {out, 1, 1};
      c_.add(op);
    } else if (rms) {
      GroupNorm op;
      op.x = layer.z, op.gamma = layer.gamma, op.y = layer.normed, op.rstd = layer.rstd;
      op.width = out, op.centred = false;
      c_.add(op);
    } else {
      LayerNorm op;
      op.x = layer.z, op.gamma = layer.gamma, op.beta = layer.beta, op.y = layer.normed;
      op.mean = layer.mean, op.rstd = layer.rstd, op.width = out;
      c_.add(op);
    }
  }

  Value loss(const Value& x) {
    const Value dx = c_.temp("dloss", x.shape);
    const bool of_outputs = net_.mse || net_.loss_fn;
    const double scale = 1.0 / double(of_outputs ? x.shape.numel() : net_.batch);
    const Value correct = net_.target_columns == 0 ? c_.correct() : Value{};
    if (net_.loss_fn) {
      const Value weights = c_.make("weights", DType::fp64, {2}, Role::input, constant(0.3));
      c_.add(ElementwiseLoss{*net_.loss_fn, x, label_, weights, c_.tick(), c_.loss(), correct,
                             scale, 0.7});
      c_.add(ElementwiseLossGrad{*net_.loss_fn, x, label_, weights, dx, scale, 0.7, loss_scale()});
    } else if (net_.mse) {
      c_.add(Mse{x, label_, c_.tick(), c_.loss(), correct, scale});
      c_.add(MseGrad{x, label_, dx, scale, loss_scale()});
    } else {
      c_.add(SoftmaxXent{x, label_, c_.tick(), c_.loss(), c_.correct(), scale});
      c_.add(SoftmaxXentGrad{x, label_, dx, scale, loss_scale()});
    }
    return dx;
  }

  Value loss_scale() { return net_.loss_scale > 0 ? c_.loss_scale(net_.loss_scale) : Value{}; }

  Value backward(size_t i, Value dy) {
    const Layer& layer = layers_[i];
    if (layer.mask.p > 0) {
      const Value da = c_.temp(fmt::format("da{}", i), layer.y.shape);
      c_.add(Dropout{dy, c_.step(), c_.tick(), da, layer.mask});
      dy = da;
    }
    if (layer.a) {
      const Value dz = c_.temp(fmt::format("dz{}", i), layer.z.shape);
      const Value& input = layer.normed ? layer.normed : layer.z;
      const Value& saved = saves_output(net_.activation) ? layer.a : input;
      c_.add(ActivationGrad{net_.activation, saved, dy, dz});
      dy = dz;
    }
    const auto gradient = [&](const char* name, const Shape& shape) {
      const std::string full = fmt::format("{}{}", name, i);
      return net_.masters ? c_.accumulator(full, shape, Role::temp) : c_.temp(full, shape);
    };
    if (layer.normed) {
      const Value dz = c_.temp(fmt::format("dnormed{}", i), layer.z.shape);
      const Value dgamma = gradient("dgamma", layer.gamma.shape);
      const Value dbeta = layer.beta ? gradient("dbeta", layer.beta.shape) : Value{};
      const auto add = [&](auto op) {
        op.x = layer.z, op.gamma = layer.gamma, op.mean = layer.mean, op.rstd = layer.rstd;
        op.dy = dy, op.dx = dz, op.dgamma = dgamma, op.dbeta = dbeta;
        if constexpr (requires { op.in; }) op.in = {layer.z.shape[1], 1, 1};
        if constexpr (requires { op.width; }) op.width = layer.z.shape[1];
        if constexpr (requires { op.centred; }) op.centred = false;
        c_.add(op);
      };
      if (net_.norm == "batchnorm") {
        add(BatchNormGrad{});
      } else if (net_.norm == "rmsnorm") {
        add(GroupNormGrad{});
      } else {
        add(LayerNormGrad{});
      }
      dy = dz;
      update({layer.gamma, dgamma, {}});
      if (dbeta) update({layer.beta, dbeta, {}});
    }
    Value dx;
    if (i > 0) {
      dx = c_.temp(fmt::format("dx{}", i), layer.x.shape);
      c_.add(LinearGradX{dy, layer.w, dx});
    }
    const Value dw = gradient("dw", layer.w.shape);
    const Value db = net_.bias ? gradient("db", layer.b.shape) : Value{};
    c_.add(LinearGradW{layer.x, dy, dw, db});
    if (net_.summed) {
      sum(i, dw, db);
      return dx;
    }
    update({layer.kept, dw, net_.masters ? layer.w : Value{}});
    if (net_.bias) update({layer.b, db, {}});
    return dx;
  }

  struct Update {
    Value w, dw, copy;
  };

  void sum(size_t i, const Value& dw, const Value& db) {
    const Layer& layer = layers_[i];
    AllReduceStart start;
    start.token = c_.make(fmt::format("token{}", i), DType::int64, {1}, Role::temp, constant(0));
    for (const Value& grad : {dw, db}) {
      if (!grad) continue;
      const std::string name = fmt::format("sum{}.{}", i, start.sums.size());
      start.grads.push_back(grad);
      start.sums.push_back(net_.masters ? c_.accumulator(name, grad.shape, Role::temp)
                                        : c_.temp(name, grad.shape));
    }
    later_.push_back({layer.kept, start.sums[0], net_.masters ? layer.w : Value{}});
    if (db) later_.push_back({layer.b, start.sums[1], {}});
    waits_.push_back({start.grads, start.sums, start.token});
    c_.add(std::move(start));
  }

  void update(const Update& u) {
    if (together() || net_.update.starts_with("adam")) {
      later_.push_back(u);
    } else {
      c_.add_update(net_.update, u.w, u.dw, {}, u.copy);
    }
  }

  void clip() {
    Values grads;
    for (const Update& u : later_) grads.push_back(u.dw);
    const Value norm = c_.make("norm", DType::fp64, {1}, Role::output, normal(1));
    const Value factor = c_.make("factor", DType::fp64, {1}, Role::temp, normal(1));
    const Value clipped = c_.make("clipped", DType::int64, {1}, Role::state, constant(0));
    GlobalNorm op{grads, norm, factor, clipped, net_.clip ? 0.1 : 1e30};
    if (net_.loss_scale > 0) {
      op.loss_scale = loss_scale();
      op.good = c_.make("good", DType::int64, {1}, Role::state, constant(0));
      op.skipped = c_.make("skipped", DType::int64, {1}, Role::state, constant(0));
      op.growth = 2;
    }
    c_.add(op);
    for (const Update& u : later_) c_.add_update(net_.update, u.w, u.dw, factor, u.copy);
  }

  const TrainingNet& net_;
  CaseBuilder c_;
  Value label_;
  std::vector<Layer> layers_;
  std::vector<AllReduceWait> waits_;
  std::vector<Update> later_;  // after clipping, or after the sums over ranks
};

}  // namespace

Case training_case(const TrainingNet& net, DType dtype) { return TrainingStep(net, dtype).make(); }

std::vector<Case> training_cases(DType dtype) {
  const TrainingNet nets[] = {
      {.name = "softmax regression", .batch = 8, .widths = {20, 4}},
      {.name = "one of everything", .batch = 1, .widths = {3, 2, 2}},
      {.name = "relu", .batch = 32, .widths = {50, 32, 10}},
      {.name = "deep, primes", .batch = 7, .widths = {41, 37, 29, 23, 5}},
      {.name = "deep, even", .batch = 32, .widths = {64, 32, 32, 32, 10}, .steps = 3},
      // Kernels for populations take bytes without a shift.
      {.name = "unshifted bytes", .batch = 37, .widths = {48, 70, 10}, .steps = 2, .shift = 0},
      {.name = "unshifted bytes, momentum",
       .batch = 41,
       .widths = {32, 128, 13},
       .update = "momentum",
       .shift = 0},
      {.name = "unshifted bytes, adam",
       .batch = 29,
       .widths = {64, 64, 10},
       .update = "adam",
       .shift = 0},
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
      {.name = "dropout adam, in fours",
       .batch = 37,
       .widths = {20, 36, 68, 10},
       .update = "adam",
       .dropout = 0.25,
       .steps = 3},
      {.name = "tanh dropout adamw, primes",
       .batch = 41,
       .widths = {43, 37, 29, 71},
       .activation = ActivationKind::tanh,
       .update = "adamw",
       .dropout = 0.3,
       .bias = false,
       .steps = 2},
      {.name = "gelu dropout momentum",
       .batch = 5,
       .widths = {17, 19, 23, 3},
       .activation = ActivationKind::gelu,
       .update = "momentum",
       .dropout = 0.5},
      {.name = "floats", .batch = 19, .widths = {21, 16, 10}, .floats = true},
      // Two steps are smooth, because the second would bring a unit so near 0 that a rounding
      // decides which side of a rectifier it is on.
      {.name = "floats, two steps",
       .batch = 19,
       .widths = {21, 16, 10},
       .activation = ActivationKind::tanh,
       .steps = 2,
       .floats = true},
      {.name = "floats, regression, adam",
       .batch = 33,
       .widths = {28, 40, 17, 1},
       .update = "adam",
       .mse = true,
       .floats = true,
       .target_columns = 1},
      {.name = "huber of values",
       .batch = 18,
       .widths = {70, 30, 3},
       .activation = ActivationKind::tanh,
       .update = "momentum",
       .steps = 2,
       .floats = true,
       .target_columns = 3,
       .loss_fn = LossFn::huber},
      {.name = "binary cross-entropy of labels",
       .batch = 21,
       .widths = {15, 22, 6},
       .loss_fn = LossFn::bce_with_logits},
      {.name = "quantiles",
       .batch = 34,
       .widths = {9, 24, 4},
       .floats = true,
       .target_columns = 2,
       .loss_fn = LossFn::quantile},
      {.name = "clipped", .batch = 12, .widths = {20, 16, 10}, .clip = true},
      {.name = "no bias", .batch = 12, .widths = {20, 16, 10}, .bias = false},
      {.name = "summed", .batch = 32, .widths = {50, 33, 10}, .summed = true},
      {.name = "summed, dropout",
       .batch = 31,
       .widths = {50, 33, 21, 10},
       .dropout = 0.2,
       .summed = true},
      {.name = "summed, deep, adam, clipped",
       .batch = 11,
       .widths = {20, 16, 13, 5},
       .update = "adam",
       .clip = true,
       .bias = false,
       .summed = true},
  };
  std::vector<Case> all;
  for (TrainingNet net : nets) {
    // Adam's first step turns a gradient's last bit into as much as a whole step: in a half two
    // runs of several steps have little in common.
    if (size_of(dtype) == 2 && net.update.starts_with("adam")) net.steps = 1;
    all.push_back(TrainingStep(net, dtype).make());
    if (size_of(dtype) != 2) continue;
    net.masters = true;
    all.push_back(TrainingStep(net, dtype).make());
    net.loss_scale = 64;
    all.push_back(TrainingStep(net, dtype).make());
  }
  return all;
}

std::vector<Case> tall_training_cases(DType dtype) {
  const TrainingNet nets[] = {
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
      {.name = "tall, in eights, momentum",
       .batch = 131,
       .widths = {104, 136, 13},
       .update = "momentum",
       .steps = 2},
      {.name = "tall sigmoid, in eights",
       .batch = 257,
       .widths = {200, 64, 10},
       .activation = ActivationKind::sigmoid},
      {.name = "tall sigmoid dropout adam",
       .batch = 263,
       .widths = {50, 60, 35, 10},
       .activation = ActivationKind::sigmoid,
       .update = "adam",
       .dropout = 0.2,
       .steps = 2},
      {.name = "short, in eights", .batch = 32, .widths = {64, 32, 10}},
      {.name = "tall floats, regression, adam",
       .batch = 290,
       .widths = {65, 40, 70},
       .update = "adam",
       .mse = true,
       .floats = true,
       .target_columns = 70},
      // Wide enough for kernels that multiply by blocks of 32 on five threads, each of which has
      // rows of every layer or, with more samples, samples.
      {.name = "tall, wide dropout momentum",
       .batch = 150,
       .widths = {70, 100, 131, 99},
       .activation = ActivationKind::tanh,
       .update = "momentum",
       .dropout = 0.2,
       .steps = 2},
      {.name = "tall, wide gelu adam",
       .batch = 70,
       .widths = {33, 165, 100, 10},
       .activation = ActivationKind::gelu,
       .update = "adam"},
      {.name = "tall, wide floats, regression",
       .batch = 407,
       .widths = {65, 100, 97},
       .mse = true,
       .floats = true,
       .target_columns = 97},
  };
  std::vector<Case> all;
  for (const TrainingNet& net : nets) all.push_back(TrainingStep(net, dtype).make());
  if (size_of(dtype) != 2) return all;
  for (const bool masters : {false, true}) {  // layers over 512 wide
    const TrainingNet net{
        .name = "wide", .batch = 32, .widths = {24, 1000, 24, 10}, .masters = masters};
    all.push_back(TrainingStep(net, dtype).make());
  }
  return all;
}

}  // namespace ridgeline::test
