#include "ridgeline/cpu/simd/conv_net_layers.h"

#include <algorithm>

#include "ridgeline/cpu/simd/kernel.h"

namespace ridgeline::cpu::simd {
namespace {

bool increases(SimdActivation act) {
  return act == ActivationKind::tanh || act == ActivationKind::sigmoid ||
         act == ActivationKind::softplus;
}

// Takes one op after another into layers.
class OpTaker {
 public:
  OpTaker(const RemainingOps& rest, size_t most, ConvNetLayers& found)
      : rest_(rest), layers_(found.layers), written_(found.inner) {
    size_t layers = 0;
    ConvNetLayer ended;
    std::string& why = found.why;
    for (size_t count = 0; rest.begin + count < rest.program.ops.size() && count < most; ++count) {
      if (rest.looks != nullptr) ++*rest.looks;
      at_ = rest.begin + count;
      why = std::visit([this](const auto& op) { return take(op); }, rest.program.ops[at_]);
      if (!why.empty()) break;
      written_.push_back(layers_.back().y.id);
      if (before_ < int64_t(at_ + 1)) {  // nothing but the last result is read later
        found.ops = count + 1;
        layers = layers_.size();
        ended = layers_.back();
      }
    }
    layers_.resize(layers);
    if (layers > 0) layers_.back() = ended;
    written_.resize(found.ops);
    if (!written_.empty()) written_.pop_back();
    if (std::ranges::none_of(layers_, [](const ConvNetLayer& each) { return each.conv; })) {
      found.ops = 0;
    }
  }

 private:
  static constexpr int64_t kForever = INT64_MAX;

  int64_t last_read(const Value& value) const {
    const bool inside = rest_.program.info(value.id).role == Role::temp;
    return inside ? rest_.program.last_read(value.id) : kForever;
  }
  bool known(const Value& value) const {
    return layers_.empty() || value.id == layers_.front().x.id ||
           std::ranges::any_of(layers_,
                               [&](const ConvNetLayer& each) { return each.y.id == value.id; });
  }
  bool fixed(const Value& value) const {
    const Role role = value ? rest_.program.info(value.id).role : Role::param;
    return role == Role::param || role == Role::copy;
  }
  // Whether only this op reads what the last layer gives.
  bool only_here(const Value& value) const {
    return !layers_.empty() && layers_.back().y.id == value.id && last_read(value) == int64_t(at_);
  }
  void push(ConvNetLayer layer) {
    if (!layers_.empty()) before_ = std::max(before_, last_read(layers_.back().y));
    layers_.push_back(std::move(layer));
  }

  std::string take(const Conv2d& op) {
    const Conv2dShape& s = op.shape;
    for (const Value& each : {op.x, op.w, op.b, op.y}) {
      if (each && each.dtype != DType::fp32) return "takes fp32 only";
    }
    if (op.x.shape.numel() == 0 || op.y.shape.numel() == 0) return "empty";
    if (!fixed(op.w) || !fixed(op.b)) return "takes weights that do not change";
    if (s.groups != 1 && (s.groups != s.in.c || s.groups != s.k)) {
      return "takes one group, or one for each channel";
    }
    if (!known(op.x)) return "reads a value from before";
    push({.conv = &op, .x = op.x, .y = op.y});
    return {};
  }
  std::string take(const MaxPool& op) { return take_pool(op, {.max = &op, .x = op.x, .y = op.y}); }
  std::string take(const AvgPool& op) {
    return take_pool(op, {.average = &op, .x = op.x, .y = op.y});
  }
  template <typename Pool>
  std::string take_pool(const Pool& op, ConvNetLayer layer) {
    if (op.x.dtype != DType::fp32 || op.x.shape.numel() == 0) return "takes fp32 only";
    if (!known(op.x)) return "reads a value from before";
    // The largest of increasing functions is the function of the largest, which is less work.
    if (layer.max != nullptr && only_here(op.x) && increases(layers_.back().act) &&
        !layers_.back().residual) {
      std::swap(layer.act, layers_.back().act);
    }
    push(std::move(layer));
    return {};
  }
  std::string take(const Activation& op) {
    if (!only_here(op.x) || op.y.dtype != DType::fp32) return "follows no layer alone";
    ConvNetLayer& layer = layers_.back();
    const bool first = layer.act == ActivationKind::none && !layer.residual;
    if (!first && (layer.conv == nullptr || layer.after != ActivationKind::none)) {
      return "takes one activation";
    }
    (first ? layer.act : layer.after) = simd_activation(op);
    layer.y = op.y;
    return {};
  }
  std::string take(const Add& op) {
    if (op.xs.size() != 2 || op.scale != 1 || op.xs[0].id == op.xs[1].id) return "adds two values";
    const Value &last = only_here(op.xs[1]) ? op.xs[1] : op.xs[0],
                &other = only_here(op.xs[1]) ? op.xs[0] : op.xs[1];
    if (!only_here(last) || !known(other)) return "adds to what it has just computed";
    ConvNetLayer& layer = layers_.back();
    if (layer.conv == nullptr || layer.residual || layer.after != ActivationKind::none ||
        image_of(other) != layer.out()) {
      return "adds once to a convolution of the same image";
    }
    layer.residual = other;
    layer.y = op.y;
    return {};
  }
  template <typename Other>
  std::string take(const Other&) {
    return "the next op is none that a convolutional net takes";
  }
  Image image_of(const Value& value) const {
    for (const ConvNetLayer& each : layers_) {
      if (each.y.id == value.id) return each.out();
    }
    return layers_.front().in();
  }

  const RemainingOps& rest_;
  size_t at_ = 0;
  std::vector<ConvNetLayer>& layers_;
  std::vector<ValueId>& written_;
  int64_t before_ = -1;  // the last op that reads a value from before the last layer
};

}  // namespace

ConvNetLayers::ConvNetLayers(const RemainingOps& rest, size_t most) { OpTaker(rest, most, *this); }

}  // namespace ridgeline::cpu::simd
