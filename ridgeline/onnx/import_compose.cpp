#include <algorithm>
#include <cmath>
#include <numeric>

#include "ridgeline/onnx/composition.h"
#include "ridgeline/onnx/fold.h"
#include "ridgeline/onnx/importer.h"
#include "ridgeline/ops/join.h"

// Operators that sums, products and transposes express.
namespace ridgeline::onnx {
namespace {

// Axes that an attribute or the second input names are handed on to other reductions.
std::string reduce(Composition& make, const Node& node, const char* op, const std::string& x,
                   bool keeps) {
  std::vector<std::string> inputs = node.inputs;
  inputs[0] = x;
  Composition::Attributes attributes = node.attributes;
  attributes["keepdims"] = Composition::integer(keeps ? 1 : 0);
  return make.add(op, std::move(inputs), std::move(attributes));
}

}  // namespace

std::string multiply_along(Composition& make, const std::string& x, size_t axis,
                           ConstantPtr matrix) {
  std::vector<int64_t> perm(make.dims(x).size());
  std::iota(perm.begin(), perm.end(), int64_t{0});
  std::swap(perm[axis], perm.back());
  const std::string weight = make.constant(std::move(matrix));
  return make.transpose(make.add("MatMul", {make.transpose(x, perm), weight}), perm);
}

// ReduceL1, ReduceL2, ReduceSumSquare, ReduceLogSum and ReduceLogSumExp.
void import_composed_reduce(Importer& in) {
  const Node& node = in.node();
  const std::string &op = node.op, &x = node.input(0);
  const bool keeps = node.integer("keepdims", 1) != 0;
  Composition make(in);
  const auto sum = [&](const std::string& of) {
    return reduce(make, node, "ReduceSum", of, keeps);
  };
  if (op == "ReduceL1") return make.finish("Identity", {sum(make.add("Abs", {x}))});
  if (op == "ReduceSumSquare") return make.finish("Identity", {sum(make.add("Mul", {x, x}))});
  if (op == "ReduceL2") return make.finish("Sqrt", {sum(make.add("Mul", {x, x}))});
  if (op == "ReduceLogSum") return make.finish("Log", {sum(x)});
  // log(sum of exp(x - m)) + m, with the maximum m, so that nothing overflows.
  const std::string most = reduce(make, node, "ReduceMax", x, true);
  const std::string log = make.add("Log", {sum(make.add("Exp", {make.add("Sub", {x, most})}))});
  make.finish("Add", {log, keeps ? most : reduce(make, node, "ReduceMax", x, false)});
}

// The product along one axis.
void import_product(Importer& in) {
  const Node& node = in.node();
  const View view = in.look(0).view;
  const auto axes = axes_of(node, in.known(1));
  const auto axis =
      axes && axes->size() == 1 ? axis_of((*axes)[0], view.dims.size()) : std::nullopt;
  if (!axis || *axis == view.batch_axis) in.refuse("is not over one axis of a sample");
  if (view.dims[*axis] > int64_t(kMostJoined)) {
    in.refuse(
        fmt::format("multiplies {} numbers; up to {} are taken", view.dims[*axis], kMostJoined));
  }
  Composition make(in);
  std::string product;
  for (int64_t i = 0; i < view.dims[*axis]; ++i) {
    const std::string factor = make.add("Gather", {node.input(0), make.integers({i})},
                                        {{"axis", Composition::integer(int64_t(*axis))}});
    product = product.empty() ? factor : make.add("Mul", {product, factor});
  }
  if (node.integer("keepdims", 1) != 0) return make.finish("Identity", {product});
  make.finish("Squeeze", {product}, {{"axes", Composition::list({int64_t(*axis)})}});
}

void import_cumsum(Importer& in) {
  const Node& node = in.node();
  const View view = in.look(0).view;
  const ConstantPtr given = in.require_known(1);
  if (given->numel() != 1 || !given->integer) in.refuse("its axis is no number");
  const auto axis = axis_of(given->ints[0], view.dims.size());
  if (!axis || *axis == view.batch_axis) in.refuse("its axis is not one of a sample");
  const bool exclusive = node.integer("exclusive", 0) != 0;
  const bool reverse = node.integer("reverse", 0) != 0;
  constexpr int64_t kMost = 4096;
  const int64_t extent = view.dims[*axis];
  if (extent > kMost) in.refuse(fmt::format("sums over {} numbers; {} are taken", extent, kMost));
  std::vector<float> summed(size_t(extent * extent));
  for (int64_t from = 0; from < extent; ++from) {
    for (int64_t to = 0; to < extent; ++to) {
      const bool before = reverse ? from > to : from < to;
      summed[size_t(from * extent + to)] = before || (from == to && !exclusive) ? 1.0f : 0.0f;
    }
  }
  Composition make(in);
  make.finish("Identity", {multiply_along(make, node.input(0), *axis,
                                          make_floats({extent, extent}, std::move(summed)))});
}

// One of the triangles of the last two dimensions becomes zero.
void import_trilu(Importer& in) {
  const Node& node = in.node();
  const View view = in.look(0).view;
  if (view.dims.size() < 3 || view.batch_axis + 2 >= view.dims.size()) {
    in.refuse("its input is not [N, ..., rows, columns]");
  }
  const ConstantPtr given = in.known(1);
  const int64_t k = given && given->integer && given->kept() == 1 ? given->ints[0] : 0;
  const bool upper = node.integer("upper", 1) != 0;
  const int64_t rows = view.dims[view.dims.size() - 2], columns = view.dims.back();
  if (double(rows) * double(columns) > double(1 << 22)) in.refuse("its input is too large");
  std::vector<float> kept;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      kept.push_back((upper ? c - r >= k : c - r <= k) ? 1.0f : 0.0f);
    }
  }
  Composition make(in);
  make.finish("Mul", {node.input(0), make.constant(make_floats({rows, columns}, kept))});
}

// x / (bias + alpha / size * sum of x^2 over neighbouring channels)^beta
void import_local_response(Importer& in) {
  const Node& node = in.node();
  const View view = in.look(0).view;
  const int64_t size = node.integer("size", 0), channels = view.dims.size() > 2 ? view.dims[1] : 0;
  if (!view.batch_first() || channels < 1 || size < 1) in.refuse("its input is no image");
  constexpr int64_t kMostChannels = 4096;
  if (channels > kMostChannels) in.refuse("its input has too many channels");
  const double alpha = node.number("alpha", 1e-4) / double(size);
  std::vector<float> near(size_t(channels * channels));
  for (int64_t to = 0; to < channels; ++to) {
    const int64_t first = to - (size - 1) / 2;
    for (int64_t from = std::max<int64_t>(0, first); from < std::min(first + size, channels);
         ++from) {
      near[size_t(from * channels + to)] = float(alpha);
    }
  }
  Composition make(in);
  const std::string& x = node.input(0);
  const std::string sums = multiply_along(make, make.add("Mul", {x, x}), 1,
                                          make_floats({channels, channels}, std::move(near)));
  const std::string base = make.add("Add", {sums, make.number(node.number("bias", 1))});
  const std::string power = make.number(-node.number("beta", 0.75));
  make.finish("Mul", {x, make.add("Pow", {base, power})});
}

}  // namespace ridgeline::onnx
