#include "ridgeline/cuda/kernel.h"
#include "ridgeline/cuda/plain/bias_sum.h"
#include "ridgeline/cuda/plain/elementwise.h"
#include "ridgeline/cuda/vendor/kernels.h"
#include "ridgeline/cuda/vendor/product.h"

namespace ridgeline::cuda {
namespace {

constexpr int kProposals = 3;
constexpr size_t kWorkspaceAlignment = 256;  // an arena's slices start at multiples of 64

void* aligned(std::byte* workspace) {
  const auto at = reinterpret_cast<uintptr_t>(workspace);
  return workspace +
         ((at + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment - at);
}

// A product, and the op that our own kernel computes if cuBLASLt has no suitable epilogue: it has
// none in fp64, and in half types some algorithms leave parts of a bias gradient unwritten
// (observed with cuBLASLt 13.1 on sm_90).
struct Recipe {
  Product product;
  enum class Beside { nothing, fill_bias, sum_bias } beside = Beside::nothing;
};

using Epilogue = Product::Epilogue;

// Y^T[out, n] = W[in, out]^T X^T[in, n], with the bias along its rows
Product product_of(const Linear& op, Precision precision, Epilogue epilogue) {
  Product product;
  product.dtype = product.result = op.x.dtype;
  product.precision = precision;
  product.m = op.out();
  product.n = op.n();
  product.k = op.in();
  product.a_transposed = true;
  product.epilogue = epilogue;
  return product;
}

// dX^T[in, n] = W[in, out] dY^T[out, n]
Product product_of(const LinearGradX& op, Precision precision) {
  Product product;
  product.dtype = product.result = op.dy.dtype;
  product.precision = precision;
  product.m = op.in();
  product.n = op.n();
  product.k = op.out();
  return product;
}

// dW^T[in, out] = X^T[in, n] dY[n, out]; the bias gradient sums dY over n
Product product_of(const LinearGradW& op, Precision precision, Epilogue epilogue) {
  Product product;
  product.dtype = op.x.dtype;
  product.result = op.dw.dtype;
  product.precision = precision;
  product.m = op.in();
  product.n = op.out();
  product.k = op.n();
  product.b_transposed = true;
  product.epilogue = epilogue;
  return product;
}

bool has_epilogue(const CublasLt& library, const Product& product) {
  return product.dtype == DType::fp32 &&
         PreparedProduct(library, product, nullptr, 1).algorithms() > 0;
}

Recipe recipe(const CublasLt& library, const Linear& op, Precision precision) {
  Recipe recipe{product_of(op, precision, op.b ? Epilogue::bias : Epilogue::none)};
  if (op.b && !has_epilogue(library, recipe.product)) {
    recipe.product.epilogue = Epilogue::none;
    recipe.product.adds = true;
    recipe.beside = Recipe::Beside::fill_bias;
  }
  return recipe;
}

Recipe recipe(const CublasLt& library, const LinearGradW& op, Precision precision) {
  Recipe recipe{product_of(op, precision, op.db ? Epilogue::grad_bias : Epilogue::none)};
  if (op.db && !has_epilogue(library, recipe.product)) {
    recipe.product.epilogue = Epilogue::none;
    recipe.beside = Recipe::Beside::sum_bias;
  }
  return recipe;
}

// Why cuBLASLt cannot take these operands.
std::string refuse(const RemainingOps& rest, const Values& values) {
  const CublasLt& library = cuda_runtime(rest.runtime).cublaslt();
  if (!library.refusal().empty()) return library.refusal();
  for (const Value& value : values) {
    if (value && value.shape.numel() == 0) return "an operand is empty";
  }
  return refuse_floats(values);
}

Cover cover(const RemainingOps& rest, const Product& product, size_t ops, int proposal) {
  const CublasLt& library = cuda_runtime(rest.runtime).cublaslt();
  const PreparedProduct prepared(library, product, nullptr, kProposals);
  if (prepared.algorithms() == 0) return Cover::no("cuBLASLt does not compute this product");
  if (size_t(proposal) >= prepared.algorithms()) {
    return Cover::no(fmt::format("cuBLASLt proposes only {} algorithms", prepared.algorithms()));
  }
  return cover_unless({}, ops, product_workspace(product) + kWorkspaceAlignment);
}

Cover covers_linear(const RemainingOps& rest, int proposal) {
  const auto* op = rest.get<Linear>(0);
  if (op == nullptr) return no_such_op(Linear::kName);
  std::string reason = refuse(rest, {op->x, op->w, unless_accumulator(op->b, op->x.dtype), op->y});
  // Observed with every way of adding it: an epilogue, or a result that the product is added to.
  if (op->b && size_of(op->x.dtype) < 4) {
    reason = "cuBLASLt may round a product in half precision before it adds the bias";
  }
  if (!reason.empty()) return Cover::no(reason);
  const CublasLt& library = cuda_runtime(rest.runtime).cublaslt();
  return cover(rest, recipe(library, *op, rest.program.precision).product, 1, proposal);
}

Cover covers_linear_relu(const RemainingOps& rest, int proposal) {
  const auto* linear = rest.get<Linear>(0);
  const auto* activation = rest.get<Activation>(1);
  if (linear == nullptr || activation == nullptr || activation->x.id != linear->y.id ||
      activation->kind != ActivationKind::relu) {
    return Cover::no("the next ops are no linear and its relu");
  }
  if (!rest.dead_after(linear->y, 2)) {
    return Cover::no("the input of the activation is needed later");
  }
  const std::string reason = refuse(
      rest, {linear->x, linear->w, unless_accumulator(linear->b, linear->x.dtype), activation->y});
  if (!reason.empty()) return Cover::no(reason);
  if (linear->x.dtype != DType::fp32) return Cover::no("the library's relu is exact in fp32 only");
  const Product product =
      product_of(*linear, rest.program.precision, linear->b ? Epilogue::relu_bias : Epilogue::relu);
  Cover both = cover(rest, product, 2, proposal);
  if (both.ops > 0) both.skips = {linear->y.id};
  return both;
}

Cover covers_grad_x(const RemainingOps& rest, int proposal) {
  const auto* op = rest.get<LinearGradX>(0);
  if (op == nullptr) return no_such_op(LinearGradX::kName);
  const std::string reason = refuse(rest, {op->dy, op->w, op->dx});
  if (!reason.empty()) return Cover::no(reason);
  return cover(rest, product_of(*op, rest.program.precision), 1, proposal);
}

Cover covers_grad_w(const RemainingOps& rest, int proposal) {
  const auto* op = rest.get<LinearGradW>(0);
  if (op == nullptr) return no_such_op(LinearGradW::kName);
  const DType factors = op->x.dtype;
  const std::string reason = refuse(rest, {op->x, op->dy, unless_accumulator(op->dw, factors),
                                           unless_accumulator(op->db, factors)});
  if (!reason.empty()) return Cover::no(reason);
  if (op->db && op->db.dtype != op->dw.dtype) return Cover::no("wants one type of gradients");
  const CublasLt& library = cuda_runtime(rest.runtime).cublaslt();
  return cover(rest, recipe(library, *op, rest.program.precision).product, 1, proposal);
}

// The product by itself. Memory that is less aligned than covers() assumed may have fewer
// proposals; the last one is then used.
template <typename Before, typename After>
std::unique_ptr<Step> make_product(const Span& span, const Binding& binding, const Product& product,
                                   const ProductOperands& operands, int proposal, Before before,
                                   After after) {
  const CudaRuntime& runtime = cuda_runtime(binding.runtime());
  auto prepared =
      std::make_shared<PreparedProduct>(runtime.cublaslt(), product, &operands, kProposals);
  const std::string what = describe(span.op(0));
  if (prepared->algorithms() == 0) {
    throw_error(ErrorKind::device, "{}: cuBLASLt has no algorithm for operands at odd addresses",
                what);
  }
  const size_t algorithm = std::min(size_t(proposal), prepared->algorithms() - 1);
  const auto* api = &runtime.cublaslt().api();
  return launch_step(
      binding, what, [=, workspace = aligned(binding.workspace())](cudaStream_t stream) {
        if (const cudaError_t error = before(stream); error != cudaSuccess) return error;
        const cublasStatus_t status = prepared->run(algorithm, operands, workspace, stream);
        if (status != CUBLAS_STATUS_SUCCESS) {
          throw_error(ErrorKind::device, "{}: cuBLASLt reports {}", what, api->status_text(status));
        }
        return after(stream);
      });
}

constexpr auto kNothing = [](cudaStream_t) { return cudaSuccess; };

// Prepares a linear op alone, or with the relu that follows it.
std::unique_ptr<Step> prepare_linear(const Span& span, const Binding& binding, int proposal) {
  const auto& op = span.get<Linear>(0);
  const bool fused = span.size() == 2;
  const Tensor y = binding.write(fused ? span.get<Activation>(1).y : op.y), b = binding.read(op.b);
  const ProductOperands operands{binding.read(op.w).data, binding.read(op.x).data, y.data, b.data};
  const Precision precision = span.program.precision;
  if (fused) {
    const Epilogue epilogue = op.b ? Epilogue::relu_bias : Epilogue::relu;
    return make_product(span, binding, product_of(op, precision, epilogue), operands, proposal,
                        kNothing, kNothing);
  }
  const Recipe how = recipe(cuda_runtime(binding.runtime()).cublaslt(), op, precision);
  if (how.beside == Recipe::Beside::nothing) {
    return make_product(span, binding, how.product, operands, proposal, kNothing, kNothing);
  }
  return dispatch_device_float(op.x.dtype, [&](auto type) {
    using T = decltype(type);
    const auto fill = [b = b.as<T>(), y = y.as<T>(), n = op.n(),
                       out = op.out()](cudaStream_t stream) {
      return launch_fill_rows<T>(b, y, n, out, stream);
    };
    return make_product(span, binding, how.product, operands, proposal, fill, kNothing);
  });
}

std::unique_ptr<Step> prepare_grad_x(const Span& span, const Binding& binding, int proposal) {
  const auto& op = span.get<LinearGradX>(0);
  const ProductOperands operands{binding.read(op.w).data, binding.read(op.dy).data,
                                 binding.write(op.dx).data, nullptr};
  return make_product(span, binding, product_of(op, span.program.precision), operands, proposal,
                      kNothing, kNothing);
}

std::unique_ptr<Step> prepare_grad_w(const Span& span, const Binding& binding, int proposal) {
  const auto& op = span.get<LinearGradW>(0);
  const Tensor dy = binding.read(op.dy), db = binding.write(op.db);
  const ProductOperands operands{binding.read(op.x).data, dy.data, binding.write(op.dw).data,
                                 db.data};
  const Recipe how = recipe(cuda_runtime(binding.runtime()).cublaslt(), op, span.program.precision);
  if (how.beside == Recipe::Beside::nothing) {
    return make_product(span, binding, how.product, operands, proposal, kNothing, kNothing);
  }
  return make_product(span, binding, how.product, operands, proposal, kNothing,
                      bias_sum(op, binding));
}

}  // namespace

KernelTable cublaslt_kernels() {
  struct Family {
    const char* name;
    Cover (*covers)(const RemainingOps&, int proposal);
    std::unique_ptr<Step> (*prepare)(const Span&, const Binding&, int proposal);
    Precisions precisions = kEveryPrecision;
  };
  const Family families[] = {
      {"linear_relu", covers_linear_relu, prepare_linear, kStoredInFp32},
      {"linear", covers_linear, prepare_linear},
      {"linear_grad_x", covers_grad_x, prepare_grad_x},
      {"linear_grad_w", covers_grad_w, prepare_grad_w},
  };
  KernelTable table;
  for (const Family& family : families) {
    for (int proposal = 0; proposal < kProposals; ++proposal) {
      table.push_back(cuda_kernel(fmt::format("cuda.{}.cublaslt.{}", family.name, proposal),
                                  family.covers, family.prepare, proposal,
                                  {.precisions = family.precisions,
                                   .library = Library::cublaslt,
                                   .vendor = true,
                                   .further_proposal = proposal > 0}));
    }
  }
  return concurrent(std::move(table));
}

}  // namespace ridgeline::cuda
