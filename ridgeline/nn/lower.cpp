#include "ridgeline/nn/lower.h"

#include <fmt/format.h>

#include <limits>
#include <map>

#include "ridgeline/nn/builder.h"

namespace ridgeline::nn {
namespace {

void check(const Model& model, const LowerOptions& options) {
  switch (options.precision) {
    case Precision::fp64:
    case Precision::fp32:
    case Precision::tf32:
      break;
    default:
      throw_error(ErrorKind::usage,
                  "networks cannot be run in {} yet; use fp32, fp64 or, on a GPU, tf32",
                  name(options.precision));
  }
  const auto at_least_one = [](int64_t value, const char* what) {
    if (value < 1) throw_error(ErrorKind::usage, "{} must be at least 1, is {}", what, value);
  };
  at_least_one(options.batch, "the batch");
  at_least_one(options.repeats, "the number of steps a launch makes");
  at_least_one(options.set_rows, "the number of items in the set");
  if (options.set_rows > std::numeric_limits<int32_t>::max()) {
    throw_error(ErrorKind::usage, "a set of {} items is too large; rows are numbered with 32 bits",
                options.set_rows);
  }
  if (options.order_rows < options.batch) {
    throw_error(ErrorKind::usage, "a batch of {} does not fit an order of {} rows", options.batch,
                options.order_rows);
  }
  if (options.mode != Mode::infer && options.classes > model.output().numel()) {
    throw_error(ErrorKind::usage,
                "the model's output {} is too small for {} classes; widen its last linear layer",
                to_string(model.output()), options.classes);
  }
  const DType weights = storage(options.precision);
  for (const Param& param : model.params()) {
    if (param.value.view().dtype != weights) {
      throw_error(ErrorKind::usage, "{} is {}, but a run in {} needs {}", param.name,
                  name(param.value.view().dtype), name(options.precision), name(weights));
    }
  }
  if (options.mode == Mode::train && model.params().empty()) {
    throw_error(ErrorKind::usage, "the model has no weights to train; add a linear layer");
  }
}

// One call of lower(): what it has made so far, and its parts in the order they are appended.
class Lowering {
 public:
  Lowering(const Model& model, const LowerOptions& options)
      : model_(model), options_(options), builder_(lowered_, options) {
    lowered_.program.precision = options.precision;
    lowered_.program.repeats = options.repeats;
  }

  Lowered run() {
    lowered_.tick = add_value("tick", DType::int32, {1}, Role::state);
    x_ = gather_images();
    if (options_.mode != Mode::infer) label_ = gather_labels();
    add_params();
    forward();
    if (options_.mode == Mode::infer) {
      lowered_.probabilities = add_value("probabilities", builder_.dtype(), x_.shape, Role::output);
      builder_.add(Softmax{x_, lowered_.probabilities});
    } else {
      loss();
    }
    if (options_.mode == Mode::train) train();
    builder_.enter(-1);
    builder_.add(Tick{lowered_.tick});
    return std::move(lowered_);
  }

 private:
  Value add_value(std::string name, DType dtype, const Shape& shape, Role role, int64_t below = 1) {
    return lowered_.program.add_value(std::move(name), dtype, shape, role, below);
  }

  Value gather_images() {
    const Shape flat{options_.batch, model_.input().numel()};
    lowered_.images = add_value("images", DType::uint8, model_.input().prepend(options_.set_rows),
                                Role::input, 256);
    lowered_.order =
        add_value("order", DType::int32, {options_.order_rows}, Role::input, options_.set_rows);
    lowered_.first = add_value("first", DType::int64, {1}, Role::input);
    const Value x = builder_.temp("x0", flat);
    builder_.add(Gather{lowered_.images, lowered_.order, lowered_.first, lowered_.tick, x,
                        options_.scale, options_.shift});
    return x;
  }

  Value gather_labels() {
    const int64_t classes = options_.classes > 0 ? options_.classes : model_.output().numel();
    lowered_.labels = add_value("labels", DType::int32, {options_.set_rows}, Role::input, classes);
    const Value label = add_value("label", DType::int32, {options_.batch}, Role::temp, classes);
    builder_.add(Gather{lowered_.labels, lowered_.order, lowered_.first, lowered_.tick, label});
    return label;
  }

  void add_params() {
    for (const Param& param : model_.params()) {
      const Tensor& value = param.value.view();
      lowered_.params.push_back(add_value(param.name, value.dtype, value.shape, Role::param));
    }
  }

  void forward() {
    for (size_t i = 0; i < model_.layers().size(); ++i) {
      LayerValues values;
      values.layer = int(i);
      values.x = x_;
      values.params.assign(lowered_.params.begin() + ptrdiff_t(model_.first_param(i)),
                           lowered_.params.begin() + ptrdiff_t(model_.first_param(i + 1)));
      builder_.enter(values.layer);
      values.y = x_ = model_.layers()[i]->forward(builder_, values);
      layers_.push_back(std::move(values));
    }
    builder_.enter(-1);
  }

  // 1 over the global batch, and for mse over the outputs too.
  double loss_scale() const {
    const int64_t rows = options_.global_batch > 0 ? options_.global_batch : options_.batch;
    if (options_.idle) return 0;
    const int64_t outputs = options_.loss == Loss::mse ? x_.shape[1] : 1;
    return 1.0 / (double(rows) * double(outputs));
  }

  void loss() {
    const Shape steps{options_.repeats};
    lowered_.loss = add_value("loss", DType::fp64, steps, Role::output);
    lowered_.correct = add_value("correct", DType::int32, steps, Role::output);
    if (options_.loss == Loss::mse) {
      builder_.add(Mse{x_, label_, lowered_.tick, lowered_.loss, lowered_.correct, loss_scale()});
    } else {
      builder_.add(
          SoftmaxXent{x_, label_, lowered_.tick, lowered_.loss, lowered_.correct, loss_scale()});
    }
  }

  Value loss_grad() {
    const Value dx = builder_.like(fmt::format("dx{}", layers_.size()), x_);
    if (options_.loss == Loss::mse) {
      builder_.add(MseGrad{x_, label_, dx, loss_scale()});
    } else {
      builder_.add(SoftmaxXentGrad{x_, label_, dx, loss_scale()});
    }
    return dx;
  }

  void train() {
    lowered_.lr = add_value("lr", DType::fp64, {options_.repeats}, Role::input);
    Value dy = loss_grad();
    // The lowest layer with weights: nothing below it needs a gradient, nor does its own input.
    size_t lowest = 0;
    while (layers_[lowest].params.empty()) ++lowest;
    for (size_t i = layers_.size(); i-- > lowest;) {
      LayerValues& values = layers_[i];
      builder_.enter(values.layer);
      add_grads(i);
      dy = model_.layers()[i]->backward(builder_, values, dy, i > lowest);
      if (options_.ranks > 0) {
        start_sum(i);
      } else if (options_.clip_norm <= 0) {
        update(i, Value{});
      }
    }
    if (options_.clip_norm > 0) {
      for (size_t i = layers_.size(); i-- > lowest;) wait_for_sum(i);
      clip_and_update(lowest);
    } else if (options_.ranks > 0) {
      for (size_t i = layers_.size(); i-- > lowest;) {
        wait_for_sum(i);
        update(i, Value{});
      }
    }
  }

  // Of a layer's gradients over all ranks. The updates wait until the layers below have theirs on
  // the way, so that these hide the communication of those above.
  void start_sum(size_t layer) {
    LayerValues& values = layers_[layer];
    if (values.grads.empty()) return;
    AllReduceStart start;
    start.ranks = options_.ranks;
    start.wire = options_.gradient_wire;
    start.grads = values.grads;
    for (const Value& grad : values.grads) {
      start.sums.push_back(add_value(lowered_.program.info(grad.id).name + ".sum", grad.dtype,
                                     grad.shape, Role::temp));
    }
    start.token = add_value(fmt::format("token{}", layer), DType::int64, {1}, Role::temp);
    waits_[layer] = AllReduceWait{start.grads, start.sums, start.token};
    values.grads = start.sums;
    builder_.add(std::move(start));
  }

  void wait_for_sum(size_t layer) {
    const auto found = waits_.find(layer);
    if (found == waits_.end()) return;
    builder_.enter(int(layer));
    builder_.add(found->second);
  }

  void add_grads(size_t layer) {
    for (size_t p = 0; p < layers_[layer].params.size(); ++p) {
      const Value& param = layers_[layer].params[p];
      const std::string& name = model_.params()[model_.first_param(layer) + p].name;
      layers_[layer].grads.push_back(
          add_value(name + ".grad", param.dtype, param.shape, Role::temp));
    }
  }

  void clip_and_update(size_t lowest) {
    lowered_.grad_norm = add_value("grad_norm", DType::fp64, {1}, Role::output);
    lowered_.clipped = add_value("clipped", DType::int64, {1}, Role::state);
    const Value scale = add_value("grad_scale", DType::fp64, {1}, Role::temp);
    Values grads;
    for (const LayerValues& values : layers_) {
      grads.insert(grads.end(), values.grads.begin(), values.grads.end());
    }
    builder_.enter(-1);
    builder_.add(
        GlobalNorm{grads, lowered_.grad_norm, scale, lowered_.clipped, options_.clip_norm});
    for (size_t i = layers_.size(); i-- > lowest;) {
      builder_.enter(int(i));
      update(i, scale);
    }
  }

  void update(size_t layer, const Value& grad_scale) {
    for (size_t p = 0; p < layers_[layer].params.size(); ++p) {
      const Value& w = layers_[layer].params[p];
      const Value& dw = layers_[layer].grads[p];
      const std::string& name = model_.params()[model_.first_param(layer) + p].name;
      Values state;
      for (const std::string& part : state_names(options_.optimizer)) {
        const std::string full = name + "." + part;
        state.push_back(add_value(full, w.dtype, w.shape, Role::state));
        lowered_.states.push_back({full, state.back()});
      }
      add_update(w, dw, state, grad_scale);
    }
  }

  void add_update(const Value& w, const Value& dw, const Values& state, const Value& grad_scale) {
    const Optimizer& o = options_.optimizer;
    if (o.kind == OptimizerKind::sgd) {
      builder_.add(SgdUpdate{w, dw, state.empty() ? Value{} : state[0], lowered_.lr, lowered_.tick,
                             grad_scale, o.momentum, o.weight_decay, o.nesterov});
      return;
    }
    builder_.add(AdamUpdate{w, dw, state[0], state[1], lowered_.lr, builder_.step(), lowered_.tick,
                            grad_scale, o.beta1, o.beta2, o.epsilon, o.weight_decay,
                            o.kind == OptimizerKind::adamw});
  }

  const Model& model_;
  const LowerOptions& options_;
  Lowered lowered_;
  Builder builder_;
  Value x_;      // what the layers so far give
  Value label_;  // [batch]
  std::vector<LayerValues> layers_;
  std::map<size_t, AllReduceWait> waits_;  // by layer
};

}  // namespace

Lowered lower(const Model& model, const LowerOptions& options) {
  check(model, options);
  Lowered lowered = Lowering(model, options).run();
  if (options.ranks > 1) {
    for (const Op& op : lowered.program.ops) {
      if (!std::holds_alternative<BatchNorm>(op)) continue;
      throw_error(ErrorKind::usage,
                  "batch normalisation over {} ranks would take each rank's own statistics, not "
                  "the batch's; use layer normalisation, or one process",
                  options.ranks);
    }
  }
  return lowered;
}

}  // namespace ridgeline::nn
