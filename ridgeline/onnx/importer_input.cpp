#include <algorithm>
#include <set>

#include "ridgeline/core/text.h"
#include "ridgeline/core/text_format.h"
#include "ridgeline/onnx/importer.h"

// The inputs of a graph that is imported, and their shapes.
namespace ridgeline::onnx {
namespace {

bool is_sequence_operator(const std::string& op) {
  return op == "RNN" || op == "GRU" || op == "LSTM";
}

}  // namespace

bool Importer::read_by_sequence(const std::string& name) const {
  return std::ranges::any_of(graph_.nodes, [&](const Node& node) {
    return is_sequence_operator(node.op) && node.input(0) == name && node.integer("layout", 0) == 0;
  });
}

// Finds the inputs that the output depends on, their batch dimension, and the shapes of samples.
void Importer::choose_input() {
  std::set<std::string> read;
  for (const Node& node : graph_.nodes) {
    read.insert(node.inputs.begin(), node.inputs.end());
    read.insert(node.captured.begin(), node.captured.end());
  }
  std::vector<const ValueInfo*> found;
  for (const ValueInfo& input : graph_.inputs) {
    if (read.contains(input.name)) found.push_back(&input);
  }
  if (found.empty()) {
    throw_error(ErrorKind::model, "{}: the output {} depends on no input", graph_.file,
                quote(output_));
  }
  if (found.size() > 1) return join_inputs(found);
  const ValueInfo& input = *found.front();
  View view = input_view(input, false);
  batch_axis_ = view.batch_axis;
  const std::vector<int64_t> sample = view.sample();
  sample_ = input_ = stored_ = sample.empty() ? Shape{1} : Shape(sample);
  activations_[input.name] = {std::move(view), stored_, -1, false};
  graph_.inputs = {ValueInfo(input)};
}

// The samples of several inputs lie side by side in that of the net, and a slice takes each out.
void Importer::join_inputs(const std::vector<const ValueInfo*>& inputs) {
  if (options_.input.rank() > 0) {
    throw_error(ErrorKind::usage, "{}: --input-shape is for nets of one input, and this has {}",
                graph_.file, inputs.size());
  }
  std::vector<View> views;
  int64_t width = 0;
  for (const ValueInfo* input : inputs) {
    views.push_back(input_view(*input, true));
    if (!input->floats) {
      throw_error(ErrorKind::model, "{}: of several inputs each holds floats, and {} holds {}",
                  graph_.file, quote(input->name), input->type);
    }
    const std::vector<int64_t> sample = views.back().sample();
    inputs_.push_back({input->name, sample.empty() ? Shape{1} : Shape(sample)});
    width = checked_add(width, inputs_.back().shape.numel(), "the inputs");
  }
  sample_ = input_ = Shape{width};
  int64_t begin = 0;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const int64_t end = begin + inputs_[i].shape.numel();
    resume(-1, input_);
    Draft slice;
    slice.type = "slice";
    slice.set("start", begin);
    slice.set("end", end);
    add(std::move(slice));
    shape_input(inputs_[i].shape);
    activations_[inputs_[i].name] = {views[i], stored_, source_, false};
    begin = end;
  }
  graph_.inputs = {ValueInfo(*inputs.front())};
}

View Importer::input_view(const ValueInfo& input, bool several) {
  const auto fail = [&](const std::string& what) {
    throw_error(ErrorKind::model, "{}: {}", graph_.file, what);
  };
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
  if (several && view.batch_axis != 0) {
    fail(fmt::format("of several inputs each has the batch first, and {} has not",
                     quote(input.name)));
  }
  file_batch_ = batch > 0 ? batch : 0;
  view.dims[view.batch_axis] = kBatch;
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
  if (const std::vector<int64_t> sample = view.sample(); Shape(sample).numel() > kMostFeatures) {
    fail(fmt::format("the input {} is {}, and a sample of at most {} numbers is taken",
                     quote(input.name), dims_text(view.dims), kMostFeatures));
  }
  return view;
}

}  // namespace ridgeline::onnx
