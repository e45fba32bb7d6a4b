#include "ridgeline/cuda/channels_last/batch_norm.h"
#include "ridgeline/cuda/channels_last/format.h"
#include "ridgeline/cuda/channels_last/kernels.h"
#include "ridgeline/cuda/kernel.h"
#include "ridgeline/cuda/plain/bind_mixed_operand.h"
#include "ridgeline/cuda/pool_spans.h"

namespace ridgeline::cuda {
namespace {

constexpr const char* kNotThese = "the next ops are not those that this kernel takes";

PixelRows rows_of(const Image& image) { return {image.c, image.pixels()}; }
int sms(const Runtime& runtime) { return cuda_runtime(runtime).sms(); }

std::string refuse(const Values& values, const Values& statistics, const Image& in, int64_t n) {
  if (size_of(values[0].dtype) != 2) return "takes bf16 and fp16";
  if (in.c % 8 != 0) return "takes channels by eights";
  for (const Value& value : statistics) {
    if (value.dtype != DType::fp32) return "takes statistics in fp32 only";
  }
  std::string reason = refuse_floats(values);
  return reason.empty() ? refuse_large({n, in.c, in.pixels(), n * in.pixels()}) : reason;
}

bool is_relu(const Activation* op) { return op != nullptr && op->kind == ActivationKind::relu; }

// Whether the pool is 2 x 2 and leaves out no pixel.
bool halves(const PoolShape& pool, const Image& normalised) {
  return quads(pool) && pool.in.h % 2 == 0 && pool.in.w % 2 == 0 && pool.in.c == normalised.c &&
         pool.in.pixels() == normalised.pixels();
}

// The ops of a span that begins with a normalisation.
struct NormSpan {
  const BatchNorm* norm = nullptr;
  const Activation* relu = nullptr;
  const MaxPool* pool = nullptr;
  const Add* add = nullptr;
  Value skip;  // the other addend

  size_t ops() const {
    return 1 + size_t(relu != nullptr) + size_t(pool != nullptr) + size_t(add != nullptr);
  }
};

// The other addend of a sum of two that includes `x`; absent if this is no such sum.
Value other_addend(const Add& add, const Value& x) {
  if (add.xs.size() != 2 || add.scale != 1 || add.xs[0].id == add.xs[1].id) return {};
  return add.xs[0].id == x.id ? add.xs[1] : add.xs[1].id == x.id ? add.xs[0] : Value{};
}

std::optional<NormSpan> find_norm(const RemainingOps& rest, NormTail tail) {
  NormSpan found;
  found.norm = rest.get<BatchNorm>(0);
  if (found.norm == nullptr) return {};
  const Value& y = found.norm->y;
  switch (tail) {
    case NormTail::none:
      return found;
    case NormTail::add_relu:
      found.add = rest.get<Add>(1);
      found.relu = rest.get<Activation>(2);
      if (found.add == nullptr || !is_relu(found.relu) || found.relu->x.id != found.add->y.id) {
        return {};
      }
      found.skip = other_addend(*found.add, y);
      return found.skip ? std::optional(found) : std::nullopt;
    case NormTail::relu:
    case NormTail::relu_pool:
    case NormTail::relu_add:
      break;
  }
  found.relu = rest.get<Activation>(1);
  if (!is_relu(found.relu) || found.relu->x.id != y.id) return {};
  if (tail == NormTail::relu_pool) {
    found.pool = rest.get<MaxPool>(2);
    if (found.pool == nullptr || found.pool->x.id != found.relu->y.id ||
        !halves(found.pool->shape, found.norm->in)) {
      return {};
    }
  }
  if (tail == NormTail::relu_add) {
    found.add = rest.get<Add>(2);
    if (found.add == nullptr) return {};
    found.skip = other_addend(*found.add, found.relu->y);
    if (!found.skip) return {};
  }
  return found;
}

Cover covers_norm(const RemainingOps& rest, NormTail tail) {
  if (rest.get<BatchNorm>(0) == nullptr) return no_such_op(BatchNorm::kName);
  const auto found = find_norm(rest, tail);
  if (!found) return Cover::no(kNotThese);
  const BatchNorm& norm = *found->norm;
  const DType dtype = norm.x.dtype;
  const std::string reason =
      refuse({norm.x, unless_mixed(norm.gamma, dtype), unless_mixed(norm.beta, dtype), norm.y,
              found->skip},
             {norm.mean, norm.rstd, norm.running_mean, norm.running_var}, norm.in, norm.n());
  if (!reason.empty()) return Cover::no(reason);
  Cover cover = Cover::of(found->ops());
  const PixelRows rows = rows_of(norm.in);
  const auto inner = [&](const Value& value) {
    if (!rest.dead_after(value, cover.ops)) return false;
    cover.skips.push_back(value.id);
    return true;
  };
  use_channels_last(cover.reads, norm.x, rows);
  if (found->skip) use_channels_last(cover.reads, found->skip, rows);
  if (tail == NormTail::none) {
    use_channels_last(cover.writes, norm.y, rows);
  } else if (!inner(norm.y) || (tail == NormTail::add_relu && !inner(found->add->y))) {
    return Cover::no("a value between the ops is needed later");
  } else if (tail == NormTail::relu || tail == NormTail::add_relu || !inner(found->relu->y)) {
    use_channels_last(cover.writes, found->relu->y, rows);
  }
  if (found->pool != nullptr) {
    use_channels_last(cover.writes, found->pool->y, rows_of(found->pool->shape.out()));
  }
  if (tail == NormTail::relu_add) use_channels_last(cover.writes, found->add->y, rows);
  cover.workspace = norm_workspace(norm.count(), int(norm.in.c), sms(rest.runtime));
  return cover;
}

std::unique_ptr<Step> prepare_norm(const Span& span, const Binding& binding, NormTail tail) {
  const NormSpan found = *find_norm({span.program, span.begin, binding.runtime()}, tail);
  const BatchNorm& norm = *found.norm;
  return dispatch_device_half(norm.x.dtype, [&](auto type) {
    using T = decltype(type);
    RowsNormArgs<T> args;
    args.x = binding.read(norm.x).as<T>();
    args.gamma = read_mixed<T>(binding, norm.gamma, norm.x.dtype);
    args.beta = read_mixed<T>(binding, norm.beta, norm.x.dtype);
    if (tail == NormTail::none) args.y = binding.write(norm.y).as<T>();
    if (found.relu != nullptr) args.active = binding.write(found.relu->y).as<T>();
    if (found.pool != nullptr) args.tail = binding.write(found.pool->y).as<T>();
    if (tail == NormTail::relu_add) args.tail = binding.write(found.add->y).as<T>();
    if (found.skip) args.skip = binding.read(found.skip).as<T>();
    args.mean = binding.write(norm.mean).as<float>();
    args.rstd = binding.write(norm.rstd).as<float>();
    args.running_mean = binding.write(norm.running_mean).as<float>();
    args.running_var = binding.write(norm.running_var).as<float>();
    args.batches = binding.write(norm.batches).as<int64_t>();
    args.rows = norm.count();
    args.c = int(norm.in.c);
    if (found.pool != nullptr) {
      args.h = int(found.pool->shape.in.h);
      args.w = int(found.pool->shape.in.w);
    }
    args.epsilon = norm.epsilon;
    args.momentum = norm.momentum;
    args.partial = reinterpret_cast<float*>(binding.workspace());
    return launch_step(binding, describe(span.op(0)),
                       [args, tail, count = sms(binding.runtime())](cudaStream_t stream) {
                         return launch_rows_norm<T>(args, tail, count, stream);
                       });
  });
}

// The ops of a span that ends with the gradient of a normalisation.
struct GradSpan {
  const MaxPoolGrad* pool = nullptr;
  const ActivationGrad* relu = nullptr;
  const BatchNormGrad* norm = nullptr;

  size_t ops() const { return 1 + size_t(relu != nullptr) + size_t(pool != nullptr); }
  const Value& dy() const {
    return pool != nullptr ? pool->dy : relu != nullptr ? relu->dy : norm->dy;
  }
};

std::optional<GradSpan> find_grad(const RemainingOps& rest, NormHead head) {
  GradSpan found;
  size_t at = 0;
  if (head == NormHead::pool_relu) {
    found.pool = rest.get<MaxPoolGrad>(at++);
    if (found.pool == nullptr) return {};
  }
  if (head != NormHead::none) {
    found.relu = rest.get<ActivationGrad>(at++);
    if (found.relu == nullptr || found.relu->kind != ActivationKind::relu) return {};
  }
  found.norm = rest.get<BatchNormGrad>(at);
  if (found.norm == nullptr) return {};
  if (found.relu != nullptr && found.norm->dy.id != found.relu->dx.id) return {};
  if (found.pool != nullptr &&
      (found.relu->dy.id != found.pool->dx.id || found.relu->saved.id != found.pool->x.id ||
       !halves(found.pool->shape, found.norm->in))) {
    return {};
  }
  return found;
}

Cover covers_grad(const RemainingOps& rest, NormHead head) {
  const auto found = find_grad(rest, head);
  if (!found) return Cover::no(kNotThese);
  const BatchNormGrad& norm = *found->norm;
  const DType dtype = norm.x.dtype;
  const std::string reason =
      refuse({norm.x, unless_mixed(norm.gamma, dtype), norm.dy, norm.dx,
              unless_mixed(norm.dgamma, dtype), unless_mixed(norm.dbeta, dtype)},
             {norm.mean, norm.rstd}, norm.in, norm.n());
  if (!reason.empty()) return Cover::no(reason);
  Cover cover = Cover::of(found->ops());
  const PixelRows rows = rows_of(norm.in);
  use_channels_last(cover.reads, norm.x, rows);
  use_channels_last(cover.reads, found->dy(),
                    found->pool != nullptr ? rows_of(found->pool->shape.out()) : rows);
  if (found->relu != nullptr) {
    use_channels_last(cover.reads, found->relu->saved, rows);
    if (rest.dead_after(found->relu->dx, cover.ops)) {
      cover.skips.push_back(found->relu->dx.id);
    } else {
      use_channels_last(cover.writes, found->relu->dx, rows);
    }
  }
  if (found->pool != nullptr) {
    use_channels_last(cover.reads, found->pool->y, rows_of(found->pool->shape.out()));
    if (!rest.dead_after(found->pool->dx, cover.ops)) {
      return Cover::no("the pool's gradient is needed later");
    }
    cover.skips.push_back(found->pool->dx.id);
  }
  if (norm.dx) use_channels_last(cover.writes, norm.dx, rows);
  cover.workspace = norm_workspace(norm.count(), int(norm.in.c), sms(rest.runtime));
  return cover;
}

std::unique_ptr<Step> prepare_grad(const Span& span, const Binding& binding, NormHead head) {
  const GradSpan found = *find_grad({span.program, span.begin, binding.runtime()}, head);
  const BatchNormGrad& norm = *found.norm;
  return dispatch_device_half(norm.x.dtype, [&](auto type) {
    using T = decltype(type);
    RowsNormGradArgs<T> args;
    args.x = binding.read(norm.x).as<T>();
    args.dy = binding.read(found.dy()).as<T>();
    if (found.relu != nullptr) {
      args.active = binding.read(found.relu->saved).as<T>();
      args.masked = binding.write(found.relu->dx).as<T>();
    }
    args.gamma = read_mixed<T>(binding, norm.gamma, norm.x.dtype);
    args.mean = binding.read(norm.mean).as<float>();
    args.rstd = binding.read(norm.rstd).as<float>();
    args.dx = binding.write(norm.dx).as<T>();
    args.dgamma = write_mixed<T>(binding, norm.dgamma, norm.x.dtype);
    args.dbeta = write_mixed<T>(binding, norm.dbeta, norm.x.dtype);
    args.rows = norm.n() * norm.in.pixels();
    args.c = int(norm.in.c);
    if (found.pool != nullptr) {
      args.h = int(found.pool->shape.in.h);
      args.w = int(found.pool->shape.in.w);
    }
    args.partial = reinterpret_cast<float*>(binding.workspace());
    return launch_step(binding, describe(span.op(0)),
                       [args, head, count = sms(binding.runtime())](cudaStream_t stream) {
                         return launch_rows_norm_grad<T>(args, head, count, stream);
                       });
  });
}

}  // namespace

KernelTable channels_last_norm_kernels() {
  constexpr std::pair<const char*, NormTail> kTails[] = {
      {"batch_norm_relu_pool", NormTail::relu_pool},
      {"batch_norm_relu_add", NormTail::relu_add},
      {"batch_norm_add_relu", NormTail::add_relu},
      {"batch_norm_relu", NormTail::relu},
      {"batch_norm", NormTail::none}};
  constexpr std::pair<const char*, NormHead> kHeads[] = {
      {"pool_relu_batch_norm_grad", NormHead::pool_relu},
      {"relu_batch_norm_grad", NormHead::relu},
      {"batch_norm_grad", NormHead::none}};
  KernelTable table;
  for (const auto& [name, tail] : kTails) {
    table.push_back(
        cuda_kernel(fmt::format("cuda.{}.channels_last", name), covers_norm, prepare_norm, tail));
  }
  for (const auto& [name, head] : kHeads) {
    table.push_back(
        cuda_kernel(fmt::format("cuda.{}.channels_last", name), covers_grad, prepare_grad, head));
  }
  return computing_in(kHalves, concurrent(std::move(table)));
}

}  // namespace ridgeline::cuda
