#include <algorithm>
#include <cmath>
#include <numeric>

#include "ridgeline/nn/config_table.h"
#include "ridgeline/nn/join.h"
#include "ridgeline/onnx/composition.h"
#include "ridgeline/onnx/importer.h"
#include "ridgeline/ops/join.h"

namespace ridgeline::onnx {
namespace {

// Whether a constant that is added after a layer is its bias: it is one number, or varies only
// along the layer's outputs.
bool is_bias(const Draft& draft, const Constant& constant, const View& view) {
  if (constant.uniform || constant.numel() == 1) return true;
  const size_t skipped = view.dims.size() - constant.dims.size();
  const bool last = draft.type == "linear";
  for (size_t i = 0; i < constant.dims.size(); ++i) {
    const size_t axis = skipped + i;
    const bool outputs = last ? axis + 1 == view.dims.size() && axis != view.batch_axis
                              : view.batch_first() && axis == 1;
    if (constant.dims[i] != (outputs ? draft.bias_from_add : 1)) return false;
  }
  return true;
}

// Moves the number of the graph's element i to that element's position in memory.
std::vector<double> in_our_order(const std::vector<double>& numbers, const View& view) {
  if (view.in_order()) return numbers;
  std::vector<double> moved(numbers.size());
  for (size_t i = 0; i < numbers.size(); ++i) moved[size_t(view.order[i])] = numbers[i];
  return moved;
}

constexpr int64_t kMostNumbers = int64_t{1} << 22;  // of a scale or shift for one sample

// Returns one number for each element of a sample, in the graph's order.
std::vector<double> spread(const Constant& constant, const View& view) {
  if (view.features() > kMostNumbers) Importer::refuse("the constant varies over too many numbers");
  const size_t skipped = view.dims.size() - constant.dims.size();
  std::vector<double> numbers;
  std::vector<int64_t> at(view.dims.size(), 0);  // the batch stays at 0
  for (int64_t i = 0; i < view.features(); ++i) {
    int64_t place = 0;
    for (size_t k = 0; k < constant.dims.size(); ++k) {
      place = place * constant.dims[k] + (constant.dims[k] == 1 ? 0 : at[skipped + k]);
    }
    numbers.push_back(constant.number(place));
    for (size_t k = at.size(); k-- > 0;) {
      if (k == view.batch_axis) continue;
      if (++at[k] < view.dims[k]) break;
      at[k] = 0;
    }
  }
  return numbers;
}

}  // namespace

Broadcast read_broadcast(const Constant& constant, const View& view) {
  if (constant.integer) Importer::refuse("one input holds whole numbers");
  const size_t rank = view.dims.size();
  if (constant.uniform && constant.dims.size() <= rank) return {Vary::none, {constant.number(0)}};
  if (constant.dims.size() > rank) Importer::refuse("the constant has more dimensions");
  const size_t skipped = rank - constant.dims.size();
  std::vector<size_t> axes;  // along which it varies
  for (size_t i = 0; i < constant.dims.size(); ++i) {
    if (constant.dims[i] == 1) continue;
    if (skipped + i == view.batch_axis || constant.dims[i] != view.dims[skipped + i]) {
      Importer::refuse("the constant does not vary along the dimensions of a sample only");
    }
    axes.push_back(skipped + i);
  }
  if (axes.empty()) return {Vary::none, {constant.number(0)}};
  const bool channel = axes == std::vector<size_t>{view.batch_first() ? size_t{1} : size_t{0}} &&
                       (view.in_order() || rank == 2);
  if (!channel) return {Vary::each, spread(constant, view)};
  Broadcast found{Vary::channel, {}};
  for (int64_t i = 0; i < constant.numel(); ++i) found.numbers.push_back(constant.number(i));
  return found;
}

// Appends a batch norm of mean 0. Its variance and epsilon add up to 1 exactly, so that it rounds
// no more than a product and a sum do.
void add_affine(Importer& in, const View& view, Vary kind, std::vector<double> scale,
                std::vector<double> shift) {
  constexpr float kEpsilon = 0x1p-17f;
  if (kind != Vary::none) {
    const bool channel = kind == Vary::channel;
    in.shape_input(channel ? Shape(view.sample()) : Shape{view.features()});
    scale = in_our_order(scale, view);
    shift = in_our_order(shift, view);
  }
  const int64_t channels = in.stored()[0];
  if (channels > kMostNumbers) in.refuse("scales or shifts a sample of too many numbers");
  scale.resize(size_t(channels), scale[0]);
  shift.resize(size_t(channels), shift[0]);
  Draft draft;
  draft.type = "batchnorm";
  draft.set("eps", nn::toml_number(kEpsilon));
  std::vector<float> weight(scale.begin(), scale.end()), bias(shift.begin(), shift.end());
  draft.weights = {{"weight", std::move(weight)},
                   {"bias", std::move(bias)},
                   {"running_mean", std::vector<float>(size_t(channels), 0.0f)},
                   {"running_var", std::vector<float>(size_t(channels), 1 - kEpsilon)}};
  in.add(std::move(draft));
}

void add_joined(Importer& in, const char* type, std::vector<int> layers) {
  Draft draft;
  draft.type = type;
  in.add_join(std::move(draft), std::move(layers), in.stored());
}

namespace {

// Returns the shape of two values that have the same one; both are in the graph's order, batch
// first.
Shape shared_shape(Importer& in, size_t input) {
  const View view = in.take_plain(input).view;
  const std::vector<int64_t> sample = view.sample();
  in.shape_input(sample.empty() ? Shape{1} : Shape(sample));
  in.apply_softmax();
  return in.stored();
}

// Joins all inputs of the node, which are computed, element by element. Extents of 1 are broadcast.
// `negative`: the second one is subtracted.
void join_values(Importer& in, nn::JoinKind kind, const char* type, bool negative = false) {
  const size_t count = in.node().inputs.size();
  size_t rank = 0;
  for (size_t i = 0; i < count; ++i) rank = std::max(rank, in.look(i).view.dims.size());
  const size_t batch_axis = with_rank(in.look(0).view, rank).batch_axis;
  std::vector<int> layers;
  std::vector<Shape> shapes;
  for (size_t i = 0; i < count; ++i) {
    const View view = with_rank(in.straighten(in.take(i).view), rank);
    if (view.batch_axis != batch_axis) in.refuse("joins values of different dimensions");
    const std::vector<int64_t> sample = view.sample();
    shapes.push_back(sample.empty() ? Shape{1} : Shape(sample));
    in.shape_input(shapes.back());
    in.apply_softmax();
    if (negative && i == 1) add_affine(in, batch_first_view(shapes[1]), -1, 0);
    layers.push_back(in.source());
  }
  Shape shape = shapes[0];
  try {
    shape = nn::JoinLayer(kind).output_of(shapes);
  } catch (const Error& error) {
    in.refuse(error.what());
  }
  View made;
  if (rank > 1) made.dims.assign(shape.dims().begin(), shape.dims().end());
  made.dims.insert(made.dims.begin() + ptrdiff_t(batch_axis), kBatch);
  made.batch_axis = batch_axis;
  if (count == 1) return in.give(made);
  Draft draft;
  draft.type = type;
  in.add_join(std::move(draft), std::move(layers), shape);
  in.give(made);
}

// Handles Add, Sub, Mul and Div of two computed values.
void join_two(Importer& in) {
  const std::string& op = in.node().op;
  if (op == "Add") return join_values(in, nn::JoinKind::add, "add");
  if (op == "Sub") return join_values(in, nn::JoinKind::add, "add", true);
  if (op == "Mul") return join_values(in, nn::JoinKind::multiply, "multiply");
  Composition make(in);
  make.finish("Mul", {in.node().input(0), make.add("Reciprocal", {in.node().input(1)})});
}

}  // namespace

void import_sum(Importer& in) {
  if (in.node().inputs.size() > kMostJoined) in.refuse("joins more values than one layer takes");
  const bool sum = in.node().op == "Sum";
  join_values(in, sum ? nn::JoinKind::add : nn::JoinKind::mean, sum ? "add" : "mean");
}

// max(a, b) = a + relu(b - a), and min(a, b) = a - relu(a - b).
void import_extreme(Importer& in) {
  const bool max = in.node().op == "Max";
  const std::vector<std::string>& all = in.node().inputs;
  if (all.size() == 1) return in.give(in.take(0).view);
  if (all.size() > kMostJoined) in.refuse("compares more values than are taken here");
  std::string so_far = all.empty() ? "" : all[0];
  for (size_t i = 1; all.size() > 2 && i < all.size(); ++i) {
    Node two = in.node();
    two.inputs = {so_far, all[i]};
    if (i + 1 < all.size()) two.outputs = {fmt::format("{}/{}", in.node().outputs[0], i)};
    so_far = two.outputs[0];
    in.import_inner(two);
  }
  if (all.size() > 2) return;
  const bool first_known = in.is_known(0);
  if (first_known || in.is_known(1)) {  // a clip at one side
    const View view = in.take(first_known ? 1 : 0).view;
    const Broadcast bound = read_broadcast(*in.require_known(first_known ? 0 : 1), view);
    const double sign = max ? 1 : -1;
    // As for Clip: exporters write bounds of 1e30 and more for none, and shifts by more than 1e3
    // lose digits of numbers that are within the bound.
    const auto is_none = [&](double each) { return sign * each <= -1e30; };
    if (std::ranges::all_of(bound.numbers, is_none)) return in.give(view);
    const auto loses = [&](double each) { return !(sign * each >= -1e3); };
    if (std::ranges::any_of(bound.numbers, loses)) {
      in.refuse("its bounds are so large that shifts by them lose digits");
    }
    std::vector<double> signs(bound.numbers.size(), sign), shift = bound.numbers, back = shift;
    for (double& each : shift) each *= -sign;
    add_affine(in, view, bound.kind, signs, std::move(shift));
    add_activation(in, "relu");
    add_affine(in, view, bound.kind, signs, std::move(back));
    return in.give(view);
  }
  const Shape shape = shared_shape(in, max ? 1 : 0);
  const int minuend = in.source();
  if (shared_shape(in, max ? 0 : 1) != shape) in.refuse("compares values of different dimensions");
  const View view = batch_first_view(shape);
  const int subtrahend = in.source();
  add_affine(in, view, -1, 0);
  add_joined(in, "add", {minuend, in.source()});
  add_activation(in, "relu");
  if (!max) add_affine(in, view, -1, 0);
  add_joined(in, "add", {max ? subtrahend : minuend, in.source()});
  in.give(view);
}

namespace {

// Constants among the joined values become zeros that pad the value before or after them, plus
// the constants.
void concat_with_constants(Importer& in) {
  const Node& node = in.node();
  const auto constant = [&](size_t i) -> ConstantPtr {
    if (in.repeated(i)) return in.repeated(i);
    const ConstantPtr known = in.known(i);
    if (!known->uniform || known->integer) return in.require_known(i);
    std::vector<int64_t> dims = known->dims;  // a number for the whole batch
    std::ranges::replace(dims, kBatch, int64_t{1});
    const Shape shape(dims);
    if (shape.numel() > kMostNumbers) in.refuse("joins too many numbers");
    return make_floats(dims, std::vector<float>(size_t(shape.numel()), known->floats[0]));
  };
  const auto is_constant = [&](size_t i) { return in.is_known(i) || in.repeated(i); };
  size_t first = 0;
  while (is_constant(first)) ++first;
  const View view = in.look(first).view;
  const size_t rank = view.dims.size();
  const auto axis = axis_of(node.integer("axis", 0), rank);
  if (!axis || *axis == view.batch_axis) in.refuse("joins along the batch");
  Composition make(in);
  std::vector<std::string> parts;
  for (size_t i = 0; i < node.inputs.size();) {
    // A run of constants, one value, and the constants up to the next value.
    std::vector<ConstantPtr> before, after;
    for (; is_constant(i); ++i) before.push_back(constant(i));
    const int64_t extent = in.look(i).view.dims[*axis];
    const std::string value = node.input(i++);
    for (; i < node.inputs.size() && is_constant(i); ++i) after.push_back(constant(i));
    std::vector<int64_t> pads(2 * rank, 0), dims = view.dims;
    dims[view.batch_axis] = 1;
    const auto sum_of = [&](const std::vector<ConstantPtr>& all) {
      int64_t sum = 0;
      for (const ConstantPtr& each : all) {
        std::vector<int64_t> wanted = dims;
        if (each->dims.size() == rank) wanted[*axis] = each->dims[*axis];
        if (each->dims != wanted || each->integer || each->uniform) {
          in.refuse("joins a constant that does not fit the values");
        }
        sum += each->dims[*axis];
      }
      return sum;
    };
    pads[*axis] = sum_of(before);
    pads[rank + *axis] = sum_of(after);
    if (before.empty() && after.empty()) {
      parts.push_back(value);
      continue;
    }
    dims[*axis] = extent;
    std::vector<ConstantPtr> all = before;
    const int64_t zeros = Shape(dims).numel();
    all.push_back(make_floats(dims, std::vector<float>(size_t(zeros), 0.0f)));
    all.insert(all.end(), after.begin(), after.end());
    std::vector<std::string> names;
    for (const ConstantPtr& each : all) names.push_back(make.constant(each));
    const std::string whole =
        make.add("Concat", names, {{"axis", Composition::integer(int64_t(*axis))}});
    parts.push_back(make.add("Add", {make.add("Pad", {value, make.integers(pads)}), whole}));
  }
  make.finish("Concat", parts, {{"axis", Composition::integer(int64_t(*axis))}});
}

}  // namespace

// One layer joins a limited number of values.
void concat_in_parts(Importer& in) {
  const std::vector<std::string>& all = in.node().inputs;
  Composition make(in);
  std::vector<std::string> parts;
  for (size_t at = 0; at < all.size(); at += kMostJoined) {
    const auto begin = all.begin() + ptrdiff_t(at);
    const auto end = all.begin() + ptrdiff_t(std::min(all.size(), at + kMostJoined));
    parts.push_back(make.add("Concat", {begin, end}, in.node().attributes));
  }
  make.finish("Concat", parts, in.node().attributes);
}

void import_concat(Importer& in) {
  const size_t count = in.node().inputs.size();
  if (count > kMostJoined) return concat_in_parts(in);
  for (size_t i = 0; i < count; ++i) {
    if (in.is_known(i) || in.repeated(i)) return concat_with_constants(in);
  }
  View view = in.look(0).view;
  const auto axis = axis_of(in.node().integer("axis", 0), view.dims.size());
  if (!axis || *axis == view.batch_axis) in.refuse("joins along the batch");
  std::vector<int> layers;
  int64_t extent = 0;
  for (size_t i = 0; i < count; ++i) {
    std::vector<int64_t> dims = in.look(i).view.dims;
    if (dims.size() != view.dims.size()) in.refuse("joins values of different dimensions");
    extent += dims[*axis];
    dims[*axis] = view.dims[*axis];
    if (dims != view.dims) in.refuse("joins values of different dimensions");
    const View part = in.straighten(in.take(i).view);
    in.shape_input(Shape(part.sample()));
    in.apply_softmax();
    layers.push_back(in.source());
  }
  view.order.clear();
  if (count == 1) return in.give(view);
  view.dims[*axis] = extent;
  Draft draft;
  draft.type = "concat";
  draft.set("axis", int64_t(*axis < view.batch_axis ? *axis : *axis - 1));
  in.add_join(std::move(draft), std::move(layers), Shape(view.sample()));
  in.give(view);
}

namespace {

// Returns the dimensions that a value gets if a constant varies along some in which it has one
// element; empty if there are none.
std::vector<int64_t> widened(const View& view, const Constant& constant) {
  std::vector<int64_t> dims = view.dims;
  const size_t rank = dims.size();
  if (constant.uniform || constant.dims.size() > rank) return {};
  bool any = false;
  for (size_t i = 0; i < constant.dims.size(); ++i) {
    int64_t& extent = dims[rank - constant.dims.size() + i];
    if (extent != 1 || constant.dims[i] == 1) continue;
    extent = constant.dims[i];
    any = true;
  }
  return any ? dims : std::vector<int64_t>{};
}

}  // namespace

void import_arithmetic(Importer& in) {
  const std::string& op = in.node().op;
  const bool first_known = in.is_known(0) || in.repeated(0);
  if (!first_known && !in.is_known(1) && !in.repeated(1)) return join_two(in);
  const ConstantPtr repeated = in.repeated(first_known ? 0 : 1);
  ConstantPtr operand = repeated ? repeated : in.known(first_known ? 0 : 1);
  if (!operand) in.refuse("has one input instead of two");
  if (op == "Add") operand = in.finite_before_softmax(operand);
  const View view = with_rank(in.take(first_known ? 1 : 0).view, operand->dims.size());
  if (const auto wider = widened(view, *operand); !wider.empty()) {
    Composition make(in);
    const std::string x =
        make.add("Expand", {in.node().input(first_known ? 1 : 0), make.integers(wider)});
    const std::string c = make.constant(operand);
    return make.finish(op.c_str(), {first_known ? c : x, first_known ? x : c});
  }
  const Constant& given = *operand;
  const Broadcast constant = read_broadcast(given, view);
  if (op == "Div" && first_known) {
    Composition make(in);
    const std::string inverse = make.add("Reciprocal", {in.node().input(1)});
    return make.finish("Mul", {inverse, make.constant(operand)});
  }
  std::vector<double> scale(constant.numbers.size(), 1.0), shift(constant.numbers.size(), 0.0);
  for (size_t i = 0; i < scale.size(); ++i) {
    const double number = constant.numbers[i];
    if (op == "Mul") scale[i] = number;
    if (op == "Div") scale[i] = 1 / number;
    if (op == "Add") shift[i] = number;
    if (op == "Sub") shift[i] = first_known ? number : -number;
    if (op == "Sub" && first_known) scale[i] = -1;
  }
  const auto is_one = [](double each) { return each == 1; };
  const auto is_zero = [](double each) { return each == 0; };
  if (std::ranges::all_of(scale, is_one) && std::ranges::all_of(shift, is_zero)) {
    return in.give(view);
  }
  Draft* last = in.only_source(first_known ? 1 : 0);
  const bool adds = op == "Add" || (op == "Sub" && !first_known);
  const bool as_bias = adds && last != nullptr && last->bias_from_add > 0 && view.in_order();
  if (as_bias && is_bias(*last, given, view)) {
    std::vector<float> bias;
    for (int64_t i = 0; i < (given.numel() == last->bias_from_add ? given.numel() : 1); ++i) {
      bias.push_back(float(op == "Add" ? given.number(i) : -given.number(i)));
    }
    bias.resize(size_t(last->bias_from_add), bias[0]);
    last->set_bias(std::move(bias));
    last->origins.push_back(operand);
    in.give(view);
    return;
  }
  add_affine(in, view, constant.kind, std::move(scale), std::move(shift));
  in.give(view);
}

void import_embedding(Importer& in) {
  constexpr int64_t kMostCodes = 256;  // samples of codes are bytes
  const ConstantPtr table = in.require_known(0);
  if (in.node().integer("axis", 0) != 0 || table->dims.size() != 2 || table->integer) {
    in.refuse("is no embedding: only Gather from the rows of a matrix of floats is taken");
  }
  View view = in.take(1).view;
  if (!in.from_input()) in.refuse("is an embedding behind other layers; it is taken first only");
  if (view.dims.size() > 2 || !view.in_order()) in.refuse("its codes are not [N, timesteps]");
  if (table->dims[0] > kMostCodes) {
    in.refuse(fmt::format("has {} codes; samples of codes are bytes, of which there are {}",
                          table->dims[0], kMostCodes));
  }
  Draft draft;
  draft.type = "embedding";
  draft.set("vocabulary", table->dims[0]);
  draft.set("out", table->dims[1]);
  draft.weights.push_back({"weight", table->floats});
  in.shape_input(Shape{view.features()});
  in.add(std::move(draft));
  in.set_codes();
  view.dims.push_back(table->dims[1]);
  in.give(view);
}

}  // namespace ridgeline::onnx
