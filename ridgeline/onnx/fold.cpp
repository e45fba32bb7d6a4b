#include "ridgeline/onnx/fold.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "ridgeline/core/shape.h"
#include "ridgeline/onnx/fold_array.h"
#include "ridgeline/onnx/view.h"

namespace ridgeline::onnx {
namespace {

using Inputs = std::vector<ConstantPtr>;

ConstantPtr arithmetic(const std::string& op, const Constant& a, const Constant& b, int64_t most) {
  if (a.integer != b.integer) return nullptr;
  const auto dims = broadcast(a.dims, b.dims, most);
  if (!dims) return nullptr;
  const auto left = places_in(a, *dims), right = places_in(b, *dims);
  auto made = std::make_shared<Constant>();
  made->dims = *dims;
  made->integer = a.integer;
  for (size_t i = 0; i < left.size(); ++i) {
    if (!a.integer) {
      if (op == "Mod") return nullptr;
      const double x = a.floats[size_t(left[i])], y = b.floats[size_t(right[i])];
      made->floats.push_back(float(op == "Add"   ? x + y
                                   : op == "Sub" ? x - y
                                   : op == "Mul" ? x * y
                                                 : x / y));
      continue;
    }
    const int64_t x = a.ints[size_t(left[i])], y = b.ints[size_t(right[i])];
    if (x == kBatch || y == kBatch) {
      // The batch times a number is the only other result that is representable.
      const int64_t times = x == kBatch ? y : x;
      if (op == "Mul" && times > 1 && times < kMostBatches) {
        made->ints.push_back(batches(times));
        continue;
      }
      const bool same = (op == "Mul" && (x == 1 || y == 1)) || (op == "Div" && y == 1) ||
                        (op == "Add" && (x == 0 || y == 0)) || (op == "Sub" && y == 0);
      if (!same) return nullptr;
      made->ints.push_back(kBatch);
      continue;
    }
    if (op == "Div" && y == 0) return nullptr;
    if (op == "Mod" && (x < 0 || y < 1)) return nullptr;
    made->ints.push_back(op == "Add"   ? checked_add(x, y, "a constant of the graph")
                         : op == "Sub" ? checked_add(x, -y, "a constant of the graph")
                         : op == "Mul" ? checked_mul(x, y, "a constant of the graph")
                         : op == "Mod" ? x % y
                                       : x / y);
  }
  return made;
}

ConstantPtr gather(const Node& node, const Constant& from, const Constant& indices, int64_t most) {
  const auto axis = axis_of(node.integer("axis", 0), from.dims.size());
  if (!axis || !indices.integer || from.uniform || indices.uniform) return nullptr;
  std::vector<int64_t> dims(from.dims.begin(), from.dims.begin() + ptrdiff_t(*axis));
  dims.insert(dims.end(), indices.dims.begin(), indices.dims.end());
  dims.insert(dims.end(), from.dims.begin() + ptrdiff_t(*axis) + 1, from.dims.end());
  if (!is_sized(dims, most)) return nullptr;
  int64_t outer = 1, inner = 1;
  for (size_t i = 0; i < *axis; ++i) outer *= from.dims[i];
  for (size_t i = *axis + 1; i < from.dims.size(); ++i) inner *= from.dims[i];
  const int64_t extent = from.dims[*axis];
  std::vector<int64_t> places;
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t index : indices.ints) {
      if (index < 0) index += extent;
      if (index < 0 || index >= extent) return nullptr;
      for (int64_t i = 0; i < inner; ++i) places.push_back((o * extent + index) * inner + i);
    }
  }
  return picked(from, std::move(dims), places);
}

ConstantPtr slice(const Node& node, const Inputs& in) {
  const Constant& from = *in[0];
  const auto list = [&](size_t input, const char* attribute) {
    if (in.size() > input && in[input]) return in[input]->ints;
    return node.integers(attribute);
  };
  const std::vector<int64_t> starts = list(1, "starts"), ends = list(2, "ends");
  std::vector<int64_t> axes = list(3, "axes"), steps = list(4, "steps");
  if (starts.size() != ends.size()) return nullptr;
  for (size_t i = axes.size(); i < starts.size(); ++i) axes.push_back(int64_t(i));
  steps.resize(starts.size(), 1);
  std::vector<int64_t> dims = from.dims, strides(dims.size(), 0);
  if (!from.uniform) strides = strides_of(from.dims);
  int64_t first = 0;
  std::vector<bool> sliced(dims.size(), false);
  for (size_t i = 0; i < starts.size(); ++i) {
    const auto axis = axis_of(axes[i], dims.size());
    if (!axis || steps[i] == 0 || sliced[*axis]) return nullptr;
    sliced[*axis] = true;
    const int64_t extent = from.dims[*axis];
    if (extent == kBatch) return nullptr;
    // A step beyond the end is one as long as all of it, and going back ends before the first.
    const int64_t step = std::clamp(steps[i], -extent - 1, extent + 1), least = step < 0 ? -1 : 0;
    const auto clamp = [&](int64_t at) {
      return std::clamp<int64_t>(at < 0 ? std::max(at, -extent - 1) + extent : at, least,
                                 extent + least);
    };
    const int64_t begin = clamp(starts[i]), end = clamp(ends[i]);
    const int64_t length = step > 0 ? end - begin : begin - end, size = std::abs(step);
    dims[*axis] = std::max<int64_t>(0, (length + size - 1) / size);
    first += begin * strides[*axis];
    strides[*axis] *= step;
  }
  if (from.uniform) return with_dims(from, std::move(dims));
  std::vector<int64_t> places;
  walk(dims, strides, [&](int64_t place) { places.push_back(first + place); });
  return picked(from, std::move(dims), places);
}

ConstantPtr concat(const Node& node, const Inputs& in, int64_t most) {
  const auto axis = axis_of(node.integer("axis", 0), in[0]->dims.size());
  if (!axis) return nullptr;
  auto made = std::make_shared<Constant>();
  made->dims = in[0]->dims;
  made->integer = in[0]->integer;
  made->dims[*axis] = 0;
  // Equal numbers, as in states of zeros, may have the batch as a dimension.
  if (std::ranges::all_of(in, [](const auto& each) { return each->uniform; })) {
    for (const ConstantPtr& each : in) {
      std::vector<int64_t> dims = each->dims;
      if (dims.size() != made->dims.size() || dims[*axis] < 0 || each->integer != made->integer ||
          each->number(0) != in[0]->number(0)) {
        return nullptr;
      }
      made->dims[*axis] = checked_add(made->dims[*axis], std::exchange(dims[*axis], 0), "a shape");
      std::vector<int64_t> others = made->dims;
      others[*axis] = 0;
      if (dims != others) return nullptr;
    }
    made->uniform = true;
    made->floats = in[0]->floats;
    made->ints = in[0]->ints;
    return made;
  }
  int64_t outer = 1;
  for (size_t i = 0; i < *axis; ++i) outer *= made->dims[i];
  for (const ConstantPtr& each : in) {
    if (each->uniform || each->dims.size() != made->dims.size() || each->integer != made->integer) {
      return nullptr;
    }
    for (size_t i = 0; i < made->dims.size(); ++i) {
      if (i != *axis && each->dims[i] != made->dims[i]) return nullptr;
    }
    made->dims[*axis] += each->dims[*axis];
  }
  if (!is_sized(made->dims, most)) return nullptr;
  for (int64_t o = 0; o < outer; ++o) {
    for (const ConstantPtr& each : in) {
      const int64_t run = outer == 0 ? 0 : each->numel() / outer;
      const auto append = [&](const auto& from, auto& to) {
        to.insert(to.end(), from.begin() + o * run, from.begin() + (o + 1) * run);
      };
      made->integer ? append(each->ints, made->ints) : append(each->floats, made->floats);
    }
  }
  return made;
}

ConstantPtr cast(const Node& node, const Constant& from) {
  const int64_t to = node.integer("to", 0);
  const bool floats = to == 1 || to == 10 || to == 11 || to == 16;
  auto made = std::make_shared<Constant>(from);
  made->type = 0;
  if (floats == !from.integer) return made;
  made->integer = !floats;
  made->floats.clear();
  made->ints.clear();
  for (const int64_t each : from.ints) {
    if (batch_multiple(each) != 0) return nullptr;
    made->floats.push_back(float(each));
  }
  for (const float each : from.floats) {
    if (!std::isfinite(each) || std::abs(each) > 0x1p62f) return nullptr;
    made->ints.push_back(int64_t(each));
  }
  return made;
}

ConstantPtr filled(const Node& node, const Constant& shape) {
  const auto is_extent = [](int64_t extent) { return extent == kBatch || extent >= 0; };
  if (shape.uniform || !std::ranges::all_of(shape.ints, is_extent)) return nullptr;
  auto made = std::make_shared<Constant>();
  made->dims = shape.ints;
  made->uniform = true;
  const auto value = node.attributes.find("value");
  const ConstantPtr given = value == node.attributes.end() ? nullptr : value->second.tensor;
  made->integer = given && given->integer;
  if (made->integer) {
    made->ints = {given->ints.empty() ? 0 : given->ints[0]};
  } else {
    made->floats = {given && !given->floats.empty() ? given->floats[0] : 0.0f};
  }
  // A small one is written out, so that other folds can use it.
  int64_t count = 1;
  for (const int64_t extent : made->dims) {
    if (extent == kBatch || extent > 4096 || (count *= extent) > 4096) return made;
  }
  made->uniform = false;
  made->floats.resize(made->integer ? 0 : size_t(count),
                      made->floats.empty() ? 0 : made->floats[0]);
  made->ints.resize(made->integer ? size_t(count) : 0, made->ints.empty() ? 0 : made->ints[0]);
  return made;
}

ConstantPtr expanded(const Constant& from, const Constant& shape, int64_t most) {
  const auto is_extent = [](int64_t extent) { return extent == kBatch || extent >= 0; };
  if (shape.uniform || !std::ranges::all_of(shape.ints, is_extent)) return nullptr;
  const bool one = from.uniform || (from.dims.empty() ? true : from.numel() == 1);
  if (one && std::ranges::find(shape.ints, kBatch) != shape.ints.end()) {
    auto made = std::make_shared<Constant>(from);
    made->dims = shape.ints;
    made->uniform = true;
    return made;
  }
  if (from.all_zero() && std::ranges::find(shape.ints, kBatch) != shape.ints.end()) {
    auto made = std::make_shared<Constant>();
    made->dims = shape.ints;
    made->uniform = true;
    made->integer = from.integer;
    from.integer ? made->ints.push_back(0) : made->floats.push_back(0);
    return made;
  }
  const auto dims = broadcast(from.dims, shape.ints, most);
  if (!dims || from.uniform) return nullptr;
  return picked(from, *dims, places_in(from, *dims));
}

ConstantPtr squeezed_constant(const Node& node, const Constant& from, const ConstantPtr& given) {
  const bool insert = node.op == "Unsqueeze";
  const auto axes = axes_of(node, given);
  if (insert && !axes) return nullptr;
  std::vector<int64_t> dims = from.dims;
  if (!insert) {
    std::vector<bool> gone(dims.size(), false);
    for (size_t i = 0; i < dims.size() && !axes; ++i) gone[i] = dims[i] == 1;
    for (const int64_t each : axes.value_or(std::vector<int64_t>{})) {
      const auto axis = axis_of(each, dims.size());
      if (!axis || dims[*axis] != 1) return nullptr;
      gone[*axis] = true;
    }
    std::vector<int64_t> left;
    for (size_t i = 0; i < dims.size(); ++i) {
      if (!gone[i]) left.push_back(dims[i]);
    }
    return with_dims(from, std::move(left));
  }
  std::vector<size_t> places;
  for (const int64_t each : *axes) {
    const auto axis = axis_of(each, dims.size() + axes->size());
    if (!axis) return nullptr;
    places.push_back(*axis);
  }
  std::ranges::sort(places);
  for (const size_t place : places) {
    if (place > dims.size()) return nullptr;
    dims.insert(dims.begin() + ptrdiff_t(place), 1);
  }
  return with_dims(from, std::move(dims));
}

ConstantPtr reshape(const Node& node, const Constant& from, const Constant& shape, int64_t most) {
  std::vector<int64_t> dims = shape.ints;
  int64_t known = 1, open = -1;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] == kBatch || dims[i] < -1) return nullptr;
    if (dims[i] == 0 && node.integer("allowzero", 0) == 0) {
      if (i >= from.dims.size()) return nullptr;
      dims[i] = from.dims[i];
    }
    if (dims[i] == -1) {
      if (open >= 0) return nullptr;
      open = int64_t(i);
    } else {
      known = checked_mul(known, dims[i], "a constant of the graph");
    }
  }
  const int64_t count = from.numel();
  if (open >= 0 && known > 0) dims[size_t(open)] = count / known;
  if (open >= 0) known *= dims[size_t(open)];
  if (known != count || !is_sized(dims, most)) return nullptr;
  return with_dims(from, std::move(dims));
}

ConstantPtr transpose(const Node& node, const Constant& from) {
  std::vector<int64_t> perm = node.integers("perm");
  const size_t rank = from.dims.size();
  for (size_t i = perm.size(); i < rank; ++i) perm.push_back(int64_t(rank - 1 - i));
  std::vector<int64_t> dims(rank), strides(rank), own(rank, 0);
  if (!from.uniform) own = strides_of(from.dims);
  std::vector<bool> taken(rank, false);
  for (size_t i = 0; i < rank; ++i) {
    const auto axis = axis_of(perm[i], rank);
    if (!axis || taken[*axis]) return nullptr;
    taken[*axis] = true;
    dims[i] = from.dims[*axis];
    strides[i] = own[*axis];
  }
  if (from.uniform) return with_dims(from, std::move(dims));
  std::vector<int64_t> places;
  walk(dims, strides, [&](int64_t place) { places.push_back(place); });
  return picked(from, std::move(dims), places);
}

ConstantPtr mapped(const std::string& op, const Constant& from) {
  if (from.integer) return nullptr;
  auto made = std::make_shared<Constant>(from);
  for (float& each : made->floats) {
    each = op == "Sqrt"      ? std::sqrt(each)
           : op == "Neg"     ? -each
           : op == "Exp"     ? std::exp(each)
           : op == "Tanh"    ? std::tanh(each)
           : op == "Relu"    ? std::max(each, 0.0f)
           : op == "Sigmoid" ? 1.0f / (1.0f + std::exp(-each))
           : op == "Log"     ? std::log(each)
           : op == "Abs"     ? std::abs(each)
           : op == "Floor"   ? std::floor(each)
           : op == "Sin"     ? std::sin(each)
                             : 1.0f / each;
  }
  return made;
}

// Weights that are stored as whole numbers: (x - zero) * scale, for all numbers or along an axis.
ConstantPtr dequantized(const Node& node, const Inputs& in) {
  if (in.size() < 2 || !in[1] || in[0]->uniform || in[1]->uniform) return nullptr;
  const Constant &x = *in[0], &scale = *in[1];
  const Constant* zero = in.size() > 2 ? in[2].get() : nullptr;
  int64_t inner = 1, extent = scale.numel();
  if (extent > 1) {
    const auto axis = axis_of(node.integer("axis", 1), x.dims.size());
    if (!axis || scale.dims.size() != 1 || x.dims[*axis] != extent) return nullptr;
    for (size_t i = *axis + 1; i < x.dims.size(); ++i) inner *= x.dims[i];
  }
  if (extent < 1 || (zero != nullptr && (zero->uniform || zero->numel() != extent))) return nullptr;
  std::vector<float> made;
  for (int64_t i = 0; i < x.numel(); ++i) {
    const int64_t at = extent > 1 ? i / inner % extent : 0;
    const double whole = x.number(i) - (zero != nullptr ? zero->number(at) : 0.0);
    made.push_back(float(whole * scale.number(at)));
  }
  return make_floats(x.dims, std::move(made));
}

// A state of zeros, which exporters that unroll a recurrent net multiply by a matrix.
ConstantPtr product_of_zeros(const Constant& zeros, const Constant& matrix) {
  const bool fits = zeros.uniform && !zeros.integer && zeros.all_zero() && !zeros.dims.empty();
  if (!fits || matrix.dims.size() != 2 || matrix.dims[0] != zeros.dims.back()) return nullptr;
  auto made = std::make_shared<Constant>(zeros);
  made->dims.back() = matrix.dims[1];
  return made;
}

// MatMul and Gemm of a few rows, as exporters that unroll a recurrent net write for its initial
// state.
ConstantPtr product(const Node& node, const Inputs& in) {
  const Constant &a = *in[0], &b = *in[1];
  const bool gemm = node.op == "Gemm", transposed = gemm && node.integer("transB", 0) != 0;
  if (a.integer || b.integer || a.uniform || b.uniform || a.dims.empty() || b.dims.size() != 2 ||
      a.kept() == 0 || b.kept() == 0 || (gemm && node.integer("transA", 0) != 0)) {
    return nullptr;
  }
  constexpr int64_t kMostRows = 8;
  const int64_t width = a.dims.back(), out = b.dims[transposed ? 0 : 1];
  const int64_t rows = a.numel() / width;
  if (b.dims[transposed ? 1 : 0] != width || rows > kMostRows) return nullptr;
  auto made = std::make_shared<Constant>();
  made->dims = a.dims;
  made->dims.back() = out;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t o = 0; o < out; ++o) {
      double sum = 0;
      for (int64_t i = 0; i < width; ++i) {
        sum += a.number(row * width + i) * b.number(transposed ? o * width + i : i * out + o);
      }
      made->floats.push_back(float(gemm ? sum * node.number("alpha", 1) : sum));
    }
  }
  if (!gemm || in.size() < 3 || !in[2]) return made;
  const Constant& bias = *in[2];
  const bool row = bias.numel() == out && !bias.dims.empty() && bias.dims.back() == out;
  if (bias.integer || bias.uniform || !row) return nullptr;
  for (size_t i = 0; i < made->floats.size(); ++i) {
    made->floats[i] += float(node.number("beta", 1)) * bias.floats[i % size_t(out)];
  }
  return made;
}

ConstantPtr literal(const Node& node) {
  const auto found = [&](const char* name) -> const Attribute* {
    const auto at = node.attributes.find(name);
    return at == node.attributes.end() ? nullptr : &at->second;
  };
  if (const auto* value = found("value")) return value->tensor;
  if (const auto* value = found("value_float")) return make_floats({}, {float(value->f)});
  if (const auto* value = found("value_int")) return make_ints({}, {value->i});
  if (const auto* value = found("value_ints")) {
    return make_ints({int64_t(value->ints.size())}, value->ints);
  }
  if (const auto* value = found("value_floats")) {
    return make_floats({int64_t(value->floats.size())},
                       std::vector<float>(value->floats.begin(), value->floats.end()));
  }
  return nullptr;
}

}  // namespace

std::optional<std::vector<int64_t>> axes_of(const Node& node, const ConstantPtr& input) {
  if (node.has("axes")) return node.integers("axes");
  if (input && input->integer && !input->uniform) return input->ints;
  return std::nullopt;
}

ConstantPtr fold(const Node& node, const std::vector<ConstantPtr>& in, int64_t most) {
  const std::string& op = node.op;
  if (!node.domain.empty()) return nullptr;
  if (op == "Constant") return literal(node);
  if (in.empty() || !in[0]) return nullptr;
  const size_t count = in.size();
  const bool two = count == 2 && in[1];
  if (op == "DequantizeLinear") return dequantized(node, in);
  if (op == "Identity" || op == "Dropout") return in[0];
  if (op == "Cast") return cast(node, *in[0]);
  if (op == "Shape" && !node.has("start") && !node.has("end")) {
    return make_ints({int64_t(in[0]->dims.size())}, in[0]->dims);
  }
  if (op == "ConstantOfShape" && in[0]->integer) return filled(node, *in[0]);
  if (op == "Gather" && two) return gather(node, *in[0], *in[1], most);
  if (op == "Slice") return slice(node, in);
  if (op == "Concat" && std::ranges::all_of(in, [](const auto& each) { return each != nullptr; })) {
    return concat(node, in, most);
  }
  if (op == "Squeeze" || op == "Unsqueeze") {
    return squeezed_constant(node, *in[0], count > 1 ? in[1] : nullptr);
  }
  if (op == "Reshape" && two && in[1]->integer) return reshape(node, *in[0], *in[1], most);
  if (op == "Transpose") return transpose(node, *in[0]);
  if (op == "MatMul" && two && in[0]->uniform) return product_of_zeros(*in[0], *in[1]);
  if ((op == "MatMul" || op == "Gemm") && count > 1 && in[1]) return product(node, in);
  if (op == "Expand" && two && in[1]->integer) return expanded(*in[0], *in[1], most);
  // An axis is that of opset 6, from which the second operand was repeated.
  const bool arithmetic_op =
      op == "Add" || op == "Sub" || op == "Mul" || op == "Div" || op == "Mod";
  if (two && arithmetic_op && !node.has("axis")) {
    return arithmetic(op, *in[0], *in[1], most);
  }
  constexpr const char* kMaps[] = {"Sqrt",    "Neg", "Reciprocal", "Exp",   "Tanh", "Relu",
                                   "Sigmoid", "Log", "Abs",        "Floor", "Sin"};
  if (std::ranges::find(kMaps, op) != std::end(kMaps)) return mapped(op, *in[0]);
  if (const ConstantPtr made = fold_logic(node, in, most)) return made;
  return fold_numbers(node, in, most);
}

}  // namespace ridgeline::onnx
