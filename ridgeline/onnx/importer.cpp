#include "ridgeline/onnx/importer.h"

#include <algorithm>
#include <set>

#include "ridgeline/core/text.h"
#include "ridgeline/core/text_format.h"
#include "ridgeline/nn/config_table.h"
#include "ridgeline/nn/layers.h"
#include "ridgeline/onnx/fold.h"
#include "ridgeline/onnx/fuse.h"

namespace ridgeline::onnx {
namespace {

nn::LayerPtr make_layer(const Draft& draft) {
  auto root = nn::ConfigTable::parse("layer = " + draft.toml(), "layer");
  nn::ConfigTable table = root.table("layer");
  return nn::read_layer(table);
}

bool is_sequence_operator(const std::string& op) {
  return op == "RNN" || op == "GRU" || op == "LSTM";
}

}  // namespace

void Draft::set(const std::string& key, const std::string& value) {
  for (auto& [name, old] : settings) {
    if (name != key) continue;
    old = value;
    return;
  }
  settings.emplace_back(key, value);
}

void Draft::set_pair(const std::string& key, const std::vector<int64_t>& values) {
  set(key, values.size() == 1 ? fmt::format("{}", values[0])
                              : fmt::format("[{}]", fmt::join(values, ", ")));
}

std::string Draft::toml(const std::string& name, const std::string& inputs) const {
  std::string text = "{ ";
  if (!name.empty()) text += fmt::format("name = \"{}\", ", name);
  text += fmt::format("type = \"{}\"", type);
  if (!inputs.empty()) text += fmt::format(", inputs = [{}]", inputs);
  for (const auto& [key, value] : settings) text += fmt::format(", {} = {}", key, value);
  return text + " }";
}

Importer::Importer(Graph graph, const ImportOptions& options)
    : graph_(std::move(graph)), options_(options) {}

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
  if (value->uniform) refuse(fmt::format("input {} has no fixed size", input));
  return value;
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
  if (!taken.view.batch_first() || !taken.view.in_order()) {
    refuse("its input is transposed; only [batch, ...] in order is taken here");
  }
  return taken;
}

void Importer::shape_input(const Shape& wanted) {
  if (stored_ == wanted) return;
  // The net's input may have any shape as long as nobody has read it in another.
  if (source_ < 0 && !input_read_) {
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

void Importer::add(Draft draft) {
  if (softmax_) refuse("follows a Softmax, which is taken at the end of a net only");
  try {
    stored_ = make_layer(draft)->output(stored_);
  } catch (const Error& error) {
    refuse(error.what());
  }
  if (source_ < 0) input_read_ = true;
  draft.inputs = {source_};
  source_ = int(drafts_.size());
  drafts_.push_back(std::move(draft));
}

void Importer::add_join(Draft draft, std::vector<int> layers, const Shape& output) {
  for (const std::string& name : node_->inputs) {
    if (!activations_[name].softmax) continue;
    refuse("follows a Softmax, which is taken at the end of a net only");
  }
  for (const int layer : layers) input_read_ = input_read_ || layer < 0;
  draft.inputs = std::move(layers);
  source_ = int(drafts_.size());
  stored_ = output;
  drafts_.push_back(std::move(draft));
}

Draft* Importer::only_source(size_t input) {
  if (source_ < 0 || reads_[node_->input(input)] != 1) return nullptr;
  // A view between the layer and the node must not be read by others either.
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

void Importer::give_softmax(View view) {
  if (softmax_) refuse("follows a Softmax, which is taken at the end of a net only");
  softmax_ = true;
  give(std::move(view));
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
    const ConstantPtr value = all ? fold(node, inputs, graph_.opset) : nullptr;
    if (value) {
      graph_.constants[node.outputs[0]] = value;
    } else {
      left.push_back(std::move(node));
    }
  }
  graph_.nodes = std::move(left);
}

bool Importer::read_by_sequence(const std::string& name) const {
  return std::ranges::any_of(graph_.nodes, [&](const Node& node) {
    return is_sequence_operator(node.op) && node.input(0) == name && node.integer("layout", 0) == 0;
  });
}

// The one input that the output depends on, which of its dimensions is the batch, and its shape.
void Importer::choose_input() {
  std::set<std::string> read;
  for (const Node& node : graph_.nodes) read.insert(node.inputs.begin(), node.inputs.end());
  std::vector<const ValueInfo*> found;
  for (const ValueInfo& input : graph_.inputs) {
    if (read.contains(input.name)) found.push_back(&input);
  }
  const auto fail = [&](const std::string& what) {
    throw_error(ErrorKind::model, "{}: {}", graph_.file, what);
  };
  if (found.size() != 1) {
    fail(fmt::format("the output {} depends on {}; nets of one input are imported", quote(output_),
                     counted(int64_t(found.size()), "input")));
  }
  const ValueInfo& input = *found.front();
  const size_t rank = input.dims.size();
  // Types that onnx.proto does not know, as 8-bit floats, have no name there.
  if (input.type.starts_with("type ") || input.type.starts_with("COMPLEX") ||
      input.type == "STRING" || input.type == "no tensor") {
    fail(fmt::format("the input {} holds {}, which is not taken", quote(input.name), input.type));
  }
  if (!input.known_shape || rank == 0 || rank > size_t(Shape::kMaxRank)) {
    fail(fmt::format("the input {} has no shape [batch, ...]", quote(input.name)));
  }
  View view;
  view.dims = input.dims;
  const auto open = std::ranges::find(view.dims, -1);
  if (open != view.dims.end()) view.batch_axis = size_t(open - view.dims.begin());
  // Sequences of ONNX's recurrent operators have the batch second.
  if (rank == 3 && read_by_sequence(input.name)) view.batch_axis = 1;
  const int64_t batch = view.dims[view.batch_axis];
  file_batch_ = batch > 0 ? batch : 0;
  view.dims[view.batch_axis] = kBatch;
  batch_axis_ = view.batch_axis;
  if (options_.input.rank() > 0) {
    if (size_t(options_.input.rank()) + 1 != rank) {
      throw_error(ErrorKind::usage, "{}: a sample of {} has {}, not the shape {}", graph_.file,
                  quote(input.name), counted(int64_t(rank) - 1, "dimension"),
                  to_string(options_.input));
    }
    int given = 0;
    for (int64_t& extent : view.dims) {
      if (extent != kBatch) extent = options_.input[given++];
    }
  }
  for (const int64_t extent : view.dims) {
    if (extent == kBatch || extent > 0) continue;
    fail(
        fmt::format("the input {} is {}, which leaves more open than the batch: give the shape of "
                    "a sample with --input-shape",
                    quote(input.name), dims_text(view.dims)));
  }
  const std::vector<int64_t> sample = view.sample();
  input_ = stored_ = sample.empty() ? Shape{1} : Shape(sample);
  activations_[input.name] = {std::move(view), stored_, -1, false};
  graph_.inputs = {ValueInfo(input)};
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

// False: it reads a value that an earlier node has failed to give.
bool Importer::import_node(const Node& node) {
  node_ = &node;
  bool all_known = true;
  std::vector<ConstantPtr> inputs;
  for (const std::string& name : node.inputs) {
    const auto found = constants_.find(name);
    if (!name.empty() && found == constants_.end()) {
      all_known = false;
      if (!activations_.contains(name) && !graph_.untaken.contains(name)) return false;
    }
    inputs.push_back(found == constants_.end() ? nullptr : found->second);
  }
  if (all_known) {
    if (const ConstantPtr value = fold(node, inputs, graph_.opset)) {
      give_known(value);
      return true;
    }
  }
  const ImportOperator import = find_operator(node.domain, node.op);
  if (import == nullptr) refuse("this operator is not known here");
  if (all_known) refuse("all its inputs are constants, and it is not computed here");
  import(*this);
  return true;
}

ImportedModel Importer::run() {
  output_ = options_.output;
  for (const ValueInfo& output : graph_.outputs) {
    if (output_.empty() && output.floats) output_ = output.name;
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
    // Shape looks at dimensions alone.
    for (const std::string& name : node.inputs) reads_[name] += node.op != "Shape";
  }
  ++reads_[output_];

  std::vector<std::string> lines;
  for (const Node& node : graph_.nodes) {
    try {
      if (!import_node(node) && find_operator(node.domain, node.op) == nullptr) {
        refuse("this operator is not known here");
      }
    } catch (const Refusal& refusal) {
      // What follows a refusal may be its consequence; an unknown operator is one in any case.
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

ImportedModel Importer::result() {
  const auto end = activations_.find(output_);
  const auto fail = [&](const std::string& what) {
    throw RefusedModel(fmt::format("{}: {}", graph_.file, what), {what});
  };
  if (end == activations_.end()) fail("its output does not depend on its input");
  if (end->second.layer + 1 != int(drafts_.size())) {
    fail("its output is not what its last layer gives");
  }
  if (!end->second.view.in_order()) fail("its output is transposed, which no layer does");
  const size_t axis = end->second.view.batch_axis;
  if (batch_axis_ != 0 || axis != 0) {
    warnings_.push_back(
        fmt::format("{}: has its batch as dimension {} of the input and {} of the output; here "
                    "samples come first",
                    graph_.file, batch_axis_, axis));
  }
  if (drafts_.empty()) {
    Draft nothing;
    nothing.type = "flatten";
    nothing.inputs = {-1};
    drafts_.push_back(nothing);
  }
  ImportedModel model;
  // Layers that read the one before need no names.
  std::set<int> named_layers;
  const auto chained = [&](size_t i) { return drafts_[i].inputs == std::vector<int>{int(i) - 1}; };
  for (size_t i = 0; i < drafts_.size(); ++i) {
    if (!chained(i)) named_layers.insert(drafts_[i].inputs.begin(), drafts_[i].inputs.end());
  }
  for (size_t i = 0; i < drafts_.size(); ++i) {
    std::vector<std::string> inputs;
    for (const int each : chained(i) ? std::vector<int>{} : drafts_[i].inputs) {
      inputs.push_back(each < 0 ? "\"input\"" : fmt::format("\"layer{}\"", each));
    }
    model.layers.push_back(
        drafts_[i].toml(named_layers.contains(int(i)) ? fmt::format("layer{}", i) : std::string(),
                        fmt::format("{}", fmt::join(inputs, ", "))));
    for (ImportedModel::Weight& weight : drafts_[i].weights) {
      model.weights.push_back({fmt::format("{}.{}", i, weight.name), std::move(weight.values)});
    }
  }
  model.input = input_;
  model.input_name = graph_.inputs.front().name;
  model.output_name = output_;
  model.input_batch_axis = batch_axis_;
  model.output_batch_axis = axis;
  model.codes = codes_;
  model.softmax = end->second.softmax;
  model.warnings = std::move(warnings_);
  return model;
}

ImportedModel import_model(const std::filesystem::path& file, const ImportOptions& options) {
  return Importer(read_graph(file), options).run();
}

}  // namespace ridgeline::onnx
