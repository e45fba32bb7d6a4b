#include <algorithm>
#include <numeric>

#include "ridgeline/nn/join.h"
#include "ridgeline/onnx/composition.h"
#include "ridgeline/onnx/importer.h"

// Products of matrices.
namespace ridgeline::onnx {
namespace {

// Returns [out, in] from a matrix that has `in` rows, or `in` columns if it is already transposed,
// with its columns in the order of the features in memory.
std::vector<float> linear_weight(const Constant& matrix, bool transposed, int64_t in, int64_t out,
                                 const std::vector<int64_t>& order, double scale) {
  if (transposed && order.empty() && scale == 1) return matrix.floats;
  std::vector<float> weight(size_t(in * out));
  for (int64_t o = 0; o < out; ++o) {
    for (int64_t i = 0; i < in; ++i) {
      const int64_t from = transposed ? o * in + i : i * out + o;
      const int64_t to = o * in + (order.empty() ? i : order[size_t(i)]);
      weight[size_t(to)] = float(matrix.floats[size_t(from)] * scale);
    }
  }
  return weight;
}

Draft linear_draft(int64_t out, std::vector<float> weight) {
  Draft draft;
  draft.type = "linear";
  draft.set("out", out);
  draft.set("bias", false);
  draft.weights.push_back({"weight", std::move(weight)});
  draft.bias_from_add = out;
  return draft;
}

// The order of `rank` axes in which the last two change places.
std::vector<int64_t> last_two_swapped(size_t rank) {
  std::vector<int64_t> perm(rank);
  std::iota(perm.begin(), perm.end(), int64_t{0});
  std::swap(perm[rank - 1], perm[rank - 2]);
  return perm;
}

// y[..., o] = sum over i of x[..., i] * weight(i, o). The matrix has `in` rows, or `in` columns if
// it is transposed. Returns the view of y.
View multiply_by(Importer& in, View view, const Constant& matrix, bool transposed, int64_t out) {
  const int64_t features = view.dims.back();
  const bool flat = view.dims.size() == 2;
  // All dimensions before the features are timesteps.
  if (!flat) view = in.straighten(view);
  Draft draft = linear_draft(out, linear_weight(matrix, transposed, features, out, view.order, 1));
  if (!flat) {
    in.shape_input({view.features() / features, features});
    draft.set("per_step", true);
  }
  in.add(std::move(draft));
  view.dims.back() = out;
  view.order.clear();
  return view;
}

// y[..., t, s] = sum over k of a[..., t, k] * b[..., k, s], as `extent of k` times the mean of the
// products: fine for the attention of a small net, and slow for a large one.
void multiply_values(Importer& in) {
  constexpr int64_t kMostProducts = int64_t{1} << 22;  // of a sample
  const size_t rank = std::max(in.look(0).view.dims.size(), in.look(1).view.dims.size());
  std::vector<Shape> shapes;
  std::vector<int> layers;
  View made;
  for (const size_t i : {size_t{0}, size_t{1}}) {
    const View& given = in.look(i).view;
    if (given.dims.size() < 3 || given.batch_axis + 2 >= given.dims.size()) {
      in.refuse("multiplies values that are not [N, ..., rows, columns]");
    }
    const std::vector<int64_t> perm = last_two_swapped(given.dims.size());
    View view = in.take(i).view;
    view = with_rank(in.straighten(i == 0 ? view : transposed(view, perm)), rank);
    if (i == 0) {
      made = view;
    } else if (view.batch_axis != made.batch_axis || view.dims.back() != made.dims.back()) {
      in.refuse("its matrices do not fit each other");
    }
    // [..., t, 1, k] and [..., 1, s, k]
    const int64_t rows = view.dims[rank - 2];
    if (i == 1) made.dims.back() = rows;
    view.dims.insert(view.dims.end() - (i == 0 ? 1 : 2), 1);
    if (view.dims.size() > size_t(Shape::kMaxRank) + 1) in.refuse("has too many dimensions");
    shapes.emplace_back(view.sample());
    in.keep_input_shape();  // both may be the net's input
    in.shape_input(shapes.back());
    in.apply_softmax();
    layers.push_back(in.source());
  }
  const int64_t depth = shapes[0][shapes[0].rank() - 1];
  Shape products = shapes[0];
  try {
    products = nn::JoinLayer(nn::JoinKind::multiply).output_of(shapes);
  } catch (const Error&) {
    in.refuse("its matrices do not fit each other");
  }
  if (products.numel() > kMostProducts) {
    in.refuse(fmt::format(
        "makes {} products a sample of values that are both computed; at most {} are taken",
        products.numel(), kMostProducts));
  }
  Draft multiply;
  multiply.type = "multiply";
  in.add_join(std::move(multiply), std::move(layers), products);
  in.shape_input({products.numel() / depth, depth});
  Draft mean;
  mean.type = "global_avgpool";
  in.add(std::move(mean));
  add_affine(in, batch_first_view(in.stored()), double(depth), 0);
  size_t axis = 0;
  for (size_t i = 0; i + 2 < rank; ++i) {
    if (i != made.batch_axis) made.dims[i] = products[int(axis++)];
  }
  in.give(made);
}

}  // namespace

void import_gemm(Importer& in) {
  const Node& node = in.node();
  const ConstantPtr matrix = in.require_known(1);
  View view = in.take(0).view;
  if (view.dims.size() < 2 || view.batch_axis + 1 == view.dims.size()) {
    in.refuse("its first input is not [N, features]");
  }
  if (node.integer("transA", 0) != 0) in.refuse("transA is not 0");
  const bool transposed = node.integer("transB", 0) != 0;
  const auto& dims = matrix->dims;
  if (dims.size() != 2 || matrix->integer) in.refuse("its matrix is not one of floats");
  const int64_t features = dims[transposed ? 1 : 0], out = dims[transposed ? 0 : 1];
  if (features != view.dims.back()) in.refuse("the matrix does not fit the features");
  const bool flat = view.dims.size() == 2;
  if (!flat) view = in.straighten(view);
  Draft draft = linear_draft(
      out, linear_weight(*matrix, transposed, features, out, view.order, node.number("alpha", 1)));
  const bool sums = in.has(2) && !in.is_known(2);  // of a value that is computed
  if (sums) {
    Composition make(in);
    std::map<std::string, Attribute> attributes = node.attributes;
    const std::string product = make.add("Gemm", {node.input(0), node.input(1)}, attributes);
    const std::string factor = make.number(node.number("beta", 1));
    return make.finish("Add", {product, make.add("Mul", {node.input(2), factor})});
  }
  if (const ConstantPtr bias = in.known(2)) {
    View result;
    result.dims = {kBatch, out};
    const Broadcast added = read_broadcast(*bias, result);
    std::vector<float> values;
    for (int64_t o = 0; o < out; ++o) {
      const size_t at = added.kind == Vary::none ? 0 : size_t(o);
      values.push_back(float(added.numbers[at] * node.number("beta", 1)));
    }
    draft.set_bias(std::move(values));
  }
  if (!flat) {
    in.shape_input({view.features() / features, features});
    draft.set("per_step", true);
  }
  in.add(std::move(draft));
  view.dims.back() = out;
  view.order.clear();
  in.give(view);
}

// The matrix may be the first factor: a x is (x^T a^T)^T.
void import_matmul(Importer& in) {
  const bool first = in.is_known(0);
  if (!first && !in.is_known(1)) return multiply_values(in);
  const ConstantPtr matrix = in.require_known(first ? 0 : 1);
  if (!first && matrix->dims.size() == 1) {  // a vector
    Composition make(in);
    const std::string column = make.add("Unsqueeze", {in.node().input(1), make.integers({1})});
    const std::string product = make.add("MatMul", {in.node().input(0), column});
    return make.finish("Squeeze", {product, make.integers({-1})});
  }
  View view = in.take(first ? 1 : 0).view;
  const size_t rank = view.dims.size();
  // Dimensions of one element before the matrix repeat it.
  std::vector<int64_t> dims = matrix->dims;
  while (dims.size() > 2 && dims.size() <= rank && dims[0] == 1) dims.erase(dims.begin());
  if (dims.size() != 2 || matrix->integer) in.refuse("its matrix is not one of floats");
  const std::vector<int64_t> perm = rank < 2 ? std::vector<int64_t>() : last_two_swapped(rank);
  if (first && rank > 1) view = transposed(view, perm);
  if (rank < 2 || view.batch_axis + 1 == rank || view.dims.back() != dims[first ? 1 : 0]) {
    in.refuse("the matrix does not fit the features");
  }
  view = multiply_by(in, view, *matrix, first, dims[first ? 0 : 1]);
  in.give(first ? transposed(view, perm) : view);
}

}  // namespace ridgeline::onnx
