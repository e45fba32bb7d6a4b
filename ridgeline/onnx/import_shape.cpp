#include <algorithm>
#include <cmath>
#include <numeric>

#include "ridgeline/onnx/composition.h"
#include "ridgeline/onnx/fold.h"
#include "ridgeline/onnx/importer.h"

namespace ridgeline::onnx {
namespace {

std::vector<int64_t> flattened(Importer& in, const View& view) {
  const auto rank = int64_t(view.dims.size());
  int64_t axis = in.node().integer("axis", 1);
  if (axis < 0) axis += rank;
  if (axis < 1 || axis > rank || !view.batch_first()) {
    in.refuse("flattens the batch into other dimensions");
  }
  int64_t last = 1;
  for (auto i = size_t(axis); i < view.dims.size(); ++i) last *= view.dims[i];
  return {axis == 1 ? kBatch : -1, last};
}

std::vector<int64_t> unsqueezed(Importer& in, const View& view) {
  const auto axes = axes_of(in.node(), in.known(1));
  if (!axes) in.refuse("its axes are not known");
  std::vector<int64_t> dims = view.dims;
  std::vector<size_t> places;
  for (const int64_t given : *axes) {
    const auto axis = axis_of(given, dims.size() + axes->size());
    if (!axis) in.refuse("an axis is out of range");
    places.push_back(*axis);
  }
  std::ranges::sort(places);
  for (const size_t place : places) {
    if (place > dims.size()) in.refuse("an axis is out of range");
    dims.insert(dims.begin() + ptrdiff_t(place), 1);
  }
  return dims;
}

std::vector<int64_t> squeezed(Importer& in, const View& view) {
  const auto axes = axes_of(in.node(), in.known(1));
  std::vector<bool> gone(view.dims.size(), false);
  if (!axes) {
    for (size_t i = 0; i < gone.size(); ++i) gone[i] = view.dims[i] == 1;
  } else {
    for (const int64_t given : *axes) {
      const auto axis = axis_of(given, view.dims.size());
      if (!axis || view.dims[*axis] != 1) in.refuse("squeezes a dimension that is not 1");
      gone[*axis] = true;
    }
  }
  std::vector<int64_t> dims;
  for (size_t i = 0; i < gone.size(); ++i) {
    if (!gone[i]) dims.push_back(view.dims[i]);
  }
  return dims;
}

// Returns the index of an axis among those of a sample; refuses the batch's.
size_t sample_axis(Importer& in, const View& view, int64_t given) {
  const auto axis = axis_of(given, view.dims.size());
  if (!axis) in.refuse("its axis is out of range");
  if (*axis == view.batch_axis) in.refuse("picks samples from the batch");
  return *axis < view.batch_axis ? *axis : *axis - 1;
}

// Selects one element of the first dimension of a sample: a timestep of a sequence.
void select(Importer& in, const View& view, size_t axis, int64_t at) {
  const std::vector<int64_t> sample = view.sample();
  const int64_t extent = sample[axis];
  if (at < -extent || at >= extent) in.refuse("picks what is not there");
  if (axis != 0 || sample.size() < 2) {
    View kept = view;
    return add_slice(in, kept, axis, at < 0 ? at + extent : at, (at < 0 ? at + extent : at) + 1);
  }
  in.straighten(view);
  const int64_t steps = extent;
  in.shape_input({steps, view.features() / steps});
  Draft draft;
  draft.type = "select";
  draft.set("at", at == steps - 1 ? -1 : at);
  in.add(std::move(draft));
}

}  // namespace

void import_view(Importer& in) {
  const std::string& op = in.node().op;
  const View view = in.take(0).view;
  if (op == "Transpose") {
    std::vector<int64_t> perm = in.node().integers("perm");
    if (perm.empty()) {
      perm.resize(view.dims.size());
      std::iota(perm.rbegin(), perm.rend(), 0);
    }
    std::vector<int64_t> sorted = perm;
    std::ranges::sort(sorted);
    for (size_t i = 0; i < view.dims.size(); ++i) {
      if (sorted.size() != view.dims.size() || sorted[i] != int64_t(i)) {
        in.refuse("perm is no order of its dimensions");
      }
    }
    return in.give(transposed(view, perm));
  }
  std::vector<int64_t> dims;
  bool zero_is_kept = false;
  if (op == "Reshape") {
    const ConstantPtr shape = in.require_known(1);
    if (!shape->integer) in.refuse("its shape is no list of whole numbers");
    dims = shape->ints;
    zero_is_kept = in.node().integer("allowzero", 0) == 0;
  } else {
    dims = op == "Flatten"     ? flattened(in, view)
           : op == "Unsqueeze" ? unsqueezed(in, view)
                               : squeezed(in, view);
  }
  const auto made = reshaped(view, dims, in.file_batch(), zero_is_kept);
  if (!made) in.refuse(fmt::format("gives {}, which mixes the batch with others", dims_text(dims)));
  in.give(*made);
}

namespace {

// Whole numbers stay floats. Those of a truth value, and of what is rounded, stay as they are.
void cast_to_whole(Importer& in, int64_t to) {
  constexpr int64_t kInt32 = 6, kInt64 = 7, kBool = 9;
  Composition make(in);
  const std::string& x = in.node().input(0);
  if (to == kBool) return make.finish("Step", {make.add("Abs", {x})});
  if (to != kInt32 && to != kInt64) in.refuse("casts what is computed to small whole numbers");
  const auto part = [&](const std::string& of) {
    return make.add("Floor", {make.add("Relu", {of})});
  };
  make.finish("Sub", {part(x), part(make.add("Neg", {x}))});
}

}  // namespace

void import_identity(Importer& in) {
  const Node& node = in.node();
  const View view = in.take(0).view;
  if (node.op == "Cast") {
    const int64_t to = node.integer("to", 0);
    const bool floats = to == 1 || to == 10 || to == 11 || to == 16;
    // Codes and bytes may be cast to integers before anything is computed.
    if (!floats && !in.from_input()) return cast_to_whole(in, to);
  }
  if (node.op == "CastLike" && in.is_known(1) && in.known(1)->integer) {
    in.refuse("casts what is computed to whole numbers");
  }
  if (node.op == "Dropout" && in.opset() < 7 && node.integer("is_test", 0) == 0) {
    in.refuse("is in training mode");
  }
  if (node.op == "Dropout" && in.gives(1)) in.refuse("its mask is not given here");
  if (node.op == "Dropout" && in.has(2)) {
    const ConstantPtr training = in.known(2);
    if (!training->all_zero()) in.refuse("is in training mode");
  }
  in.give(view);
}

// Gives the dimensions of a value, with the batch as a symbol.
void import_shape(Importer& in) {
  const std::vector<int64_t>& dims = in.look(0).view.dims;
  const auto rank = int64_t(dims.size());
  const auto place = [&](const char* name, int64_t fallback) {
    int64_t at = in.node().integer(name, fallback);
    if (at < 0) at += rank;
    return std::clamp<int64_t>(at, 0, rank);
  };
  const int64_t begin = place("start", 0), end = std::max(begin, place("end", rank));
  std::vector<int64_t> part(dims.begin() + begin, dims.begin() + end);
  const auto count = int64_t(part.size());
  in.give_known(make_ints({count}, std::move(part)));
}

namespace {

// Indices of several dimensions: those of the list, in its shape.
void gather_array(Importer& in, const Constant& indices, int64_t given) {
  std::vector<int64_t> dims = in.look(0).view.dims;
  const auto axis = axis_of(given, dims.size());
  if (!axis) in.refuse("its axis is out of range");
  const auto at = dims.begin() + ptrdiff_t(*axis);
  dims.insert(dims.erase(at), indices.dims.begin(), indices.dims.end());
  Composition make(in);
  const std::string list = make.add("Gather", {in.node().input(0), make.integers(indices.ints)},
                                    {{"axis", Composition::integer(given)}});
  make.finish("Reshape", {list, make.integers(std::move(dims))});
}

}  // namespace

void import_gather(Importer& in) {
  if (in.is_known(0)) return import_embedding(in);
  const ConstantPtr indices = in.require_known(1);
  View view = in.take(0).view;
  if (!indices->integer) in.refuse("its indices are no whole numbers");
  const int64_t given = in.node().integer("axis", 0);
  if (indices->dims.size() > 1) return gather_array(in, *indices, given);
  const size_t axis = sample_axis(in, view, given), at = *axis_of(given, view.dims.size());
  std::vector<int64_t> places = indices->ints;
  for (int64_t& place : places) {
    if (place < 0) place += view.dims[at];
    if (place < 0 || place >= view.dims[at]) in.refuse("picks what is not there");
  }
  if (places.empty()) in.refuse("picks nothing");
  if (places.size() > 1) {
    add_pick(in, view, axis, places);
    return in.give(view);
  }
  select(in, view, axis, places[0]);
  view.order.clear();
  if (!indices->dims.empty()) {
    view.dims[at] = 1;
  } else {
    view.dims.erase(view.dims.begin() + ptrdiff_t(at));
    if (at < view.batch_axis) --view.batch_axis;
  }
  in.give(view);
}

void import_slice(Importer& in) {
  const Node& node = in.node();
  View view = in.take(0).view;
  const auto list = [&](size_t input, const char* attribute) {
    if (!in.has(input)) return node.integers(attribute);
    return in.require_known(input)->ints;
  };
  const auto starts = list(1, "starts"), ends = list(2, "ends"), steps = list(4, "steps");
  auto axes = list(3, "axes");
  for (size_t i = axes.size(); i < starts.size(); ++i) axes.push_back(int64_t(i));
  if (starts.size() != ends.size()) in.refuse("its starts and ends do not fit each other");
  for (size_t i = 0; i < starts.size(); ++i) {
    const auto axis = axis_of(axes[i], view.dims.size());
    if (!axis) in.refuse("its axis is out of range");
    if (*axis == view.batch_axis) in.refuse("picks samples from the batch");
    const int64_t extent = view.dims[*axis];
    // A step beyond the end is one as long as all of it.
    const int64_t step = std::clamp(i < steps.size() ? steps[i] : 1, -extent - 1, extent + 1);
    const int64_t least = step < 0 ? -1 : 0;  // going back ends before the first
    const auto place = [&](int64_t at) {
      if (at < 0) at = std::max(at, -extent - 1) + extent;
      return std::clamp(at, least, extent + least);
    };
    const int64_t begin = place(starts[i]), end = place(ends[i]);
    if (begin == 0 && end == extent && step == 1) continue;
    const size_t place_in_sample = sample_axis(in, view, axes[i]);
    if (step == 0 || begin == end || (begin < end) != (step > 0)) in.refuse("slices nothing");
    if (step == -1 && begin == extent - 1 && end == -1) {
      view = flipped(view, *axis);
      continue;
    }
    if (step != 1) {
      std::vector<int64_t> places;
      for (int64_t at = begin; step > 0 ? at < end : at > end; at += step) places.push_back(at);
      add_pick(in, view, place_in_sample, places);
      continue;
    }
    if (end - begin == 1 && place_in_sample == 0 && view.dims.size() == 3) {
      select(in, view, place_in_sample, begin);
      view.dims[*axis] = 1;
      view.order.clear();
    } else {
      add_slice(in, view, place_in_sample, begin, end);
    }
  }
  in.give(view);
}

// Repeats a constant over the batch, or a computed value along dimensions of one element.
void import_expand(Importer& in) {
  const ConstantPtr shape = in.require_known(1);
  if (!in.is_known(0)) {
    View view = in.take(0).view;
    std::vector<int64_t> repeats = shape->ints;
    if (repeats.size() > view.dims.size()) in.refuse("adds dimensions");
    repeats.insert(repeats.begin(), view.dims.size() - repeats.size(), 1);
    for (size_t i = 0; i < repeats.size(); ++i) {
      const bool batch = i == view.batch_axis && repeats[i] == in.file_batch();
      if (batch || repeats[i] == view.dims[i]) repeats[i] = 1;
      if (repeats[i] != 1 && view.dims[i] != 1) in.refuse("repeats more than one element");
    }
    add_repeats(in, view, repeats);
    return in.give(view);
  }
  const ConstantPtr value = in.require_known(0);
  // Each dimension keeps its size, except for a one that becomes the batch.
  std::vector<int64_t> dims = value->dims;
  if (dims.size() < shape->ints.size())
    dims.insert(dims.begin(), shape->ints.size() - dims.size(), 1);
  for (size_t i = 0; i < dims.size(); ++i) {
    const size_t skipped = dims.size() - shape->ints.size();
    const int64_t wanted = i < skipped ? 1 : shape->ints[i - skipped];
    if (wanted != dims[i] && wanted != 1 && !(wanted == kBatch && dims[i] == 1)) {
      in.refuse("repeats a constant along other dimensions than the batch");
    }
  }
  in.repeat_known(value);
}

void import_tile(Importer& in) {
  const ConstantPtr repeats = in.require_known(1);
  View view = in.take(0).view;
  if (!repeats->integer || repeats->ints.size() != view.dims.size()) {
    in.refuse("its repeats do not fit its input");
  }
  add_repeats(in, view, repeats->ints);
  in.give(view);
}

// Reverses sequences that all have their full length.
void import_reverse_sequence(Importer& in) {
  const View view = in.take(0).view;
  const ConstantPtr repeated = in.repeated(1);
  const ConstantPtr lengths = repeated ? repeated : in.known(1);
  const auto batch = axis_of(in.node().integer("batch_axis", 1), view.dims.size());
  const auto time = axis_of(in.node().integer("time_axis", 0), view.dims.size());
  if (!batch || !time || *batch != view.batch_axis || *time == *batch) {
    in.refuse("its axes are not those of sequences");
  }
  const auto is_whole = [&](int64_t length) { return length == view.dims[*time]; };
  if (!lengths || !lengths->integer || !std::ranges::all_of(lengths->ints, is_whole)) {
    in.refuse("its samples have lengths of their own");
  }
  in.give(flipped(view, *time));
}

namespace {

// Whether a softmax is over all numbers of a sample; `axis` is where it begins.
bool over_all(Importer& in, const View& view, size_t& axis) {
  const bool flattens = in.opset() < 13;  // from the axis on
  const auto found = axis_of(in.node().integer("axis", flattens ? 1 : -1), view.dims.size());
  if (!found || *found == view.batch_axis || (flattens && *found < view.batch_axis)) {
    in.refuse("its axis is not one of a sample");
  }
  axis = *found;
  int64_t count = view.dims[axis];
  for (size_t i = axis + 1; flattens && i < view.dims.size(); ++i) count *= view.dims[i];
  return count == view.features();
}

}  // namespace

// At the end of a net the loss includes it; elsewhere it is a layer.
void import_softmax(Importer& in) {
  View view = in.take(0).view;
  size_t axis = 0;
  if (over_all(in, view, axis)) return in.give_softmax(view);
  std::vector<int64_t> perm(view.dims.size());  // the classes last
  std::iota(perm.begin(), perm.end(), 0);
  if (in.opset() >= 13) {
    perm.erase(perm.begin() + ptrdiff_t(axis));
    perm.push_back(int64_t(axis));
  }
  view = in.straighten(transposed(view, perm));
  int64_t classes = 1;
  for (size_t i = in.opset() < 13 ? axis : view.dims.size() - 1; i < view.dims.size(); ++i) {
    classes *= view.dims[i] == kBatch ? 1 : view.dims[i];
  }
  in.keep_input_shape();
  in.shape_input({view.features() / classes, classes});
  add_activation(in, "softmax");
  std::vector<int64_t> back(perm.size());
  for (size_t i = 0; i < perm.size(); ++i) back[size_t(perm[i])] = int64_t(i);
  in.give(transposed(view, back));
}

// The probabilities of a classifier are those of the softmax. Elsewhere it is x less the logarithm
// of the sum of exp(x), both less the largest x.
void import_log_softmax(Importer& in) {
  const View view = in.take(0).view;
  size_t axis = 0;
  if (over_all(in, view, axis) && in.gives_classes()) return in.give_softmax(view);
  std::vector<int64_t> axes;
  for (size_t i = axis; i < (in.opset() < 13 ? view.dims.size() : axis + 1); ++i) {
    axes.push_back(int64_t(i));
  }
  Composition make(in);
  const std::string& x = in.node().input(0);
  const Composition::Attributes along{{"axes", Composition::list(axes)}};
  const std::string less = make.add("Sub", {x, make.add("ReduceMax", {x}, along)});
  const std::string log = make.add("ReduceLogSum", {make.add("Exp", {less})}, along);
  make.finish("Sub", {less, log});
}

// Labels at the end are those of a classifier.
void import_argmax(Importer& in) {
  const View view = in.look(0).view;
  const auto axis = axis_of(in.node().integer("axis", 0), view.dims.size());
  if (!in.gives_output() || !axis || *axis == view.batch_axis ||
      view.dims[*axis] != view.features()) {
    in.refuse("gives labels elsewhere than at the end of a classifier");
  }
  if (in.node().integer("select_last_index", 0) != 0) in.refuse("gives the last of equal maxima");
  in.take(0).softmax ? in.give(view) : in.give_softmax(view);
}

// Moves blocks of pixels to channels, or vice versa.
void import_depth(Importer& in) {
  const Node& node = in.node();
  const View view = in.take(0).view;
  const int64_t b = node.integer("blocksize", 0);
  if (view.dims.size() != 4 || !view.batch_first() || b < 1) in.refuse("its input is no image");
  const int64_t c = view.dims[1], h = view.dims[2], w = view.dims[3];
  const bool to_space = node.op == "DepthToSpace";
  if (to_space ? b > c || c % (b * b) != 0 : h % b != 0 || w % b != 0)
    in.refuse("its blocks do not fit");
  std::vector<int64_t> split, perm, whole;
  if (!to_space) {
    split = {kBatch, c, h / b, b, w / b, b};
    perm = {0, 3, 5, 1, 2, 4};
    whole = {kBatch, c * b * b, h / b, w / b};
  } else {
    const bool columns_first = node.text("mode", "DCR") == "DCR";
    split = columns_first ? std::vector<int64_t>{kBatch, b, b, c / (b * b), h, w}
                          : std::vector<int64_t>{kBatch, c / (b * b), b, b, h, w};
    perm = columns_first ? std::vector<int64_t>{0, 3, 4, 1, 5, 2}
                         : std::vector<int64_t>{0, 1, 4, 2, 5, 3};
    whole = {kBatch, c / (b * b), h * b, w * b};
  }
  in.give(*reshaped(transposed(*reshaped(view, split, 0), perm), whole, 0));
}

}  // namespace ridgeline::onnx
