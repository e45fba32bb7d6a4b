#include <algorithm>
#include <cmath>

#include "ridgeline/onnx/composition.h"
#include "ridgeline/onnx/importer.h"

// scikit-learn's linear models and scalers, in the operators of the domain ai.onnx.ml.
namespace ridgeline::onnx {
namespace {

std::vector<double> attribute_floats(const Node& node, const char* name) {
  const auto found = node.attributes.find(name);
  return found == node.attributes.end() ? std::vector<double>{} : found->second.floats;
}

// Divides by the sum of the absolute numbers along an axis; zeros stay zeros.
void divide_by_sum(Importer& in, int64_t axis) {
  Composition make(in);
  const std::string& x = in.node().input(0);
  const std::string sum = make.add("ReduceL1", {x}, {{"axes", Composition::list({axis})}});
  make.finish("Div", {x, make.add("Add", {sum, make.number(1e-30)})});
}

}  // namespace

// y = (x - offset) * scale
void import_scaler(Importer& in) {
  const View view = in.take_plain(0).view;
  if (view.dims.size() != 2) in.refuse("its input is not [N, features]");
  const auto features = size_t(view.dims[1]);
  std::vector<double> offset = attribute_floats(in.node(), "offset"),
                      scale = attribute_floats(in.node(), "scale");
  if (offset.empty()) offset = {0};
  if (scale.empty()) scale = {1};
  offset.resize(offset.size() == 1 ? features : offset.size(), offset[0]);
  scale.resize(scale.size() == 1 ? features : scale.size(), scale[0]);
  if (offset.size() != features || scale.size() != features) {
    in.refuse("its numbers do not fit its input");
  }
  std::vector<double> shift;
  for (size_t i = 0; i < features; ++i) shift.push_back(-offset[i] * scale[i]);
  add_affine(in, view, Vary::channel, std::move(scale), std::move(shift));
  in.give(view);
}

void import_linear_model(Importer& in) {
  const Node& node = in.node();
  const View view = in.take_plain(0).view;
  if (view.dims.size() != 2) in.refuse("its input is not [N, features]");
  const bool classifier = node.op == "LinearClassifier";
  const std::vector<double> weights = attribute_floats(node, "coefficients");
  std::vector<double> bias = attribute_floats(node, "intercepts");
  const auto features = view.dims[1];
  const auto out = int64_t(weights.size()) / std::max<int64_t>(1, features);
  if (out < 1 || out * features != int64_t(weights.size())) {
    in.refuse("its coefficients do not fit its input");
  }
  if (bias.empty()) bias.assign(size_t(out), 0.0);
  if (int64_t(bias.size()) != out) in.refuse("its intercepts do not fit its coefficients");
  const std::string end = node.text("post_transform", "NONE");
  if (classifier && in.gives(0) && !in.gives(1)) in.refuse("its labels are not given here");
  if (end != "NONE" && (!classifier || (end != "SOFTMAX" && end != "LOGISTIC"))) {
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
  if (end == "LOGISTIC") add_activation(in, "sigmoid");
  end == "SOFTMAX" ? in.give_softmax(made, output) : in.give(made, output);
}

// Divides a sample, or its last dimension, by its length: the root of a mean of squares, up to a
// factor.
void import_unit_length(Importer& in) {
  const View view = in.straighten(in.take(0).view);
  const size_t rank = view.dims.size();
  const auto axis = axis_of(in.node().integer("axis", -1), rank);
  const int64_t p = in.node().integer("p", 2);
  if (p == 1) return divide_by_sum(in, in.node().integer("axis", -1));
  if (p != 2) in.refuse("only the norms of sums and of squares are computed here");
  if (axis != rank - 1 || view.batch_axis + 1 == rank) in.refuse("is not over the last dimension");
  const auto features = size_t(view.dims.back());
  Draft draft;
  draft.type = "rmsnorm";
  draft.set("dims", int64_t{1});
  draft.set("eps", "1e-30");  // so that zeros stay zeros
  draft.set("affine", true);
  draft.weights = {
      {"weight", std::vector<float>(features, float(1 / std::sqrt(double(features))))}};
  in.shape_input(Shape(view.sample()));
  in.add(std::move(draft));
  in.give(view);
}

// The output of a softmax already has the sum one.
void import_normalizer(Importer& in) {
  const std::string norm = in.node().text("norm", "MAX");
  const Activation& taken = in.take(0);
  if (norm == "L1" && taken.softmax) return in.give(taken.view);
  if (norm == "L1") return divide_by_sum(in, -1);
  if (norm != "L2") in.refuse(fmt::format("the norm {} is not computed here", norm));
  import_unit_length(in);
}

// Columns of a table.
void import_columns(Importer& in) {
  const ConstantPtr places = in.require_known(1);
  if (!places->integer) in.refuse("its columns are no whole numbers");
  Composition make(in);
  make.finish("Gather", {in.node().input(0), make.integers(places->ints)},
              {{"axis", Composition::integer(-1)}});
}

void import_binarizer(Importer& in) {
  Composition make(in);
  const std::string threshold = make.number(in.node().number("threshold", 0));
  make.finish("Step", {make.add("Sub", {in.node().input(0), threshold})});
}

// A new last dimension for the categories, with a 1 at that of the number.
void import_one_hot(Importer& in) {
  const std::vector<int64_t> categories = in.node().integers("cats_int64s");
  if (categories.empty()) in.refuse("its categories are words");
  std::vector<float> numbers(categories.begin(), categories.end());
  const auto count = int64_t(numbers.size());
  Composition make(in);
  const std::string x =
      make.add("Unsqueeze", {in.node().input(0)}, {{"axes", Composition::list({-1})}});
  make.finish("Equal", {x, make.constant(make_floats({count}, std::move(numbers)))});
}

void import_feature_vectorizer(Importer& in) {
  Composition make(in);
  make.finish("Concat", in.node().inputs, {{"axis", Composition::integer(1)}});
}

// The maps contain the names of the classes.
void import_zip_map(Importer& in) {
  const Node& node = in.node();
  std::vector<std::string> names;
  if (node.has("classlabels_strings")) names = node.attributes.at("classlabels_strings").strings;
  for (const int64_t each : node.integers("classlabels_int64s")) {
    names.push_back(std::to_string(each));
  }
  const View view = in.take(0).view;
  const bool words = node.has("classlabels_strings");
  if (int64_t(names.size()) == view.features()) in.set_classes(std::move(names), words);
  in.give(view);
}

}  // namespace ridgeline::onnx
