#include "ridgeline/nn/lower.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "ridgeline/nn/activation_memory.h"
#include "ridgeline/nn/builder.h"
#include "ridgeline/nn/join.h"
#include "ridgeline/nn/lower_check.h"
#include "ridgeline/nn/lower_losses.h"
#include "ridgeline/nn/lower_prune.h"
#include "ridgeline/nn/lower_updates.h"
#include "ridgeline/nn/recompute.h"
#include "ridgeline/nn/recurrent.h"
#include "ridgeline/nn/softmax.h"

namespace ridgeline::nn {
namespace {

// The state of one call of lower(), and its parts in the order in which they are appended.
class Lowering {
 public:
  // `segments` has the beginnings of all recomputed segments but the last; empty: nothing is
  // recomputed.
  Lowering(const Model& model, const LowerOptions& options, std::vector<size_t> segments = {})
      : model_(model),
        options_(options),
        segments_(std::move(segments)),
        builder_(lowered_, options),
        losses_(model, options, lowered_, builder_),
        updates_(model, options, lowered_, builder_, layers_, factors_) {
    lowered_.program.precision = options.precision;
    lowered_.program.accumulate = options.accumulate;
    lowered_.program.repeats = options.repeats;
  }

  Lowered run() {
    lowered_.tick = add_value("tick", DType::int32, {1}, Role::state);
    x_ = gather_inputs();
    if (options_.lengths) gather_lengths();
    if (options_.mode != Mode::infer) losses_.gather();
    add_params();
    forward();
    x_.shape = {options_.batch * options_.targets,
                x_.shape.numel() / x_.shape[0] / options_.targets};
    if (options_.mode == Mode::infer) {
      outputs();
    } else if (heads().empty()) {
      losses_.add(x_, int(layers_.size()) - 1);
    } else {
      losses_.add_heads(layers_);
    }
    if (options_.mode == Mode::evaluate && options_.outputs) outputs();
    if (options_.mode == Mode::train) train();
    builder_.enter(-1);
    carry();
    builder_.add(Tick{lowered_.tick});
    return std::move(lowered_);
  }

 private:
  Value add_value(std::string name, DType dtype, const Shape& shape, Role role, int64_t below = 1) {
    return lowered_.program.add_value(std::move(name), dtype, shape, role, below);
  }

  bool half() const { return size_of(builder_.dtype()) == 2; }
  // The type of values that people read and files keep, whatever the type of the activations.
  DType wide() const { return builder_.dtype() == DType::fp64 ? DType::fp64 : DType::fp32; }

  Value gather_inputs() {
    const Shape flat{options_.batch, model_.input().numel()};
    const int64_t codes = model_.layers().front()->codes_below();
    const bool bytes = options_.set_inputs == DType::uint8;
    const int64_t below = options_.set_inputs == DType::int32 ? codes
                          : !bytes                            ? 1
                          : codes > 0                         ? std::min<int64_t>(codes, 256)
                                                              : 256;
    lowered_.inputs = add_value(bytes ? "images" : "inputs", options_.set_inputs,
                                model_.input().prepend(options_.set_samples), Role::input, below);
    lowered_.order = add_value("order", DType::int32, {options_.order_samples}, Role::input,
                               options_.set_samples);
    lowered_.first = add_value("first", DType::int64, {1}, Role::input);
    const Value x = codes > 0 ? add_value("x0", DType::int32, flat, Role::temp, codes)
                              : builder_.temp("x0", flat);
    if (options_.mode == Mode::train && (options_.augment.shift > 0 || options_.augment.flip)) {
      lowered_.epoch = add_value("epoch", DType::int64, {1}, Role::input);
      // Codes are not scaled, and the highest code is padding.
      const double scale = codes > 0 ? 1 : options_.scale;
      const double shift = codes > 0 ? double(codes - 1) : options_.shift;
      builder_.add(GatherAugment{lowered_.inputs, lowered_.order, lowered_.first, lowered_.tick,
                                 lowered_.epoch, x, scale, shift, image(), options_.augment});
      return x;
    }
    Gather gather{lowered_.inputs, lowered_.order, lowered_.first, lowered_.tick, x};
    if (codes == 0 && bytes) {
      gather.scale = options_.scale;
      gather.shift = options_.shift;
    }
    builder_.add(gather);
    return x;
  }

  // Returns the shape of a sample as an image; augmentation is defined only for images.
  Image image() const {
    const Shape& sample = model_.input();
    if (sample.rank() == 1 && model_.layers().front()->codes_below() > 0) return {1, 1, sample[0]};
    if (sample.rank() == 2) return {1, sample[0], sample[1]};
    if (sample.rank() == 3) return {sample[0], sample[1], sample[2]};
    throw_error(ErrorKind::usage,
                "data.augment moves images, but the samples are {}; leave it out of the config",
                to_string(sample));
  }

  const std::vector<Head>& heads() const { return model_.graph().heads(); }

  void gather_lengths() {
    const int64_t below = model_.input()[0] + 1;
    lowered_.lengths =
        add_value("lengths", DType::int32, {options_.set_samples}, Role::input, below);
    lowered_.batch_lengths =
        add_value("batch_lengths", DType::int32, {options_.batch}, Role::temp, below);
    builder_.add(Gather{lowered_.lengths, lowered_.order, lowered_.first, lowered_.tick,
                        lowered_.batch_lengths});
  }

  void carry() {
    for (const Lowered::CarriedState& each : lowered_.carried) {
      builder_.add(Copy{each.next, each.value});
      if (options_.mode == Mode::train) lowered_.states.push_back({each.name, each.value});
    }
  }

  void add_params() {
    const bool masters = half() && options_.weights == WeightKind::master;
    for (size_t i = 0; i < model_.params().size(); ++i) {
      const Param& param = model_.params()[i];
      const Shape& shape = param.value.view().shape;
      if (!param.trained()) {  // statistics and counters keep their type
        lowered_.params.push_back(
            add_value(param.name, param.value.view().dtype, shape, Role::state));
        factors_.push_back(lowered_.params.back());
        continue;
      }
      const DType factor = masters && shape.rank() < 2 ? wide() : builder_.dtype();
      const DType kept = masters && options_.mode == Mode::train ? wide() : factor;
      lowered_.params.push_back(add_value(param.name, kept, shape, Role::param));
      factors_.push_back(lowered_.params.back());
      if (kept == factor) continue;
      factors_.back() = add_value(param.name + ".copy", factor, shape, Role::copy);
      lowered_.copies.push_back({i, factors_.back()});
    }
  }

  void forward() {
    const Value input = x_;
    // Losses read the heads directly; their concat is only needed for outputs.
    const bool joined = heads().empty() || options_.mode == Mode::infer || options_.outputs;
    const size_t count = model_.layers().size() - (joined ? 0 : 1);
    int top_stack = -1;
    for (size_t i = 0; i < count; ++i) {
      if (dynamic_cast<const RecurrentLayer*>(model_.layers()[i].get()) != nullptr) {
        top_stack = int(i);
      }
    }
    for (size_t i = 0; i < count; ++i) {
      LayerValues values;
      values.layer = int(i);
      for (const int from : model_.inputs_of(i)) {
        values.inputs.push_back(model_.output_of(from));
        values.xs.push_back(from == kGraphInput ? input : layers_[size_t(from)].y);
      }
      values.input = values.inputs[0];
      values.x = values.xs[0];
      const size_t owner = model_.weights_of(i);
      values.params.assign(factors_.begin() + ptrdiff_t(model_.first_param(owner)),
                           factors_.begin() + ptrdiff_t(model_.first_param(owner + 1)));
      values.recompute = int(i) != top_stack;
      builder_.enter(values.layer);
      values.y = x_ = model_.layers()[i]->forward(builder_, values);
      layers_.push_back(std::move(values));
    }
    builder_.enter(-1);
  }

  void outputs() {
    if (gives_probabilities(model_.graph())) {
      lowered_.outputs = add_value("probabilities", x_.dtype, x_.shape, Role::output);
      builder_.add(Copy{x_, lowered_.outputs});
    } else if (heads().empty() && options_.loss.kind == LossKind::cross_entropy) {
      lowered_.outputs = add_value("probabilities", wide(), x_.shape, Role::output);
      builder_.add(Softmax{x_, lowered_.outputs});
    } else {  // no softmax between the outputs and the targets
      lowered_.outputs = add_value("outputs", x_.dtype, x_.shape, Role::output);
      if (heads().empty() && options_.loss.kind == LossKind::binary_cross_entropy) {
        builder_.add(Activation{ActivationKind::sigmoid, x_, lowered_.outputs});
      } else {
        builder_.add(Copy{x_, lowered_.outputs});
      }
    }
    if (!options_.predictions) return;
    lowered_.predictions =
        add_value("predictions", DType::int32, {x_.shape[0]}, Role::output, x_.shape[1]);
    builder_.add(Argmax{lowered_.outputs, lowered_.predictions});
  }

  void train() {
    lowered_.lr = add_value("lr", DType::fp64, {options_.repeats}, Role::input);
    const bool scaled = options_.loss_scale.kind != LossScale::Kind::none;
    if (scaled) {
      lowered_.loss_scale =
          updates_.add_state("loss_scale", DType::fp64, {1}, options_.loss_scale.start);
    }
    const bool together = scaled || options_.clip_norm > 0;  // no update before the last gradient
    // A plain SGD update may be fused with its gradient. Other updates are separate kernels, and
    // one kernel can make all adjacent ones.
    const bool late = options_.optimizer.kind != OptimizerKind::sgd;
    const std::vector<bool> needs = needed_gradients();
    find_first_readers();
    const size_t lowest = size_t(std::ranges::find(needs, true) - needs.begin());
    std::vector<Values> arrived(layers_.size());  // gradients by each layer's output
    for (size_t loss = 0; loss < losses_.size(); ++loss) {
      const auto layer = size_t(losses_.layer(loss));
      if (!needs[layer]) continue;  // nothing below this head is trained
      arrived[layer].push_back(losses_.add_gradient(loss));
      arrived[layer].back().shape = layers_[layer].y.shape;
    }
    for (size_t i = layers_.size(); i-- > lowest;) {
      if (const auto next = std::ranges::find(segments_, i + 1); next != segments_.end()) {
        recompute_forward(*(next - 1), i + 1);
      }
      if (!needs[i] || arrived[i].empty()) continue;
      LayerValues& values = layers_[i];
      builder_.enter(values.layer);
      const Value dy = add_gradients(builder_, arrived[i], fmt::format("dx{}.sum", i + 1));
      add_grads(i);
      const std::vector<int>& inputs = model_.inputs_of(i);
      std::vector<bool> wanted;
      for (const int from : inputs) wanted.push_back(from != kGraphInput && needs[size_t(from)]);
      // The last gradient of a value is added to the others as soon as it is computed.
      const auto completes = [&](int from) {
        return from != kGraphInput && needs[size_t(from)] && !arrived[size_t(from)].empty() &&
               first_reader_[size_t(from)] == int(i);
      };
      builder_.set_sum_follows(inputs.size() == 1 && completes(inputs[0]));
      const Values dxs = model_.layers()[i]->backward_of(builder_, values, dy, wanted);
      for (size_t k = 0; k < inputs.size(); ++k) {
        if (wanted[k]) arrived[size_t(inputs[k])].push_back(dxs[k]);
      }
      if (builder_.sum_follows()) {
        Values& parts = arrived[size_t(inputs[0])];
        // The newest gradient comes first, because a kernel may still hold it in registers.
        std::rotate(parts.begin(), parts.end() - 1, parts.end());
        parts = {add_gradients(builder_, parts, fmt::format("dx{}.sum", inputs[0] + 1))};
      }
      if (frozen(i)) forget_grads(values);
      if (model_.weights_of(i) != i) continue;  // the layer that owns the weights comes later
      add_shared_grads(i);
      if (options_.ranks > 0) {
        updates_.start_sum(i);
      } else if (!together && !late) {
        updates_.update(i, Value{});
      }
    }
    for (size_t i = layers_.size(); options_.ranks == 0 && late && !together && i-- > lowest;) {
      builder_.enter(int(i));
      updates_.update(i, Value{});
    }
    if (options_.ranks > 0) {
      for (size_t i = layers_.size(); i-- > lowest;) {
        updates_.wait_for_sum(i);
        if (!together) updates_.update(i, Value{});
      }
    }
    if (together) updates_.scale_and_update(lowest);
    if (!builder_.recomputed().empty()) drop_unread(lowered_, builder_.recomputed());
    if (!unwanted_.empty()) drop_unwanted(lowered_, unwanted_);
  }

  // Recomputes the forward pass of the layers [begin, end) for their gradients, except for values
  // that are kept because later layers read them. drop_unread() removes what no gradient reads.
  void recompute_forward(size_t begin, size_t end) {
    std::set<ValueId> kept;
    for (size_t i = end; i < layers_.size(); ++i) {
      for (const Value& x : layers_[i].xs) kept.insert(x.id);
    }
    builder_.set_again(true);
    for (size_t i = begin; i < end; ++i) {
      LayerValues& values = layers_[i];
      for (size_t k = 0; k < values.xs.size(); ++k) {
        const int from = model_.inputs_of(i)[k];
        if (from != kGraphInput) values.xs[k] = layers_[size_t(from)].y;
      }
      values.x = values.xs[0];
      if (!model_.layers()[i]->can_recompute()) continue;
      values.saved.clear();
      builder_.enter(int(i));
      const Value y = model_.layers()[i]->forward(builder_, values);
      if (!kept.contains(values.y.id)) values.y = y;
    }
    builder_.set_again(false);
  }

  // Whether the gradient by a layer's output is needed: for weights of its own, or for those of a
  // layer that it reads. In a chain these are the lowest layer with weights and all above it.
  std::vector<bool> needed_gradients() const {
    std::vector<bool> needs(layers_.size());
    for (size_t i = 0; i < layers_.size(); ++i) {
      needs[i] = trained(i) || std::ranges::any_of(model_.inputs_of(i), [&](int from) {
                   return from != kGraphInput && needs[size_t(from)];
                 });
    }
    return needs;
  }

  // The last gradient of a value comes from the first layer that reads it.
  void find_first_readers() {
    first_reader_.assign(layers_.size(), -1);
    for (size_t i = layers_.size(); i-- > 0;) {
      for (const int from : model_.inputs_of(i)) {
        if (from != kGraphInput) first_reader_[size_t(from)] = int(i);
      }
    }
  }

  // Adds up the gradients of shared weights over all layers that use them.
  void add_shared_grads(size_t owner) {
    for (size_t p = 0; p < layers_[owner].grads.size(); ++p) {
      Values parts;
      for (size_t i = owner; i < layers_.size(); ++i) {
        if (model_.weights_of(i) != owner || p >= layers_[i].grads.size()) continue;
        if (layers_[i].grads[p]) parts.push_back(layers_[i].grads[p]);
      }
      if (parts.size() < 2) continue;
      // One op adds a limited number; its sum is the first operand of the next op.
      while (parts.size() > 1) {
        const size_t count = std::min(parts.size(), kMostJoined);
        const bool last = count == parts.size();
        const Value sum =
            add_value(fmt::format("{}.grad.sum{}", param(owner, p).name, last ? "" : "_of_some"),
                      parts[0].dtype, parts[0].shape, Role::temp);
        builder_.add(Add{{parts.begin(), parts.begin() + ptrdiff_t(count)}, sum});
        parts.erase(parts.begin(), parts.begin() + ptrdiff_t(count));
        parts.insert(parts.begin(), sum);
      }
      layers_[owner].grads[p] = parts[0];
      for (size_t i = owner + 1; i < layers_.size(); ++i) {
        if (model_.weights_of(i) == owner && p < layers_[i].grads.size()) layers_[i].grads[p] = {};
      }
    }
  }

  void forget_grads(LayerValues& values) {
    for (Value& grad : values.grads) {
      if (grad) unwanted_.insert(grad.id);
      grad = Value{};
    }
  }

  const Param& param(size_t layer, size_t p) const {
    return model_.params()[first_param(layer) + p];
  }
  size_t first_param(size_t layer) const { return model_.first_param(model_.weights_of(layer)); }
  bool frozen(size_t layer) const {
    const size_t owner = model_.weights_of(layer);
    return owner < options_.frozen.size() && options_.frozen[owner];
  }
  bool trained(size_t layer) const {
    if (frozen(layer)) return false;
    for (size_t p = 0; p < layers_[layer].params.size(); ++p) {
      if (param(layer, p).trained()) return true;
    }
    return false;
  }

  void add_grads(size_t layer) {
    for (size_t p = 0; p < layers_[layer].params.size(); ++p) {
      // Gradients have the type in which weights are kept.
      const Value& kept = lowered_.params[first_param(layer) + p];
      const Param& of = param(layer, p);
      const std::string name = model_.weights_of(layer) == layer
                                   ? of.name + ".grad"
                                   : fmt::format("{}.grad{}", of.name, layer);
      layers_[layer].grads.push_back(
          of.trained() ? add_value(name, kept.dtype, kept.shape, Role::temp) : Value{});
    }
  }

  const Model& model_;
  const LowerOptions& options_;
  const std::vector<size_t> segments_;
  Lowered lowered_;
  Builder builder_;
  Value x_;  // the output of the layers so far
  Losses losses_;
  std::vector<Value> factors_;  // the weights as ops read them: lowered_.params, or their copies
  std::vector<LayerValues> layers_;
  std::vector<int> first_reader_;  // by layer, -1: none
  std::set<ValueId> unwanted_;     // gradients of frozen weights
  Updates updates_;
};

}  // namespace

Lowered lower(const Model& model, const LowerOptions& options) {
  check_lowering(model, options);
  std::vector<size_t> segments;
  if (options.recompute && options.mode == Mode::train) {
    LowerOptions plain = options;
    plain.recompute = false;
    segments = choose_segments(
        model, activation_bytes(Lowering(model, plain).run(), model.layers().size()),
        double(options.batch) * double(size_of(storage(options.precision))));
  }
  Lowered lowered = Lowering(model, options, segments).run();
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
