#include <algorithm>
#include <numeric>
#include <set>

#include "ridgeline/onnx/importer.h"
#include "ridgeline/ops/join.h"

// Nodes that read [N * T, ...], to which a Reshape has made [N, T, ...]. Some operators treat the
// rows of such a value alike and read [N, T, ...] as well. The others are applied to each of the T
// parts, with the same weights.
namespace ridgeline::onnx {
namespace {

bool treats_rows_alike(const std::string& op) {
  static const std::set<std::string> kOperators{
      "Abs",        "Add",      "Cast",           "Ceil",        "Celu",      "Clip",
      "Cos",        "Div",      "Dropout",        "Elu",         "Exp",       "Floor",
      "Gelu",       "Gemm",     "Silu",           "HardSigmoid", "HardSwish", "Identity",
      "LeakyRelu",  "Log",      "MatMul",         "Mish",        "Mul",       "Neg",
      "Reciprocal", "Relu",     "Round",          "Selu",        "Sigmoid",   "Sign",
      "Sin",        "Softplus", "Softsign",       "Sqrt",        "Step",      "Sub",
      "Swish",      "Tanh",     "ThresholdedRelu"};
  return kOperators.contains(op);
}

}  // namespace

int64_t Importer::merged_input(const Node& node) const {
  int64_t parts = 1;
  for (const std::string& name : node.inputs) {
    const auto found = activations_.find(name);
    if (found != activations_.end()) parts = std::max(parts, found->second.view.merged);
  }
  return parts;
}

void Importer::import_merged(const Node& node, int64_t parts) {
  bool split = false;
  std::optional<View> first;
  for (const std::string& name : node.inputs) {
    const auto found = activations_.find(name);
    if (found == activations_.end()) continue;
    if (node.op == "Reshape") join_parts(name);
    const View& view = found->second.view;
    if (!first) first = view;
    if (view.merged != parts || view.merged_before != first->merged_before) {
      refuse("mixes the batch with others in several ways");
    }
    split = split || !found->second.parts.empty();
  }
  if (node.op == "Reshape") return apply(node);
  if (node.op == "Shape") refuse("gives dimensions that mix the batch with others");
  if (!split && node.op == "Transpose") return transpose_merged();
  const bool last = (node.op == "Softmax" && opset() >= 13) || node.op == "LayerNormalization";
  const bool over_rows = last && node.integer("axis", -1) == -1;
  if (!split && (over_rows || treats_rows_alike(node.op))) return import_rows(node, *first);
  import_parts(node, parts);
}

// The merged dimension moves with the batch.
void Importer::transpose_merged() {
  const View view = take(0).view;
  const size_t rank = view.dims.size(), batch = view.batch_axis;
  std::vector<int64_t> perm = node_->integers("perm");
  if (perm.empty()) {
    perm.resize(rank);
    std::iota(perm.rbegin(), perm.rend(), 0);
  }
  if (perm.size() != rank) refuse("perm is no order of its dimensions");
  std::vector<int64_t> all;
  std::vector<bool> seen(rank, false);
  for (const int64_t each : perm) {
    const auto axis = axis_of(each, rank);
    if (!axis || seen[*axis]) refuse("perm is no order of its dimensions");
    seen[*axis] = true;
    all.push_back(int64_t(*axis > batch ? *axis + 1 : *axis));
    if (*axis == batch) all.push_back(int64_t(batch) + 1);
  }
  give(merged_again(transposed(unmerged(view), all), view.merged_before));
}

// Reads [N, T, ...] in the place of [N * T, ...], and [T, N, ...] in that of [T * N, ...].
void Importer::import_rows(const Node& node, const View& merged) {
  std::map<std::string, View> views;
  for (const std::string& name : node.inputs) {
    // Dimensions before the batch have other places in what is read here.
    const ConstantPtr constant = constant_named(name);
    for (size_t i = 0; constant && i < constant->dims.size(); ++i) {
      const size_t axis =
          i + merged.dims.size() - std::min(merged.dims.size(), constant->dims.size());
      if (axis < merged.batch_axis && constant->dims[i] != 1) {
        refuse("has a constant that varies before the batch, which is mixed with others");
      }
    }
  }
  for (const std::string& name : node.inputs) {
    const auto found = activations_.find(name);
    if (found == activations_.end() || views.contains(name)) continue;
    views[name] = found->second.view;
    found->second.view = unmerged(found->second.view);
  }
  apply(node);
  for (const auto& [name, view] : views) activations_[name].view = view;
  for (const std::string& name : node.outputs) {
    const auto found = activations_.find(name);
    if (found != activations_.end())
      found->second.view = merged_again(found->second.view, merged.merged_before);
  }
}

void Importer::import_parts(const Node& node, int64_t parts) {
  if (parts > int64_t(kMostJoined)) {
    refuse(fmt::format("is applied to {} parts of each sample; at most {} are taken", parts,
                       kMostJoined));
  }
  std::map<std::string, Activation> whole;
  for (const std::string& name : node.inputs) {
    const Activation* value = activation_named(name);
    if (value != nullptr && (value->view.merged_before || !value->view.batch_first())) {
      refuse("mixes the batch with others, as only operators that treat rows alike may read it");
    }
  }
  for (const std::string& name : node.inputs) {
    if (!activations_.contains(name) || whole.contains(name)) continue;
    split_parts(name);
    whole[name] = activations_[name];
  }
  std::map<std::string, Activation> made;
  for (size_t i = 0; i < size_t(parts); ++i) {
    for (const auto& [name, activation] : whole) activations_[name] = activation.parts[i];
    apply(node);
    for (const std::string& name : node.outputs) {
      const auto found = activations_.find(name);
      if (name.empty() || found == activations_.end()) continue;
      if (!found->second.view.batch_first()) refuse("moves a batch that is mixed with others");
      if (i == 0) made[name] = found->second;
      made[name].parts.push_back(found->second);
    }
  }
  for (const auto& [name, activation] : whole) activations_[name] = activation;
  for (auto& [name, activation] : made) {
    activation.view.merged = parts;
    activation.layer = -1;
    activations_[name] = std::move(activation);
  }
}

void Importer::split_parts(const std::string& name) {
  Activation& value = activations_[name];
  if (!value.parts.empty()) return;
  const int64_t parts = value.view.merged;
  source_ = value.layer;
  stored_ = value.stored;
  softmax_ = value.softmax;
  const View view = straighten(unmerged(value.view));
  keep_input_shape();
  const int64_t each = view.features() / parts;
  shape_input({parts, each});
  const int rows = source_;
  const Shape shape = stored_;
  std::vector<Activation> made;
  for (int64_t i = 0; i < parts; ++i) {
    resume(rows, shape);
    Draft draft;
    draft.type = "select";
    draft.set("at", i == parts - 1 ? -1 : i);
    add(std::move(draft));
    Activation part{value.view, stored_, source_, false};
    part.view.merged = 1;
    part.view.order.clear();
    made.push_back(std::move(part));
  }
  value.parts = std::move(made);
}

void Importer::join_parts(const std::string& name) {
  Activation& value = activations_[name];
  if (value.parts.empty()) return;
  std::vector<int> layers;
  for (const Activation& part : value.parts) {
    source_ = part.layer;
    stored_ = part.stored;
    softmax_ = part.softmax;
    apply_softmax();
    const View view = straighten(part.view);
    shape_input(Shape{view.features()});
    layers.push_back(source_);
  }
  Draft draft;
  draft.type = "concat";
  const int64_t width = value.view.features();
  add_join(std::move(draft), std::move(layers), Shape{width});
  value.parts.clear();
  value.view.order.clear();
  value.layer = source_;
  value.stored = stored_;
  value.softmax = false;
}

}  // namespace ridgeline::onnx
