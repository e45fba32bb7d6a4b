#include "ridgeline/cuda/plain/gemm.h"
#include "ridgeline/cuda/plain/rows.h"
#include "ridgeline/cuda/row.h"
#include "ridgeline/cuda/sgd_cover.h"

namespace ridgeline::cuda {
namespace {

// D[m, n] of a product over k.
struct Extents {
  int64_t m, n, k;
};
Extents extents(const Linear& op) { return {op.n(), op.out(), op.in()}; }
Extents extents(const LinearGradX& op) { return {op.n(), op.in(), op.out()}; }
Extents extents(const LinearGradW& op) { return {op.out(), op.in(), op.n()}; }

GemmTiling tiling_of(const Extents& e, DType dtype, int tile, const Runtime& runtime) {
  const size_t width = dtype == DType::fp64 ? 8 : 4;
  return gemm_tiling(e.m, e.n, e.k, tile, width, cuda_runtime(runtime).processors());
}

Cover cover_product(const Rest& rest, const Extents& e, const Values& values, size_t ops,
                    int tile) {
  std::string reason = refuse_floats(values);
  if (reason.empty()) reason = refuse_large({e.m, e.n, e.k});
  if (reason.empty() && tile == 128) {
    if (size_of(values[0].dtype) < 4) reason = "tiles of 128 are for fp64 and fp32";
    if (std::max(e.m, e.n) <= 64) reason = "tiles of 64 hold the result";
  }
  if (!reason.empty()) return Cover::no(reason);
  return cover_unless({}, ops, tiling_of(e, values[0].dtype, tile, rest.runtime).workspace);
}

Cover covers_linear(const Rest& rest, int tile) {
  const auto* op = rest.get<Linear>(0);
  if (op == nullptr) return no_such_op(Linear::kName);
  return cover_product(rest, extents(*op), {op->x, op->w, unless_wide(op->b, op->x.dtype), op->y},
                       1, tile);
}

Cover covers_linear_activation(const Rest& rest, int tile) {
  const auto* linear = rest.get<Linear>(0);
  const auto* activation = rest.get<Activation>(1);
  if (linear == nullptr || activation == nullptr || activation->x.id != linear->y.id) {
    return Cover::no("the next ops are no linear and its activation");
  }
  if (!rest.dead_after(linear->y, 2)) {
    return Cover::no("the input of the activation is needed later");
  }
  const Values values{linear->x, linear->w, unless_wide(linear->b, linear->x.dtype), activation->y};
  Cover cover = cover_product(rest, extents(*linear), values, 2, tile);
  if (cover.ops > 0) cover.skips = {linear->y.id};
  return cover;
}

// Of a linear alone, or with the activation that follows it.
std::unique_ptr<Step> prepare_linear(const Span& span, const Binding& binding, int tile) {
  const auto& op = span.get<Linear>(0);
  const bool fused = span.size() == 2;
  const Value& y = fused ? span.get<Activation>(1).y : op.y;
  const Curve curve = fused ? curve_of(span.get<Activation>(1).kind) : Curve::none;
  const GemmTiling tiling = tiling_of(extents(op), y.dtype, tile, binding.runtime());
  const bool wide_b = is_wide(op.b, op.x.dtype);
  return dispatch_device_float(y.dtype, [&](auto type) {
    using T = decltype(type);
    const LinearArgs<T> args{binding.read(op.x).as<T>(),
                             binding.read(op.w).as<T>(),
                             wide_b ? nullptr : binding.read(op.b).as<T>(),
                             wide_b ? binding.read(op.b).as<float>() : nullptr,
                             binding.write(y).as<T>(),
                             int(op.n()),
                             int(op.in()),
                             int(op.out()),
                             curve};
    return launch_step(binding, describe(span.op(0)),
                       [args, tiling, workspace = binding.workspace()](cudaStream_t stream) {
                         return launch_linear<T>(args, tiling, workspace, stream);
                       });
  });
}

Cover covers_grad_x(const Rest& rest, int tile) {
  const auto* op = rest.get<LinearGradX>(0);
  if (op == nullptr) return no_such_op(LinearGradX::kName);
  return cover_product(rest, extents(*op), {op->dy, op->w, op->dx}, 1, tile);
}

std::unique_ptr<Step> prepare_grad_x(const Span& span, const Binding& binding, int tile) {
  const auto& op = span.get<LinearGradX>(0);
  const GemmTiling tiling = tiling_of(extents(op), op.dx.dtype, tile, binding.runtime());
  return dispatch_device_float(op.dx.dtype, [&](auto type) {
    using T = decltype(type);
    const LinearGradXArgs<T> args{binding.read(op.dy).as<T>(),
                                  binding.read(op.w).as<T>(),
                                  binding.write(op.dx).as<T>(),
                                  int(op.n()),
                                  int(op.in()),
                                  int(op.out())};
    return launch_step(binding, describe(span.op(0)),
                       [args, tiling, workspace = binding.workspace()](cudaStream_t stream) {
                         return launch_linear_grad_x<T>(args, tiling, workspace, stream);
                       });
  });
}

Cover covers_grad_w(const Rest& rest, int tile) {
  const auto* op = rest.get<LinearGradW>(0);
  if (op == nullptr) return no_such_op(LinearGradW::kName);
  if (op->db && op->db.dtype != op->dw.dtype) return Cover::no("wants one type of gradients");
  return cover_product(
      rest, extents(*op),
      {op->x, op->dy, unless_wide(op->dw, op->x.dtype), unless_wide(op->db, op->x.dtype)}, 1, tile);
}

Cover covers_grad_w_sgd(const Rest& rest, int tile) {
  const GradWithUpdates found = match_grad_with_updates(rest);
  if (!found.refusal.empty()) return Cover::no(found.refusal);
  Cover cover = cover_product(rest, extents(*found.grad), found.values, found.ops, tile);
  if (cover.ops > 0) {
    cover.skips = {found.grad->dw.id};
    if (found.grad->db) cover.skips.push_back(found.grad->db.id);
  }
  return cover;
}

// Of the gradients alone, or with the updates that follow them.
std::unique_ptr<Step> prepare_grad_w(const Span& span, const Binding& binding, int tile) {
  const auto& op = span.get<LinearGradW>(0);
  const GemmTiling tiling = tiling_of(extents(op), op.x.dtype, tile, binding.runtime());
  return dispatch_device_float(op.x.dtype, [&](auto type) {
    using T = decltype(type);
    LinearGradWArgs<T> args{};
    args.x = binding.read(op.x).as<T>();
    args.dy = binding.read(op.dy).as<T>();
    args.n = int(op.n());
    args.in = int(op.in());
    args.out = int(op.out());
    using Wide = typename LinearGradWArgs<T>::Wide;
    if (span.size() == 1 && is_wide(op.dw, op.x.dtype)) {
      args.wide_dw = binding.write(op.dw).as<Wide>();
      args.wide_db = binding.write(op.db).as<Wide>();
    } else if (span.size() == 1) {
      args.dw = binding.write(op.dw).as<T>();
      args.db = binding.write(op.db).as<T>();
    } else {
      const auto& w = span.get<SgdUpdate>(1);
      args.w = binding.write(w.w).as<T>();
      args.w_momentum = binding.write(w.m).as<Wide>();
      args.sgd = sgd_settings(w, binding);
    }
    if (span.size() == 3) {
      const auto& b = span.get<SgdUpdate>(2);
      args.b = binding.write(b.w).as<T>();
      args.b_momentum = binding.write(b.m).as<Wide>();
    }
    return launch_step(binding, describe(span.op(0)),
                       [args, tiling, workspace = binding.workspace()](cudaStream_t stream) {
                         return launch_linear_grad_w<T>(args, tiling, workspace, stream);
                       });
  });
}

using Covers = Cover (*)(const Rest&, int tile);
using Prepare = std::unique_ptr<Step> (*)(const Span&, const Binding&, int tile);

}  // namespace

Table plain_linear_rows() {
  struct Family {
    const char* name;
    Covers covers;
    Prepare prepare;
  };
  const Family families[] = {
      {"linear_activation", covers_linear_activation, prepare_linear},
      {"linear", covers_linear, prepare_linear},
      {"linear_grad_x", covers_grad_x, prepare_grad_x},
      {"linear_grad_w_sgd", covers_grad_w_sgd, prepare_grad_w},
      {"linear_grad_w", covers_grad_w, prepare_grad_w},
  };
  Table table;
  for (const Family& family : families) {
    // The large tile reuses what it fetched more often; the small one fills the GPU sooner.
    for (const auto& [tile, how] : {std::pair{64, "plain"}, std::pair{128, "plain_large"}}) {
      table.push_back(cuda_row(
          fmt::format("cuda.{}.{}", family.name, how),
          [family, tile = tile](const Rest& rest) { return family.covers(rest, tile); },
          [family, tile = tile](const Span& span, const Binding& binding) {
            return family.prepare(span, binding, tile);
          }));
    }
  }
  return table;
}

}  // namespace ridgeline::cuda
