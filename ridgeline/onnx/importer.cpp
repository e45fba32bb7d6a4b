#include "ridgeline/onnx/importer.h"

#include <algorithm>
#include <numeric>

#include "ridgeline/core/text.h"
#include "ridgeline/core/text_format.h"
#include "ridgeline/nn/config_table.h"
#include "ridgeline/nn/layers.h"
#include "ridgeline/onnx/fold.h"
#include "ridgeline/onnx/fold_array.h"
#include "ridgeline/onnx/fuse.h"

namespace ridgeline::onnx {
namespace {

nn::LayerPtr make_layer(const Draft& draft) {
  auto root = nn::ConfigTable::parse("layer = " + draft.toml(), "layer");
  nn::ConfigTable table = root.table("layer");
  return nn::read_layer(table);
}

}  // namespace

Importer::Importer(Graph graph, const ImportOptions& options)
    : graph_(std::move(graph)), options_(options) {
  for (const auto& [name, value] : graph_.constants) foldable_ += 8 * value->kept();
}

ConstantPtr Importer::known(size_t input) const {
  const std::string& name = node_->input(input);
  if (name.empty()) return nullptr;
  const auto found = constants_.find(name);
  if (found != constants_.end()) return found->second;
  const auto untaken = graph_.untaken.find(name);
  if (untaken != graph_.untaken.end()) {
    refuse(fmt::format("{} is {}, which is not taken", quote(name), untaken->second));
  }
  refuse(
      fmt::format("{} is computed from the samples; only a constant is taken there", quote(name)));
}

ConstantPtr Importer::require_known(size_t input) const {
  const ConstantPtr value = known(input);
  if (!value) refuse(fmt::format("has no input {}", input));
  if (!value->uniform) return value;
  constexpr int64_t kMost = int64_t{1} << 22;  // a small file must not become large weights
  const int64_t count = value->numel();
  if (count < 0 || count > kMost) refuse(fmt::format("input {} has no fixed size", input));
  if (value->integer) {
    return make_ints(value->dims, std::vector<int64_t>(size_t(count), value->ints[0]));
  }
  return make_floats(value->dims, std::vector<float>(size_t(count), value->floats[0]));
}

const Activation& Importer::look(size_t input) const {
  const std::string& name = node_->input(input);
  const auto found = activations_.find(name);
  if (found != activations_.end()) return found->second;
  refuse(fmt::format("{} is a constant; only what is computed from the samples is taken there",
                     quote(name)));
}

const Activation& Importer::take(size_t input) {
  const Activation& found = look(input);
  softmax_ = found.softmax;
  source_ = found.layer;
  stored_ = found.stored;
  return found;
}

const Activation& Importer::take_plain(size_t input) {
  const Activation& taken = take(input);
  if (!taken.view.batch_first()) {
    refuse("the batch is not the first dimension of its input, as is taken here");
  }
  if (taken.view.in_order()) return taken;
  // Other readers of the value get it in the straightened form.
  Activation& kept = activations_[node_->input(input)];
  kept.view = straighten(taken.view);
  kept.layer = source_;
  kept.stored = stored_;
  kept.softmax = softmax_;
  return kept;
}

namespace {

// An axis in the graph's order: neighbours along it are `stride` apart in our order.
struct Strided {
  int64_t extent, stride;
};

// Returns the axes, outermost first, that enumerate `order`; empty if there are none.
std::vector<Strided> axes_of_order(std::vector<int64_t> order) {
  std::vector<Strided> found;
  while (order.size() > 1) {
    const int64_t stride = order[1] - order[0];
    size_t run = 2;
    while (run < order.size() && order[run] - order[run - 1] == stride) ++run;
    if (order.size() % run != 0) return {};
    std::vector<int64_t> outer;
    for (size_t i = 0; i < order.size(); ++i) {
      if (i % run == 0) outer.push_back(order[i]);
      if (order[i] != outer.back() + int64_t(i % run) * stride) return {};
    }
    found.insert(found.begin(), {int64_t(run), stride});
    order = std::move(outer);
  }
  return found;
}

}  // namespace

View Importer::straighten(const View& view) {
  if (view.in_order()) return view;
  std::vector<Strided> graph = axes_of_order(view.order);
  std::vector<bool> backwards(graph.size());
  for (size_t i = 0; i < graph.size(); ++i) {
    backwards[i] = graph[i].stride < 0;
    graph[i].stride = std::abs(graph[i].stride);
  }
  std::vector<size_t> ours(graph.size());  // the axes in memory order
  std::iota(ours.begin(), ours.end(), size_t{0});
  std::ranges::stable_sort(ours,
                           [&](size_t a, size_t b) { return graph[a].stride > graph[b].stride; });
  std::vector<int64_t> dims, axes(graph.size());
  int64_t inner = view.features();
  bool dense = !graph.empty() && graph.size() < size_t(Shape::kMaxRank);
  for (size_t i = 0; i < ours.size(); ++i) {
    dims.push_back(graph[ours[i]].extent);
    axes[ours[i]] = int64_t(i);
    inner /= dims.back();
    dense = dense && graph[ours[i]].stride == inner;
  }
  if (!dense) refuse("its input is transposed in a way that no transpose of our own makes");
  if (!std::ranges::is_sorted(axes)) {
    shape_input(Shape(dims));
    Draft draft;
    draft.type = "transpose";
    draft.set("axes", fmt::format("[{}]", fmt::join(axes, ", ")));
    add(std::move(draft));
  }
  for (size_t i = 0; i < graph.size(); ++i) {
    if (!backwards[i]) continue;
    View forwards;
    forwards.dims = {kBatch};
    for (const Strided& each : graph) forwards.dims.push_back(each.extent);
    std::vector<int64_t> places(size_t(graph[i].extent));
    std::iota(places.rbegin(), places.rend(), int64_t{0});
    add_pick(*this, forwards, i, places);
  }
  View made = view;
  made.order.clear();
  return made;
}

void Importer::resume(int layer, const Shape& stored) {
  source_ = layer;
  stored_ = stored;
}

ConstantPtr Importer::repeated(size_t input) const {
  const auto found = repeated_.find(node_->input(input));
  return found == repeated_.end() ? nullptr : found->second;
}

void Importer::shape_input(const Shape& wanted) {
  if (stored_ == wanted) return;
  // An image of one channel, or a row of numbers, may be given with or without that dimension.
  const auto squeezed = [](const Shape& shape) {
    std::vector<int64_t> dims(shape.dims().begin(), shape.dims().end());
    std::erase(dims, 1);
    return dims;
  };
  if (source_ < 0 && !input_read_ && squeezed(stored_) == squeezed(wanted)) {
    input_ = stored_ = wanted;
    return;
  }
  Draft draft;
  draft.type = wanted.rank() == 1 ? "flatten" : "reshape";
  if (wanted.rank() > 1) {
    draft.set("shape", fmt::format("[{}]", fmt::join(wanted.dims(), ", ")));
  }
  add(std::move(draft));
}

void Importer::apply_softmax() {
  if (!softmax_) return;
  softmax_ = false;
  const Shape shape = stored_;  // its sum does not depend on the order
  shape_input(Shape{shape.numel()});
  Draft draft;
  draft.type = "softmax";
  add(std::move(draft));
  shape_input(shape);
}

void Importer::add(Draft draft) {
  apply_softmax();
  try {
    stored_ = make_layer(draft)->output(stored_);
  } catch (const Error& error) {
    refuse(error.what());
  }
  if (stored_.numel() > kMostFeatures) refuse("gives more numbers a sample than are taken here");
  if (source_ < 0) input_read_ = true;
  for (size_t i = 0; node_ != nullptr && !draft.weights.empty() && i < node_->inputs.size(); ++i) {
    const auto found = constants_.find(node_->inputs[i]);
    if (found != constants_.end()) draft.origins.push_back(found->second);
  }
  draft.inputs = {source_};
  source_ = int(drafts_.size());
  drafts_.push_back(std::move(draft));
}

void Importer::add_join(Draft draft, std::vector<int> layers, const Shape& output) {
  if (output.numel() > kMostFeatures) refuse("gives more numbers a sample than are taken here");
  for (const int layer : layers) input_read_ = input_read_ || layer < 0;
  draft.inputs = std::move(layers);
  source_ = int(drafts_.size());
  stored_ = output;
  drafts_.push_back(std::move(draft));
}

Draft* Importer::only_source(size_t input) {
  if (source_ < 0 || softmax_ || reads_[node_->input(input)] != 1) return nullptr;
  // A view between the layer and the node must not have other readers either.
  int readers = 0;
  for (const auto& [name, value] : activations_) {
    if (value.layer == source_) readers += reads_[name];
  }
  int views = 0;
  for (const auto& [name, value] : activations_) views += value.layer == source_;
  return readers == views ? &drafts_[size_t(source_)] : nullptr;
}

void Importer::give(View view, size_t output) {
  if (!gives(output)) return;
  activations_[node_->outputs[output]] = {std::move(view), stored_, source_, softmax_};
}

void Importer::give_softmax(View view, size_t output) {
  apply_softmax();
  softmax_ = true;
  give(std::move(view), output);
}

// Nodes that have only constants as inputs become constants.
void Importer::fold_known() {
  std::vector<Node> left;
  for (Node& node : graph_.nodes) {
    std::vector<ConstantPtr> inputs;
    bool all = node.outputs.size() == 1;
    for (const std::string& name : node.inputs) {
      const auto found = graph_.constants.find(name);
      all = all && (name.empty() || found != graph_.constants.end());
      inputs.push_back(found == graph_.constants.end() ? nullptr : found->second);
    }
    const ConstantPtr value = all ? folded(node, inputs) : nullptr;
    if (value) {
      graph_.constants[node.outputs[0]] = value;
    } else {
      left.push_back(std::move(node));
    }
  }
  graph_.nodes = std::move(left);
}

ConstantPtr Importer::folded(const Node& node, const std::vector<ConstantPtr>& inputs) {
  const ConstantPtr value = fold(node, inputs, foldable_);
  if (!value || value->kept() > foldable_) return nullptr;
  foldable_ -= value->kept();
  return value;
}

ConstantPtr Importer::constant_named(const std::string& name) const {
  const auto found = constants_.find(name);
  return found == constants_.end() ? nullptr : found->second;
}

const Activation* Importer::activation_named(const std::string& name) const {
  const auto found = activations_.find(name);
  return found == activations_.end() ? nullptr : &found->second;
}

void Importer::name_same(const std::string& name, const std::string& as) {
  if (const auto value = constant_named(as)) constants_[name] = value;
  if (const auto value = activations_.find(as); value != activations_.end()) {
    const Activation copy = value->second;
    activations_[name] = copy;
  }
  if (const auto value = repeated_.find(as); value != repeated_.end()) {
    const ConstantPtr copy = value->second;
    repeated_[name] = copy;
  }
  ++reads_[as];
}

void Importer::import_inner(const Node& node) {
  const Node* outer = node_;
  try {
    if (!import_node(node)) refuse("it reads a value that is not given here");
  } catch (const Refusal& refusal) {
    node_ = outer;
    refuse(fmt::format("in its body, {}", line(node, refusal.reason)));
  }
  node_ = outer;
}

std::string Importer::shape_of(const std::string& name) const {
  if (const auto found = constants_.find(name); found != constants_.end()) {
    return dims_text(found->second->dims);
  }
  if (const auto found = activations_.find(name); found != activations_.end()) {
    return dims_text(found->second.view.dims);
  }
  if (const auto found = graph_.values.find(name); found != graph_.values.end()) {
    return dims_text(found->second.dims);
  }
  return "?";
}

std::string Importer::line(const Node& node, const std::string& reason) const {
  std::vector<std::string> shapes;
  for (const std::string& name : node.inputs) {
    if (!name.empty()) shapes.push_back(shape_of(name));
  }
  return fmt::format("{} with inputs {}: {}", node.title(), fmt::join(shapes, " "), reason);
}

// Returns false if it reads a value that an earlier node failed to give.
bool Importer::import_node(const Node& node) {
  node_ = &node;
  bool all_known = true;
  std::vector<ConstantPtr> inputs;
  for (const std::string& name : node.inputs) {
    const auto found = constants_.find(name);
    if (!name.empty() && found == constants_.end()) {
      all_known = false;
      if (!activations_.contains(name) && !graph_.untaken.contains(name) &&
          !repeated_.contains(name)) {
        return false;
      }
    }
    inputs.push_back(found == constants_.end() ? nullptr : found->second);
  }
  for (const std::string& name : node.captured) {
    if (constants_.contains(name)) continue;
    all_known = false;
    if (!activations_.contains(name) && !repeated_.contains(name)) return false;
  }
  if (all_known && node.op == "Split" && node.domain.empty() && !inputs.empty() && inputs[0]) {
    const std::vector<ConstantPtr> split = fold_split(node, inputs);
    for (size_t i = 0; i < split.size(); ++i) constants_[node.outputs[i]] = split[i];
    if (!split.empty()) return true;
  }
  if (all_known) {
    if (const ConstantPtr value = folded(node, inputs)) {
      give_known(value);
      return true;
    }
  }
  if (fold_repeated(node)) return true;
  const ImportOperator import = find_operator(node.domain, node.op);
  if (import == nullptr) refuse("this operator is not known here");
  if (all_known && node.op != "Expand") {
    refuse("all its inputs are constants, and it is not computed here");
  }
  // Before opset 7, the second operand began at an axis of the first.
  if (opset() < 7 && node.has("axis") && import == import_arithmetic) {
    refuse("repeats its second input from an axis on, as operators of opset 6 did");
  }
  const int64_t parts = merged_input(node);
  parts == 1 ? import(*this) : import_merged(node, parts);
  return true;
}

// Folds a node of which all inputs are constants, some of them repeated over the batch, for a batch
// of one; its outputs are then repeated too.
bool Importer::fold_repeated(const Node& node) {
  bool any = false;
  std::vector<ConstantPtr> inputs;
  for (const std::string& name : node.inputs) {
    const auto repeated = repeated_.find(name);
    const auto known = constants_.find(name);
    if (repeated != repeated_.end()) {
      any = true;
      inputs.push_back(repeated->second);
      continue;
    }
    if (known == constants_.end() && !name.empty()) return false;
    ConstantPtr value = known == constants_.end() ? nullptr : known->second;
    if (value && value->uniform && value->numel() < 0) {
      any = true;
      std::vector<int64_t> dims = value->dims;
      std::ranges::replace(dims, kBatch, int64_t{1});
      if (value->integer || !is_sized(dims, foldable_)) return false;
      auto one = std::make_shared<Constant>(*value);
      one->dims = std::move(dims);
      one->uniform = false;
      one->floats.assign(size_t(one->numel()), value->floats[0]);
      value = std::move(one);
    }
    inputs.push_back(std::move(value));
  }
  if (!any || inputs.empty() || !inputs[0] || node.op == "Expand" || node.op == "Shape") {
    return false;
  }
  if (node.op == "Split" && node.domain.empty()) {
    const std::vector<ConstantPtr> parts = fold_split(node, inputs);
    for (size_t i = 0; i < parts.size(); ++i) repeated_[node.outputs[i]] = parts[i];
    return !parts.empty();
  }
  const ConstantPtr value = node.outputs.size() == 1 ? folded(node, inputs) : nullptr;
  if (value) repeated_[node.outputs[0]] = value;
  return value != nullptr;
}

void Importer::apply(const Node& node) {
  const Node* outer = node_;
  node_ = &node;
  find_operator(node.domain, node.op)(*this);
  node_ = outer;
}

ImportedModel Importer::run() {
  output_ = options_.output;
  for (const ValueInfo& output : graph_.outputs) {
    if (output_.empty() && output.floats) output_ = output.name;
  }
  // Probabilities of scikit-learn's classifiers may be a list of maps, and some nets end in labels.
  const auto is_output = [&](const Node& node) {
    return !node.outputs.empty() && std::ranges::any_of(graph_.outputs, [&](const ValueInfo& each) {
      return each.name == node.outputs[0];
    });
  };
  for (const Node& node : graph_.nodes) {
    const bool ends = node.op == "ZipMap" || node.op == "ArgMax";
    if (output_.empty() && ends && is_output(node)) output_ = node.outputs[0];
  }
  const auto named = std::ranges::find(graph_.outputs, output_, &ValueInfo::name);
  if (named == graph_.outputs.end()) {
    std::vector<std::string> names;
    for (const ValueInfo& output : graph_.outputs) names.push_back(output.name);
    throw_error(ErrorKind::usage, "{}: has no output {} of floats; its outputs are {}", graph_.file,
                quote(output_), list_words(names));
  }
  for (const ValueInfo& output : graph_.outputs) {
    if (output.name == output_) continue;
    warnings_.push_back(
        fmt::format("{}: the output {} is left out", graph_.file, quote(output.name)));
  }
  keep_only(graph_, output_);
  fold_known();
  fuse(graph_, output_);
  keep_only(graph_, output_);
  choose_input();
  constants_ = std::move(graph_.constants);
  for (const Node& node : graph_.nodes) {
    // A Shape node only reads dimensions.
    for (const std::string& name : node.inputs) reads_[name] += node.op != "Shape";
    for (const std::string& name : node.captured) ++reads_[name];
  }
  ++reads_[output_];

  std::vector<std::string> lines;
  for (const Node& node : graph_.nodes) {
    try {
      if (!import_node(node) && find_operator(node.domain, node.op) == nullptr) {
        refuse("this operator is not known here");
      }
    } catch (const Refusal& refusal) {
      // Later refusals may be consequences of the first; an unknown operator is always reported.
      if (lines.empty() || find_operator(node.domain, node.op) == nullptr) {
        lines.push_back(line(node, refusal.reason));
      }
    }
  }
  if (!lines.empty()) {
    throw RefusedModel(fmt::format("{}: {} cannot be imported: {}", graph_.file,
                                   counted(int64_t(lines.size()), "node"), fmt::join(lines, "; ")),
                       lines);
  }
  return result();
}

ImportedModel import_model(const std::filesystem::path& file, const ImportOptions& options) {
  return Importer(read_graph(file), options).run();
}

}  // namespace ridgeline::onnx
