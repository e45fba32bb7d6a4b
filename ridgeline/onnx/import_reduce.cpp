#include <algorithm>

#include "ridgeline/onnx/fold.h"
#include "ridgeline/onnx/importer.h"

namespace ridgeline::onnx {
namespace {

// Returns the axes that the node reduces; all of them if it names none.
std::vector<bool> reduced_axes(Importer& in, const View& view) {
  const size_t rank = view.dims.size();
  const auto axes = axes_of(in.node(), in.known(1));
  std::vector<bool> reduced(rank, !axes || axes->empty());
  for (const int64_t given : axes.value_or(std::vector<int64_t>{})) {
    const auto axis = axis_of(given, rank);
    if (!axis) in.refuse("an axis is out of range");
    reduced[*axis] = true;
  }
  if (reduced[view.batch_axis]) in.refuse("reduces over the batch");
  return reduced;
}

}  // namespace

// The reduced axes become the pixels of a pool over whole channels.
void import_reduce(Importer& in) {
  const Node& node = in.node();
  View view = in.take(0).view;
  const bool none = !axes_of(node, in.known(1)) || axes_of(node, in.known(1))->empty();
  if (none && node.integer("noop_with_empty_axes", 0) != 0) return in.give(view);
  const std::vector<bool> reduced = reduced_axes(in, view);
  std::vector<int64_t> perm, last;
  View made;
  int64_t count = 1;
  for (size_t i = 0; i < reduced.size(); ++i) {
    (reduced[i] ? last : perm).push_back(int64_t(i));
    if (reduced[i]) count *= view.dims[i];
    if (i == view.batch_axis) made.batch_axis = made.dims.size();
    if (!reduced[i]) made.dims.push_back(view.dims[i]);
    if (reduced[i] && node.integer("keepdims", 1) != 0) made.dims.push_back(1);
  }
  perm.insert(perm.end(), last.begin(), last.end());
  view = in.straighten(transposed(view, perm));
  const int64_t kept = view.features() / count;
  // Images keep their shape.
  const bool image = last.size() <= 2 && view.dims.size() == last.size() + 2 && view.batch_first();
  in.keep_input_shape();
  in.shape_input(image ? Shape(view.sample()) : Shape{kept, count});
  const View plain = batch_first_view(in.stored());
  const bool min = node.op == "ReduceMin";
  if (min) add_affine(in, plain, -1, 0);
  Draft draft;
  if (min || node.op == "ReduceMax") {
    draft.type = image && last.size() == 2 ? "maxpool2d" : "maxpool1d";
    draft.set_pair("kernel", {in.stored().dims().begin() + 1, in.stored().dims().end()});
  } else {
    draft.type = "global_avgpool";
  }
  in.add(std::move(draft));
  if (min) add_affine(in, made, -1, 0);
  if (node.op == "ReduceSum") add_affine(in, made, double(count), 0);
  in.give(made);
}

}  // namespace ridgeline::onnx
