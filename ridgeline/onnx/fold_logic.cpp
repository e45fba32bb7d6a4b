#include <algorithm>
#include <cmath>

#include "ridgeline/core/shape.h"
#include "ridgeline/onnx/fold.h"
#include "ridgeline/onnx/fold_array.h"
#include "ridgeline/onnx/view.h"

namespace ridgeline::onnx {
namespace {

using Inputs = std::vector<ConstantPtr>;

// Returns whether the comparison holds; none if it depends on the size of the batch, which is at
// least 1.
std::optional<bool> compared(const std::string& op, const Constant& a, int64_t i, const Constant& b,
                             int64_t j) {
  const bool left = a.integer && a.ints[size_t(a.uniform ? 0 : i)] == kBatch;
  const bool right = b.integer && b.ints[size_t(b.uniform ? 0 : j)] == kBatch;
  const double x = left ? 1 : a.number(i), y = right ? 1 : b.number(j);
  if (left && right) return op != "Less" && op != "Greater" && op != "Xor";
  if (left || right) {
    const double other = left ? y : x;
    if (other >= 1) return std::nullopt;
  }
  if (op == "Equal") return x == y;
  if (op == "Less") return x < y;
  if (op == "Greater") return x > y;
  if (op == "LessOrEqual") return x <= y;
  if (op == "GreaterOrEqual") return x >= y;
  const bool p = x != 0, q = y != 0;
  return op == "And" ? p && q : op == "Or" ? p || q : p != q;
}

ConstantPtr compare(const std::string& op, const Constant& a, const Constant& b, int64_t most) {
  if (a.integer != b.integer || a.kept() == 0 || b.kept() == 0) return nullptr;
  if ((a.uniform || b.uniform) && (a.numel() < 0 || b.numel() < 0)) return nullptr;
  const auto dims = broadcast(a.dims, b.dims, most);
  if (!dims) return nullptr;
  const auto left = places_in(a, *dims), right = places_in(b, *dims);
  std::vector<int64_t> made;
  for (size_t i = 0; i < left.size(); ++i) {
    const auto holds = compared(op, a, left[i], b, right[i]);
    if (!holds) return nullptr;
    made.push_back(*holds ? 1 : 0);
  }
  return make_ints(*dims, std::move(made));
}

ConstantPtr negated(const Constant& from) {
  if (!from.integer) return nullptr;
  auto made = std::make_shared<Constant>(from);
  for (int64_t& each : made->ints) each = each == 0 ? 1 : 0;
  return made;
}

ConstantPtr where(const Constant& which, const Constant& a, const Constant& b, int64_t most) {
  if (!which.integer || a.integer != b.integer || which.uniform || a.uniform || b.uniform) {
    return nullptr;
  }
  auto dims = broadcast(a.dims, b.dims, most);
  if (dims) dims = broadcast(*dims, which.dims, most);
  if (!dims) return nullptr;
  const auto from = places_in(which, *dims), left = places_in(a, *dims),
             right = places_in(b, *dims);
  auto made = std::make_shared<Constant>();
  made->dims = *dims;
  made->integer = a.integer;
  for (size_t i = 0; i < from.size(); ++i) {
    const bool first = which.ints[size_t(from[i])] != 0;
    const auto place = size_t(first ? left[i] : right[i]);
    if (a.integer) {
      made->ints.push_back((first ? a : b).ints[place]);
    } else {
      made->floats.push_back((first ? a : b).floats[place]);
    }
  }
  return made;
}

ConstantPtr tiled(const Constant& from, const Constant& repeats, int64_t most) {
  if (from.uniform || !repeats.integer || repeats.ints.size() != from.dims.size()) return nullptr;
  std::vector<int64_t> dims = from.dims;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (repeats.ints[i] < 0 || repeats.ints[i] > most || dims[i] > most) return nullptr;
    dims[i] = checked_mul(dims[i], repeats.ints[i], "a constant of the graph");
  }
  if (!is_sized(dims, most)) return nullptr;
  const std::vector<int64_t> own = strides_of(from.dims);
  std::vector<int64_t> places;
  walk(dims, strides_of(dims), [&](int64_t at) {
    int64_t place = 0, left = at;
    for (size_t i = dims.size(); i-- > 0;) {
      place += left % dims[i] % from.dims[i] * own[i];
      left /= dims[i];
    }
    places.push_back(place);
  });
  return picked(from, std::move(dims), places);
}

// Range of integers.
ConstantPtr range(const Inputs& in, int64_t most) {
  for (const ConstantPtr& each : in) {
    if (!each || !each->integer || each->ints.size() != 1 || each->ints[0] == kBatch) {
      return nullptr;
    }
  }
  const int64_t begin = in[0]->ints[0], end = in[1]->ints[0], step = in[2]->ints[0];
  constexpr int64_t kFar = int64_t{1} << 40;
  if (step == 0 || std::max({std::abs(begin), std::abs(end), std::abs(step)}) > kFar) {
    return nullptr;
  }
  std::vector<int64_t> made;
  for (int64_t at = begin; step > 0 ? at < end : at > end; at += step) {
    if (int64_t(made.size()) >= most) return nullptr;
    made.push_back(at);
  }
  return make_ints({int64_t(made.size())}, made);
}

// ReduceProd, ReduceSum and ReduceMax of a list of integers.
ConstantPtr reduced(const Node& node, const Inputs& in) {
  const Constant& from = *in[0];
  const std::vector<int64_t> axes =
      in.size() > 1 && in[1] ? in[1]->ints : node.integers("axes", {0});
  if (!from.integer || from.uniform || from.dims.size() != 1 || from.ints.empty() ||
      axes.size() != 1 || axis_of(axes[0], 1) != size_t{0} ||
      node.integer("noop_with_empty_axes", 0) != 0) {
    return nullptr;
  }
  int64_t made = node.op == "ReduceProd" ? 1 : node.op == "ReduceSum" ? 0 : from.ints[0];
  bool batch = false;
  for (const int64_t each : from.ints) {
    if (each == kBatch) {
      if (batch || node.op != "ReduceProd") return nullptr;
      batch = true;
      continue;
    }
    if (node.op == "ReduceProd") made = checked_mul(made, each, "a constant of the graph");
    if (node.op == "ReduceSum") made = checked_add(made, each, "a constant of the graph");
    if (node.op == "ReduceMax") made = std::max(made, each);
  }
  if (batch && made != 1) return nullptr;
  std::vector<int64_t> dims;
  if (node.integer("keepdims", 1) != 0) dims.push_back(1);
  return make_ints(std::move(dims), {batch ? kBatch : made});
}

}  // namespace

std::vector<ConstantPtr> fold_split(const Node& node, const Inputs& in) {
  const Constant& from = *in[0];
  const auto axis = axis_of(node.integer("axis", 0), from.dims.size());
  if (!axis || from.uniform || node.outputs.empty()) return {};
  const auto count = int64_t(node.outputs.size());
  const int64_t extent = from.dims[*axis];
  std::vector<int64_t> sizes = in.size() > 1 && in[1] ? in[1]->ints : node.integers("split");
  if (sizes.empty()) sizes.assign(size_t(count), extent / count);
  int64_t end = 0;
  for (const int64_t each : sizes) {
    if (each < 0 || each > extent - end) return {};
    end += each;
  }
  if (end != extent || int64_t(sizes.size()) != count) return {};
  std::vector<ConstantPtr> parts;
  const std::vector<int64_t> strides = strides_of(from.dims);
  int64_t begin = 0;
  for (const int64_t each : sizes) {
    std::vector<int64_t> dims = from.dims, places;
    dims[*axis] = each;
    walk(dims, strides, [&](int64_t at) { places.push_back(begin * strides[*axis] + at); });
    parts.push_back(picked(from, std::move(dims), places));
    begin += each;
  }
  return parts;
}

ConstantPtr fold_logic(const Node& node, const Inputs& in, int64_t most) {
  const std::string& op = node.op;
  const bool two = in.size() == 2 && in[0] && in[1];
  const bool three = in.size() == 3 && in[0] && in[1] && in[2];
  constexpr const char* kComparisons[] = {"Equal",          "Less", "Greater", "LessOrEqual",
                                          "GreaterOrEqual", "And",  "Or",      "Xor"};
  if (two && std::ranges::find(kComparisons, op) != std::end(kComparisons)) {
    return compare(op, *in[0], *in[1], most);
  }
  if (op == "Not" && in.size() == 1) return negated(*in[0]);
  if (op == "Where" && three) return where(*in[0], *in[1], *in[2], most);
  if (op == "Tile" && two) return tiled(*in[0], *in[1], most);
  if (op == "Range" && three) return range(in, most);
  if (op == "ReduceProd" || op == "ReduceSum" || op == "ReduceMax") return reduced(node, in);
  return nullptr;
}

}  // namespace ridgeline::onnx
