#include "ridgeline/nn/lower_pass.h"

#include <fmt/format.h>

#include "ridgeline/nn/builder.h"
#include "ridgeline/nn/join.h"
#include "ridgeline/nn/recurrent.h"

namespace ridgeline::nn {
namespace {

// Refuses layers whose backward pass needs values that only a forward pass in training saves.
void check_gradients(const Model& model, bool training) {
  if (training) return;
  for (size_t i = 0; i < model.layers().size(); ++i) {
    const std::string type = model.layers()[i]->type();
    const auto* recurrent = dynamic_cast<const RecurrentLayer*>(model.layers()[i].get());
    const bool drops = recurrent != nullptr && recurrent->settings().dropout > 0;
    if (type != "batchnorm" && !drops) continue;
    throw_error(ErrorKind::usage,
                "layer {} ({}) has gradients in training alone: call train() first", i, type);
  }
}

class PassLowering {
 public:
  PassLowering(const Model& model, const LowerOptions& options, const PassOptions& pass)
      : model_(model), options_(options), pass_(pass), builder_(result_.lowered, options_) {
    result_.lowered.program.precision = options_.precision;
  }

  LoweredPass run() {
    for (size_t i = 0; i < model_.layers().size(); ++i) {
      if (model_.weights_of(i) != i) {
        throw_error(ErrorKind::usage,
                    "layer {}: layers that share weights cannot be run as a pass of another "
                    "program; give each its own",
                    i);
      }
    }
    result_.lowered.tick = add_value("tick", DType::int32, {1}, Role::state);
    result_.x =
        add_value("x0", builder_.dtype(), {options_.batch, model_.input().numel()}, Role::input);
    for (const Param& param : model_.params()) {
      const Role role = param.trained() ? Role::param : Role::state;
      const DType dtype = param.trained() ? builder_.dtype() : param.value.view().dtype;
      result_.lowered.params.push_back(
          add_value(param.name, dtype, param.value.view().shape, role));
    }
    const Value last = forward();
    if (pass_.kind == PassKind::forward) {
      result_.y = add_value("y", last.dtype, last.shape, Role::output);
      builder_.add(Copy{last, result_.y});
    } else {
      backward(last);
    }
    builder_.enter(-1);
    builder_.add(Tick{result_.lowered.tick});
    return std::move(result_);
  }

 private:
  Value add_value(std::string name, DType dtype, const Shape& shape, Role role) {
    return result_.lowered.program.add_value(std::move(name), dtype, shape, role);
  }

  // Outside of training, dropout is the identity.
  bool skipped(size_t layer) const {
    return !pass_.training && model_.layers()[layer]->type() == "dropout";
  }

  Value forward() {
    Value y = result_.x;
    for (size_t i = 0; i < model_.layers().size(); ++i) {
      LayerValues values;
      values.layer = int(i);
      for (const int from : model_.inputs_of(i)) {
        values.inputs.push_back(model_.output_of(from));
        values.xs.push_back(from == kGraphInput ? result_.x : layers_[size_t(from)].y);
      }
      values.input = values.inputs[0];
      values.x = values.xs[0];
      const auto params = result_.lowered.params.begin();
      values.params.assign(params + ptrdiff_t(model_.first_param(i)),
                           params + ptrdiff_t(model_.first_param(i + 1)));
      builder_.enter(values.layer);
      values.y = y = skipped(i) ? values.x : model_.layers()[i]->forward(builder_, values);
      layers_.push_back(std::move(values));
    }
    builder_.enter(-1);
    return y;
  }

  void backward(const Value& last) {
    result_.grads.resize(model_.params().size());
    result_.dy = add_value("dy", last.dtype, last.shape, Role::input);
    std::vector<Values> arrived(layers_.size());  // gradients by each layer's output
    Values by_input;
    arrived.back().push_back(result_.dy);
    for (size_t i = layers_.size(); i-- > 0;) {
      builder_.enter(int(i));
      const Value dy = add_gradients(builder_, arrived[i], fmt::format("dx{}.sum", i + 1));
      add_grads(i);
      const std::vector<int>& inputs = model_.inputs_of(i);
      const std::vector<bool> wanted(inputs.size(), true);
      const Values dxs = skipped(i)
                             ? Values{dy}
                             : model_.layers()[i]->backward_of(builder_, layers_[i], dy, wanted);
      for (size_t k = 0; k < inputs.size(); ++k) {
        (inputs[k] == kGraphInput ? by_input : arrived[size_t(inputs[k])]).push_back(dxs[k]);
      }
    }
    const Value dx = add_gradients(builder_, by_input, "dx0.sum");
    result_.dx = add_value("dx0.out", dx.dtype, result_.x.shape, Role::output);
    builder_.add(Copy{dx, result_.dx});
  }

  void add_grads(size_t layer) {
    for (size_t p = model_.first_param(layer); p < model_.first_param(layer + 1); ++p) {
      const Param& param = model_.params()[p];
      if (param.trained()) {
        result_.grads[p] = add_value(param.name + ".grad", builder_.dtype(),
                                     param.value.view().shape, Role::output);
      }
      layers_[layer].grads.push_back(result_.grads[p]);
    }
  }

  const Model& model_;
  const LowerOptions& options_;
  const PassOptions& pass_;
  LoweredPass result_;
  Builder builder_;
  std::vector<LayerValues> layers_;
};

}  // namespace

LoweredPass lower_pass(const Model& model, const LowerOptions& options, const PassOptions& pass) {
  if (model.layers().front()->codes_below() > 0) {
    throw_error(ErrorKind::usage, "the first layer takes codes, by which there is no gradient");
  }
  if (size_of(storage(options.precision)) == 2) {
    throw_error(ErrorKind::usage,
                "gradients for another program are computed in fp32 or fp64, not {}",
                name(options.precision));
  }
  const bool gradients = pass.kind == PassKind::gradients;
  if (gradients) check_gradients(model, pass.training);
  LowerOptions lower = options;
  // Only a forward pass in training saves what a backward pass needs.
  lower.mode = pass.training || gradients ? Mode::train : Mode::infer;
  return PassLowering(model, lower, pass).run();
}

}  // namespace ridgeline::nn
