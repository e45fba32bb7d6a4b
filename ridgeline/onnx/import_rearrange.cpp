#include <algorithm>
#include <cmath>

#include "ridgeline/nn/config_table.h"
#include "ridgeline/onnx/fold.h"
#include "ridgeline/onnx/importer.h"
#include "ridgeline/ops/join.h"

namespace ridgeline::onnx {

void add_slice(Importer& in, View& view, size_t axis, int64_t begin, int64_t end) {
  view = in.straighten(view);
  in.shape_input(Shape(view.sample()));
  Draft draft;
  draft.type = "slice";
  draft.set("axis", int64_t(axis));
  draft.set("start", begin);
  draft.set("end", end);
  in.add(std::move(draft));
  view.dims[axis < view.batch_axis ? axis : axis + 1] = end - begin;
}

void add_pick(Importer& in, View& view, size_t axis, const std::vector<int64_t>& places) {
  // Neighbours become one slice.
  std::vector<std::pair<int64_t, int64_t>> runs;
  for (const int64_t place : places) {
    if (!runs.empty() && runs.back().second == place) {
      ++runs.back().second;
    } else {
      runs.emplace_back(place, place + 1);
    }
  }
  if (runs.size() > kMostJoined) {
    in.refuse(
        fmt::format("picks {} separate parts; at most {} are joined", runs.size(), kMostJoined));
  }
  in.apply_softmax();
  view = in.straighten(view);
  const int source = in.source();
  const Shape stored = in.stored();
  std::vector<int> parts;
  for (const auto& [begin, end] : runs) {
    View part = view;
    in.resume(source, stored);
    add_slice(in, part, axis, begin, end);
    parts.push_back(in.source());
  }
  view.dims[axis < view.batch_axis ? axis : axis + 1] = int64_t(places.size());
  if (parts.size() == 1) return;
  Draft draft;
  draft.type = "concat";
  draft.set("axis", int64_t(axis));
  in.add_join(std::move(draft), std::move(parts), Shape(view.sample()));
}

// As an image [1, outer, inner], whose rows an upsample repeats.
void add_repeats(Importer& in, View& view, const std::vector<int64_t>& repeats) {
  constexpr int64_t kMost = 1024;  // the largest factor of an upsample
  view = in.straighten(view);
  for (size_t axis = 0; axis < repeats.size(); ++axis) {
    if (repeats[axis] == 1) continue;
    if (axis == view.batch_axis) in.refuse("repeats samples");
    if (repeats[axis] < 1 || repeats[axis] > kMost) {
      in.refuse(fmt::format("repeats {} times; 1 to {} are taken", repeats[axis], kMost));
    }
    int64_t outer = 1;
    for (size_t i = 0; i < axis; ++i) outer *= i == view.batch_axis ? 1 : view.dims[i];
    in.keep_input_shape();
    in.shape_input({1, outer, view.features() / outer});
    Draft draft;
    draft.type = "upsample";
    draft.set("factor", fmt::format("[{}, 1]", repeats[axis]));
    in.add(std::move(draft));
    view.dims[axis] *= repeats[axis];
  }
}

void add_padding(Importer& in, const std::vector<std::pair<int64_t, int64_t>>& pads, double value) {
  std::vector<int64_t> pairs;  // the last axis first
  for (size_t axis = pads.size(); axis-- > 0;) {
    pairs.push_back(pads[axis].first);
    pairs.push_back(pads[axis].second);
  }
  Draft draft;
  draft.type = "pad";
  draft.set("padding", fmt::format("[{}]", fmt::join(pairs, ", ")));
  draft.set("value", nn::toml_number(value));
  in.add(std::move(draft));
}

namespace {

// Returns the places of an axis that padding shows; `pads` before and after it.
std::vector<int64_t> padded_places(Importer& in, const std::string& mode, int64_t extent,
                                   std::pair<int64_t, int64_t> pads) {
  const int64_t most = mode == "reflect" ? extent - 1 : mode == "wrap" ? extent : kMostJoined;
  if (std::max(pads.first, pads.second) > most) {
    in.refuse(fmt::format("pads {} by {}; up to {} is taken", extent,
                          std::max(pads.first, pads.second), most));
  }
  std::vector<int64_t> places;
  for (int64_t at = -pads.first; at < extent + pads.second; ++at) {
    int64_t place = std::clamp<int64_t>(at, 0, extent - 1);  // edge
    if (mode == "reflect") place = extent - 1 - std::abs(extent - 1 - std::abs(at));
    if (mode == "wrap") place = (at + extent) % extent;
    places.push_back(place);
  }
  return places;
}

}  // namespace

// PyTorch writes a Pad before every average pool, which usually pads by nothing.
void import_pad(Importer& in) {
  const Node& node = in.node();
  View view = in.take(0).view;
  const size_t rank = view.dims.size();
  std::vector<int64_t> given = in.has(1) ? in.require_known(1)->ints : node.integers("pads");
  if (std::ranges::all_of(given, [](int64_t each) { return each == 0; })) return in.give(view);
  const std::string mode = node.text("mode", "constant");
  const bool constant = mode == "constant";
  if (!constant && mode != "reflect" && mode != "edge" && mode != "wrap") {
    in.refuse(fmt::format("pads by the mode {}", mode));
  }
  std::vector<int64_t> axes(rank);
  for (size_t i = 0; i < rank; ++i) axes[i] = int64_t(i);
  if (in.has(3)) axes = in.require_known(3)->ints;
  if (given.size() != 2 * axes.size()) in.refuse("its pads do not fit the dimensions");
  const ConstantPtr number = in.has(2) ? in.known(2) : nullptr;
  if (number && number->kept() == 0) in.refuse("pads by a constant that holds no number");
  const double value = number ? number->number(0) : node.number("value", 0);
  view = in.straighten(view);
  std::vector<std::pair<int64_t, int64_t>> pads(rank, {0, 0});
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto axis = axis_of(axes[i], rank);
    if (!axis || pads[*axis] != std::pair<int64_t, int64_t>{0, 0}) {
      in.refuse("its axis is out of range, or named twice");
    }
    auto& [before, after] = pads[*axis] = {given[i], given[axes.size() + i]};
    if (before == 0 && after == 0) continue;
    constexpr int64_t kMost = 1 << 26;
    if (*axis == view.batch_axis) in.refuse("pads the batch");
    if (std::max(before, after) > kMost) in.refuse(fmt::format("pads by more than {}", kMost));
    const size_t place = *axis < view.batch_axis ? *axis : *axis - 1;
    if (!constant) {
      if (std::min(before, after) < 0) in.refuse("pads by less than nothing");
      add_pick(in, view, place, padded_places(in, mode, view.dims[*axis], pads[*axis]));
    } else if (std::min(before, after) < 0) {  // a part is left out
      const int64_t extent = view.dims[*axis];
      const int64_t begin = std::max<int64_t>(0, -before);
      const int64_t end = extent - std::max<int64_t>(0, -after);
      if (before < -extent || after < -extent || begin >= end) in.refuse("leaves nothing");
      add_slice(in, view, place, begin, end);
      before = std::max<int64_t>(0, before);
      after = std::max<int64_t>(0, after);
    }
  }
  if (!constant) return in.give(view);
  in.shape_input(Shape(view.sample()));
  for (size_t i = 0; i < rank; ++i) view.dims[i] += pads[i].first + pads[i].second;
  pads.erase(pads.begin() + ptrdiff_t(view.batch_axis));
  if (std::ranges::any_of(pads, [](const auto& each) { return each.first + each.second > 0; })) {
    add_padding(in, pads, value);
  }
  in.give(view);
}

void import_split(Importer& in) {
  const Node& node = in.node();
  const View view = in.take(0).view;
  const auto axis = axis_of(node.integer("axis", 0), view.dims.size());
  if (!axis || *axis == view.batch_axis) in.refuse("splits the batch");
  const int64_t extent = view.dims[*axis];
  const auto count = int64_t(node.outputs.size());
  std::vector<int64_t> sizes = in.has(1) ? in.require_known(1)->ints : node.integers("split");
  if (sizes.empty()) {
    const int64_t parts = node.integer("num_outputs", count);
    if (parts < 1) in.refuse("splits its input into no parts");
    const int64_t each = (extent - 1) / parts + 1;
    for (int64_t at = 0; at < extent; at += each) sizes.push_back(std::min(each, extent - at));
  }
  if (int64_t(sizes.size()) < count) in.refuse("has more outputs than parts");
  int64_t begin = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] < 1 || sizes[i] > extent - begin) in.refuse("its parts do not fit its input");
    if (i < node.outputs.size() && in.gives(i)) {
      View part = in.take(0).view;
      add_slice(in, part, *axis < view.batch_axis ? *axis : *axis - 1, begin, begin + sizes[i]);
      in.give(part, i);
    }
    begin += sizes[i];
  }
  if (begin != extent) in.refuse("its parts do not fit its input");
}

}  // namespace ridgeline::onnx
