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
    for (size_t i = 0; i < net_.convolutions.size(); ++i) x = convolve(i, x);
    features_ = net_.convolutions.empty() ? net_.widths.front() : image_.numel();
    for (size_t i = 0; i + 1 < net_.widths.size(); ++i) x = forward(i, x);
    Value dy = loss(x);
    for (size_t i = layers_.size(); i-- > 0;) dy = backward(i, dy);
    for (size_t i = convolved_.size(); i-- > 0;) dy = backward_convolution(i, dy);
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

  struct Convolved {
    Value x, w, b, kept, z, y;
    Conv2dShape conv;
    BatchNorm norm;  // and so on: without y if absent
    Activation f;
    MaxPool pool;
  };

  // Make weights and gradients, in the types in which weights are kept.
  auto params(std::string prefix) {
    return [this, prefix](const char* name, const Shape& shape, Fill fill) {
      return net_.masters ? c_.accumulator(prefix + name, shape, Role::param, fill)
                          : c_.param(prefix + name, shape, fill);
    };
  }
  template <typename Name>
  auto gradients(Name of) {
    return [this, of](const char* name, const Shape& shape) {
      const std::string full = fmt::format("{}{}", name, of);
      return net_.masters ? c_.accumulator(full, shape, Role::temp) : c_.temp(full, shape);
    };
  }

  Value gather() {
    const bool convolves = !net_.convolutions.empty();
    const int64_t n = net_.batch, in = convolves ? net_.image.numel() : net_.widths.front();
    const int64_t classes = net_.widths.back();
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
    if (net_.augment.shift > 0 || net_.augment.flip) {
      const Value epoch = c_.make("epoch", DType::int64, {1}, Role::input, constant(3));
      c_.add(GatherAugment{images, order, first, c_.tick(), epoch, x, inputs.scale, inputs.shift,
                           net_.image, net_.augment});
    } else {
      c_.add(inputs);
    }
    c_.add(Gather{labels, order, first, c_.tick(), label_});
    return x;
  }

  Value forward(size_t i, const Value& x) {
    const int64_t in = i == 0 ? features_ : net_.widths[i], out = net_.widths[i + 1];
    const Shape shape{net_.batch, out};
    Layer layer;
    layer.x = x;
    const auto param = params(fmt::format("{}.", i));
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

  Value convolve(size_t i, const Value& x) {
    const ConvolutionNet& net = net_.convolutions[i];
    if (i == 0) image_ = net_.image;
    Convolved layer;
    const Slide slide{net.kernel, net.stride, net.pad, 1};
    layer.conv = {image_, net.out, {slide, slide}, 1};
    image_ = layer.conv.out();
    const auto name = [&](const char* what) { return fmt::format("c{}.{}", i, what); };
    const auto temp = [&](const char* what) {
      return c_.temp(name(what), {net_.batch, image_.numel()});
    };
    const auto param = params(name(""));
    const double taps = double(layer.conv.weight().numel()) / double(net.out);
    layer.x = x;
    layer.kept = layer.w = param("weight", layer.conv.weight(), normal(1 / std::sqrt(taps)));
    if (net_.masters) layer.w = c_.copy(layer.kept);
    if (net.bias) layer.b = param("bias", {net.out}, normal(0.1));
    layer.z = layer.y = temp("z");
    c_.add(Conv2d{x, layer.w, layer.b, layer.z, layer.conv});
    if (net.norm) {
      BatchNorm& op = layer.norm;
      op.x = layer.z;
      op.gamma = param("gamma", {net.out}, uniform(0.5, 1.5));
      op.beta = param("beta", {net.out}, normal(0.1));
      const auto running = [&](const char* what, Fill fill) {
        return c_.accumulator(name(what), {net.out}, Role::state, fill);
      };
      op.running_mean = running("running_mean", normal(1));
      op.running_var = running("running_var", uniform(0.5, 2));
      op.batches = c_.make(name("batches"), DType::int64, {1}, Role::state, constant(0));
      op.y = layer.y = temp("normed");
      op.mean = c_.accumulator(name("mean"), {net.out}, Role::temp);
      op.rstd = c_.accumulator(name("rstd"), {net.out}, Role::temp);
      op.in = {net.out, 1, image_.pixels()};
      c_.add(op);
    }
    if (net.activates) {
      layer.f = Activation{net_.activation, layer.y, temp("a")};
      c_.add(layer.f);
      layer.y = layer.f.y;
    }
    if (net.pool > 0) {
      const Slide window{net.pool, net.pool, 0, 1};
      layer.pool.x = layer.y;
      layer.pool.shape = {image_, {window, window}};
      image_ = layer.pool.shape.out();
      layer.pool.y = layer.y = temp("pooled");
      c_.add(layer.pool);
    }
    convolved_.push_back(layer);
    return layer.y;
  }

  Value backward_convolution(size_t i, Value dy) {
    const Convolved& layer = convolved_[i];
    const auto name = [&](const char* what) { return fmt::format("c{}.{}", i, what); };
    const auto gradient = gradients(name(""));
    if (layer.pool.y) {
      const Value dx = c_.temp(name("dpool"), layer.pool.x.shape);
      c_.add(MaxPoolGrad{layer.pool.x, layer.pool.y, dy, dx, layer.pool.shape});
      dy = dx;
    }
    if (layer.f.y) {
      const Value dx = c_.temp(name("da"), layer.f.x.shape);
      const Value& saved = saves_output(net_.activation) ? layer.f.y : layer.f.x;
      c_.add(ActivationGrad{net_.activation, saved, dy, dx});
      dy = dx;
    }
    if (layer.norm.y) {
      const BatchNorm& norm = layer.norm;
      BatchNormGrad op;
      op.x = norm.x, op.gamma = norm.gamma, op.mean = norm.mean, op.rstd = norm.rstd, op.dy = dy;
      op.dx = c_.temp(name("dnorm"), norm.x.shape), op.in = norm.in;
      op.dgamma = gradient("dgamma", norm.gamma.shape);
      op.dbeta = gradient("dbeta", norm.beta.shape);
      c_.add(op);
      dy = op.dx;
      update({norm.gamma, op.dgamma, {}});
      update({norm.beta, op.dbeta, {}});
    }
    Value dx;
    if (i > 0) {
      dx = c_.temp(name("dx"), layer.x.shape);
      c_.add(Conv2dGradX{dy, layer.w, dx, layer.conv});
    }
    const Value dw = gradient("dw", layer.w.shape);
    const Value db = layer.b ? gradient("db", layer.b.shape) : Value{};
    c_.add(Conv2dGradW{layer.x, dy, dw, db, layer.conv});
    update({layer.kept, dw, net_.masters ? layer.w : Value{}});
    if (db) update({layer.b, db, {}});
    return dx;
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
        return c_.accumulator(fmt::format("{}.{}", i, name), {out}, Role::state, fill);
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
    const auto gradient = gradients(i);
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
    if (i > 0 || !net_.convolutions.empty()) {
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
  Image image_;           // that the convolutions so far have made
  int64_t features_ = 0;  // of the first linear layer
  std::vector<Convolved> convolved_;
  std::vector<Layer> layers_;
  std::vector<AllReduceWait> waits_;
  std::vector<Update> later_;  // after clipping, or after the sums over ranks
};

}  // namespace

Case training_case(const TrainingNet& net, DType dtype) { return TrainingStep(net, dtype).make(); }

}  // namespace ridgeline::test
