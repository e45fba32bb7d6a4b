#include <algorithm>

#include "ridgeline/nn/config_table.h"
#include "ridgeline/onnx/importer.h"

namespace ridgeline::onnx {
namespace {

// An attribute is an fp32 number: the shortest decimal that reads back as it.
std::string epsilon_of(const Node& node) {
  const auto epsilon = float(node.number("epsilon", 1e-5));
  return nn::toml_number(std::stod(fmt::format("{}", epsilon)));
}

std::vector<float> floats_of(Importer& in, size_t input, int64_t count) {
  const ConstantPtr values = in.require_known(input);
  if (values->integer || values->numel() != count) {
    in.refuse(fmt::format("input {} does not fit the channels", input));
  }
  return values->floats;
}

// Expands one number per group to one per channel.
std::vector<float> by_channel(std::vector<float> values, int64_t channels) {
  if (int64_t(values.size()) == channels) return values;
  std::vector<float> all;
  const int64_t each = channels / int64_t(values.size());
  for (const float value : values) all.insert(all.end(), size_t(each), value);
  return all;
}

}  // namespace

void import_batch_norm(Importer& in) {
  const View view = in.take_plain(0).view;
  if (view.dims.size() < 2) in.refuse("its input has no channels");
  if (in.node().integer("training_mode", 0) != 0) in.refuse("training_mode is not 0");
  if (in.node().integer("spatial", 1) != 1) in.refuse("spatial is not 1");
  if (in.opset() < 7 && in.node().integer("is_test", 0) == 0) in.refuse("is in training mode");
  const int64_t channels = view.dims[1];
  Draft draft;
  draft.type = "batchnorm";
  draft.set("eps", epsilon_of(in.node()));
  draft.weights = {{"weight", floats_of(in, 1, channels)},
                   {"bias", floats_of(in, 2, channels)},
                   {"running_mean", floats_of(in, 3, channels)},
                   {"running_var", floats_of(in, 4, channels)}};
  in.shape_input(Shape(view.sample()));
  in.add(std::move(draft));
  in.give(view);
}

void import_layer_norm(Importer& in) {
  const View view = in.straighten(in.take(0).view);
  if (in.gives(1) || in.gives(2)) in.refuse("mean and deviation as outputs are not given here");
  const size_t rank = view.dims.size();
  const auto axis = axis_of(in.node().integer("axis", -1), rank);
  if (!axis || *axis <= view.batch_axis) in.refuse("normalises over the batch");
  int64_t count = 1;
  for (size_t i = *axis; i < rank; ++i) count *= view.dims[i];
  Draft draft;
  draft.type = "layernorm";
  draft.set("dims", int64_t(rank - *axis));
  draft.set("eps", epsilon_of(in.node()));
  draft.weights.push_back({"weight", floats_of(in, 1, count)});
  draft.weights.push_back(
      {"bias", in.has(2) ? floats_of(in, 2, count) : std::vector<float>(size_t(count), 0.0f)});
  in.shape_input(Shape(view.sample()));
  in.add(std::move(draft));
  in.give(view);
}

void import_rms_norm(Importer& in) {
  const View view = in.straighten(in.take(0).view);
  const size_t rank = view.dims.size();
  const auto axis = axis_of(in.node().integer("axis", -1), rank);
  if (!axis || *axis <= view.batch_axis) in.refuse("normalises over the batch");
  int64_t count = 1;
  for (size_t i = *axis; i < rank; ++i) count *= view.dims[i];
  Draft draft;
  draft.type = "rmsnorm";
  draft.set("dims", int64_t(rank - *axis));
  draft.set("eps", epsilon_of(in.node()));
  draft.set("affine", in.has(1));
  if (in.has(1)) draft.weights.push_back({"weight", floats_of(in, 1, count)});
  in.shape_input(Shape(view.sample()));
  in.add(std::move(draft));
  in.give(view);
}

namespace {

// Whether a constant varies along all of the last dimensions that are normalised, and no others.
bool is_affine(const ConstantPtr& constant, const View& view, size_t normalised) {
  if (!constant || constant->integer || constant->uniform) return !constant;
  const size_t rank = view.dims.size();
  if (constant->dims.size() > rank || constant->dims.size() < normalised) return false;
  for (size_t i = 0; i < constant->dims.size(); ++i) {
    const size_t axis = rank - constant->dims.size() + i;
    if (constant->dims[i] != (axis >= rank - normalised ? view.dims[axis] : 1)) return false;
  }
  return true;
}

}  // namespace

// A node of fuse(): x, scale, shift; attributes axes (none: all behind the channels), epsilon and
// centred.
void import_normalize(Importer& in) {
  const Node& node = in.node();
  const View view = in.take(0).view;
  const size_t rank = view.dims.size();
  std::vector<bool> reduced(rank, false);
  for (const int64_t each : node.integers("axes")) {
    const auto axis = axis_of(each, rank);
    if (!axis) in.refuse("an axis is out of range");
    reduced[*axis] = true;
  }
  if (node.integers("axes").empty()) {
    if (rank < 3) in.refuse("its input has no dimensions behind the channels");
    std::fill(reduced.begin() + 2, reduced.end(), true);
  }
  if (reduced[view.batch_axis]) in.refuse("normalises over the batch");
  std::vector<int64_t> perm, last, back(rank);
  for (size_t i = 0; i < rank; ++i) (reduced[i] ? last : perm).push_back(int64_t(i));
  perm.insert(perm.end(), last.begin(), last.end());
  for (size_t i = 0; i < rank; ++i) back[size_t(perm[i])] = int64_t(i);
  const View moved = in.straighten(transposed(view, perm));
  const bool centred = node.integer("centred", 1) != 0;
  const ConstantPtr scale = in.has(1) ? in.require_known(1) : nullptr;
  const ConstantPtr shift = in.has(2) ? in.require_known(2) : nullptr;
  const bool own = perm == back && scale && is_affine(scale, view, last.size()) &&
                   (centred ? is_affine(shift, view, last.size()) : !shift);
  Draft draft;
  draft.type = centred ? "layernorm" : "rmsnorm";
  draft.set("dims", int64_t(last.size()));
  draft.set("eps", epsilon_of(node));
  draft.set("affine", own);
  if (own) draft.weights.push_back({"weight", scale->floats});
  if (own && centred) {
    draft.weights.push_back(
        {"bias", shift ? shift->floats : std::vector<float>(scale->floats.size(), 0.0f)});
  }
  in.shape_input(Shape(moved.sample()));
  in.add(std::move(draft));
  const View made = transposed(moved, back);
  if (!own && scale) {
    const Broadcast by = read_broadcast(*scale, made);
    add_affine(in, made, by.kind, by.numbers, std::vector<double>(by.numbers.size(), 0.0));
  }
  if (!own && shift) {
    const Broadcast by = read_broadcast(*shift, made);
    add_affine(in, made, by.kind, std::vector<double>(by.numbers.size(), 1.0), by.numbers);
  }
  in.give(made);
}

void import_group_norm(Importer& in) {
  const View view = in.take_plain(0).view;
  if (view.dims.size() < 2) in.refuse("its input has no channels");
  const int64_t channels = view.dims[1];
  const bool instance = in.node().op == "InstanceNormalization";
  const int64_t groups = instance ? channels : in.node().integer("num_groups", 0);
  if (groups < 1 || channels % groups != 0) in.refuse("num_groups does not divide the channels");
  // Opset 18 has a scale for each group, opset 21 one for each channel.
  const int64_t count = in.require_known(1)->numel() == groups ? groups : channels;
  Draft draft;
  draft.type = "groupnorm";
  draft.set("groups", groups);
  draft.set("eps", epsilon_of(in.node()));
  draft.weights = {{"weight", by_channel(floats_of(in, 1, count), channels)},
                   {"bias", by_channel(floats_of(in, 2, count), channels)}};
  in.shape_input(Shape(view.sample()));
  in.add(std::move(draft));
  in.give(view);
}

}  // namespace ridgeline::onnx
