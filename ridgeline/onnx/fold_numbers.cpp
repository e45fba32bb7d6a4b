#include <algorithm>
#include <cmath>

#include "ridgeline/onnx/fold.h"
#include "ridgeline/onnx/fold_array.h"
#include "ridgeline/onnx/view.h"

// Functions of constants that weights pass through: norms of them, and masks.
namespace ridgeline::onnx {
namespace {

// The constant with all its floats in memory; null if they are too many or none.
ConstantPtr dense(const ConstantPtr& from, int64_t most) {
  if (!from || from->integer || !is_sized(from->dims, most)) return nullptr;
  if (!from->uniform) return from;
  return make_floats(from->dims, std::vector<float>(size_t(from->numel()), from->floats[0]));
}

// One of the triangles of the last two dimensions becomes zero.
ConstantPtr triangle(const Node& node, const Constant& from, const Constant* diagonal,
                     int64_t most) {
  const size_t rank = from.dims.size();
  if (rank < 2 || !is_sized(from.dims, most)) return nullptr;
  const int64_t k = diagonal != nullptr && diagonal->kept() == 1 ? int64_t(diagonal->number(0)) : 0;
  const bool upper = node.integer("upper", 1) != 0;
  const int64_t rows = from.dims[rank - 2], columns = from.dims[rank - 1];
  Constant made = from;
  made.uniform = false;
  made.ints.clear();
  made.floats.clear();
  for (int64_t i = 0; i < from.numel(); ++i) {
    const int64_t apart = i % columns - i / columns % rows;
    const bool kept = upper ? apart >= k : apart <= k;
    if (from.integer) {
      made.ints.push_back(kept ? from.ints[from.uniform ? 0 : size_t(i)] : 0);
    } else {
      made.floats.push_back(kept ? float(from.number(i)) : 0.0f);
    }
  }
  return std::make_shared<Constant>(std::move(made));
}

// Sums, means, extremes and roots of sums of squares.
ConstantPtr reduced_floats(const Node& node, const Constant& from, const ConstantPtr& given) {
  const std::string& op = node.op;
  const auto axes = axes_of(node, given);
  const size_t rank = from.dims.size();
  const bool none = !axes || axes->empty();
  if (from.numel() == 0 || (none && node.integer("noop_with_empty_axes", 0) != 0)) return nullptr;
  std::vector<bool> gone(rank, none);
  for (const int64_t each : axes.value_or(std::vector<int64_t>{})) {
    const auto axis = axis_of(each, rank);
    if (!axis) return nullptr;
    gone[*axis] = true;
  }
  std::vector<int64_t> dims, strides(rank, 0);
  int64_t count = 1;
  for (size_t i = rank; i-- > 0;) {
    if (gone[i]) continue;
    strides[i] = count;
    count *= from.dims[i];
  }
  for (size_t i = 0; i < rank; ++i) {
    if (!gone[i] || node.integer("keepdims", 1) != 0) dims.push_back(gone[i] ? 1 : from.dims[i]);
  }
  const bool squares = op == "ReduceL2" || op == "ReduceSumSquare", max = op == "ReduceMax";
  const bool extreme = max || op == "ReduceMin";
  std::vector<double> sums(size_t(count), extreme ? (max ? -INFINITY : INFINITY) : 0.0);
  int64_t at = 0;
  walk(from.dims, strides, [&](int64_t place) {
    const double number = from.number(at++);
    double& sum = sums[size_t(place)];
    if (extreme) {
      sum = max ? std::max(sum, number) : std::min(sum, number);
    } else {
      sum += squares ? number * number : op == "ReduceL1" ? std::abs(number) : number;
    }
  });
  std::vector<float> made;
  for (const double each : sums) {
    made.push_back(float(op == "ReduceL2"     ? std::sqrt(each)
                         : op == "ReduceMean" ? each * double(count) / double(from.numel())
                                              : each));
  }
  return make_floats(std::move(dims), std::move(made));
}

ConstantPtr power(const Constant& base, const Constant& exponent) {
  if (exponent.numel() != 1) return nullptr;
  std::vector<float> made;
  for (const float each : base.floats) {
    made.push_back(float(std::pow(double(each), exponent.number(0))));
  }
  return make_floats(base.dims, std::move(made));
}

ConstantPtr clipped(const Node& node, const Constant& from, const Constant* low,
                    const Constant* high) {
  const double least = low != nullptr ? low->number(0) : node.number("min", -INFINITY);
  const double most = high != nullptr ? high->number(0) : node.number("max", INFINITY);
  std::vector<float> made;
  for (const float each : from.floats) {
    made.push_back(float(std::min(std::max(double(each), least), most)));
  }
  return make_floats(from.dims, std::move(made));
}

}  // namespace

ConstantPtr fold_numbers(const Node& node, const std::vector<ConstantPtr>& in, int64_t most) {
  const std::string& op = node.op;
  const auto input = [&](size_t i) { return i < in.size() ? in[i] : nullptr; };
  const auto filled = [&](size_t i) { return !input(i) || input(i)->kept() > 0; };
  if (op == "Trilu" && filled(0)) return triangle(node, *in[0], input(1).get(), most);
  const ConstantPtr x = dense(in[0], most);
  if (!x) return nullptr;
  constexpr const char* kReductions[] = {"ReduceL1",  "ReduceL2",  "ReduceMax",      "ReduceMean",
                                         "ReduceMin", "ReduceSum", "ReduceSumSquare"};
  if (std::ranges::find(kReductions, op) != std::end(kReductions)) {
    return reduced_floats(node, *x, input(1));
  }
  if (op == "Pow" && input(1) && filled(1)) return power(*x, *in[1]);
  if (op == "Clip" && filled(1) && filled(2)) {
    return clipped(node, *x, input(1).get(), input(2).get());
  }
  return nullptr;
}

}  // namespace ridgeline::onnx
