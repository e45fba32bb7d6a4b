#include <algorithm>

#include "ridgeline/onnx/importer.h"

// scikit-learn's linear models and scalers, in the operators of the domain ai.onnx.ml.
namespace ridgeline::onnx {
namespace {

std::vector<double> floats_of(const Node& node, const char* name) {
  const auto found = node.attributes.find(name);
  return found == node.attributes.end() ? std::vector<double>{} : found->second.floats;
}

}  // namespace

// y = (x - offset) * scale
void import_scaler(Importer& in) {
  const View view = in.take_plain(0).view;
  if (view.dims.size() != 2) in.refuse("its input is not [N, features]");
  const auto features = size_t(view.dims[1]);
  std::vector<double> offset = floats_of(in.node(), "offset"),
                      scale = floats_of(in.node(), "scale");
  if (offset.empty()) offset = {0};
  if (scale.empty()) scale = {1};
  offset.resize(offset.size() == 1 ? features : offset.size(), offset[0]);
  scale.resize(scale.size() == 1 ? features : scale.size(), scale[0]);
  if (offset.size() != features || scale.size() != features) {
    in.refuse("its numbers do not fit its input");
  }
  std::vector<double> shift;
  for (size_t i = 0; i < features; ++i) shift.push_back(-offset[i] * scale[i]);
  add_affine(in, view, size_t{1}, std::move(scale), std::move(shift));
  in.give(view);
}

void import_linear_model(Importer& in) {
  const Node& node = in.node();
  const View view = in.take_plain(0).view;
  if (view.dims.size() != 2) in.refuse("its input is not [N, features]");
  const bool classifier = node.op == "LinearClassifier";
  const std::vector<double> weights = floats_of(node, "coefficients");
  std::vector<double> bias = floats_of(node, "intercepts");
  const auto features = view.dims[1];
  const auto out = int64_t(weights.size()) / std::max<int64_t>(1, features);
  if (out < 1 || out * features != int64_t(weights.size())) {
    in.refuse("its coefficients do not fit its input");
  }
  if (bias.empty()) bias.assign(size_t(out), 0.0);
  if (int64_t(bias.size()) != out) in.refuse("its intercepts do not fit its coefficients");
  const std::string end = node.text("post_transform", "NONE");
  if (classifier && in.gives(0) && !in.gives(1)) in.refuse("its labels are not given here");
  if (end != "NONE" && (!classifier || end != "SOFTMAX")) {
    in.refuse(fmt::format("post_transform {} is not computed here", end));
  }
  if (classifier && out < 2) in.refuse("has one row of coefficients for two classes");
  Draft draft;
  draft.type = "linear";
  draft.set("out", out);
  draft.set("bias", true);
  draft.weights = {{"weight", {weights.begin(), weights.end()}},
                   {"bias", {bias.begin(), bias.end()}}};
  in.shape_input(Shape{features});
  in.add(std::move(draft));
  View made;
  made.dims = {kBatch, out};
  const size_t output = classifier ? 1 : 0;
  end == "SOFTMAX" ? in.give_softmax(made, output) : in.give(made, output);
}

}  // namespace ridgeline::onnx
