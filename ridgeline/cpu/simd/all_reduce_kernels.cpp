#include <algorithm>

#include "ridgeline/cpu/simd/batch.h"
#include "ridgeline/cpu/simd/kernel.h"
#include "ridgeline/cpu/simd/update.h"

// Gradients over several ranks. A start leaves a token that tells the wait what to do, so that any
// start fits any wait: twice the ticket, plus one if each rank has only its part of the sums.
// A single process is one rank.
namespace ridgeline::cpu::simd {
namespace {

// A sum is started in chunks of about this many bytes, so that one is sent while the next is
// computed. At 256 KiB message-passing libraries reach most of their rate; with 64 KiB the latency
// of each chunk shows, with 1 MiB too little is hidden.
constexpr int64_t kChunkBytes = 256 * 1024;

struct Sum {
  const std::byte* from;
  std::byte* to;
  int64_t count;
  DType dtype;
};

std::vector<Sum> sums_of(const AllReduceStart& op, const Binding& binding) {
  std::vector<Sum> sums;
  for (size_t k = 0; k < op.grads.size(); ++k) {
    sums.push_back({binding.read(op.grads[k]).as<std::byte>(),
                    binding.write(op.sums[k]).as<std::byte>(), op.grads[k].shape.numel(),
                    op.grads[k].dtype});
  }
  return sums;
}

void copy_sum(const Sum& sum, DType wire) {
  if (wire == DType::bf16 && sum.dtype == DType::fp32) {
    const auto* from = reinterpret_cast<const float*>(sum.from);
    auto* to = reinterpret_cast<float*>(sum.to);
    for (int64_t i = 0; i < sum.count; ++i) to[i] = float(Bf16(from[i]));
    return;
  }
  std::copy_n(sum.from, sum.count * int64_t(size_of(sum.dtype)), sum.to);
}

enum class SumMode { blocking, queued, scatter };

int64_t start_sum(Communicator* ranks, const Sum& sum, DType wire, SumMode how) {
  if (ranks == nullptr) {
    copy_sum(sum, wire);
    return 0;
  }
  if (how == SumMode::scatter) {
    return 2 * ranks->start_reduce_scatter(sum.from, sum.to, sum.count, sum.dtype) + 1;
  }
  if (how == SumMode::blocking) {
    ranks->all_reduce(sum.from, sum.to, sum.count, sum.dtype, Reduce::sum, wire);
    return 0;
  }
  const auto width = int64_t(size_of(sum.dtype)), chunk = kChunkBytes / width;
  int64_t ticket = 0;
  for (int64_t at = 0; at < sum.count; at += chunk) {
    ticket = ranks->start_all_reduce(sum.from + at * width, sum.to + at * width,
                                     std::min(chunk, sum.count - at), sum.dtype, wire);
  }
  return 2 * ticket;
}

Kernel start_kernel(const char* name, SumMode how) {
  Kernel kernel;
  kernel.name = name;
  if (how == SumMode::scatter) kernel.traits.precisions = kFloatAndDouble;
  kernel.covers = [how](const RemainingOps& rest) {
    const auto* op = rest.get<AllReduceStart>(0);
    if (op == nullptr) return Cover::no("the next op is no all_reduce_start");
    for (const Value& grad : op->grads) {
      if (how == SumMode::scatter && !takes(grad.dtype))
        return Cover::no("takes fp32 and fp64 only");
    }
    if (how == SumMode::scatter && op->wire == DType::bf16) return Cover::no("sends no bf16");
    return Cover::of(1);
  };
  kernel.prepare = [how](const Span& span, const Binding& binding) {
    const auto& op = span.get<AllReduceStart>(0);
    return make_step([sums = sums_of(op, binding), wire = op.wire, how,
                      token = binding.write(op.token).as<int64_t>(),
                      ranks = binding.runtime().ranks()] {
      *token = 0;
      for (const Sum& sum : sums) *token = std::max(*token, start_sum(ranks, sum, wire, how));
    });
  };
  return kernel;
}

// --- waits ---

struct Part {
  void* data;
  int64_t count;
  DType dtype;
};

Kernel wait_kernel() {
  Kernel kernel;
  kernel.name = "cpu.all_reduce_wait.ticket";
  kernel.covers = [](const RemainingOps& rest) {
    return rest.get<AllReduceWait>(0) != nullptr ? Cover::of(1)
                                                 : Cover::no("the next op is no all_reduce_wait");
  };
  kernel.prepare = [](const Span& span, const Binding& binding) {
    const auto& op = span.get<AllReduceWait>(0);
    std::vector<Part> parts;
    for (const Value& sum : op.sums) {
      parts.push_back({binding.write(sum).data, sum.shape.numel(), sum.dtype});
    }
    return make_step([parts = std::move(parts), token = binding.read(op.token).as<int64_t>(),
                      ranks = binding.runtime().ranks()] {
      if (ranks == nullptr) return;
      ranks->wait(*token / 2);
      if (*token % 2 == 0) return;
      for (const Part& part : parts) ranks->all_gather_parts(part.data, part.count, part.dtype);
    });
  };
  return kernel;
}

// Each rank updates its part of the weights and sends it to the others: the update is divided, and
// half of the traffic of an all-reduce comes after it instead of before.
Cover covers_sharded_update(const RemainingOps& rest) {
  const auto* wait = rest.get<AllReduceWait>(0);
  if (wait == nullptr) return Cover::no("the next op is no all_reduce_wait");
  const size_t count = wait->sums.size();
  for (size_t k = 0; k < count; ++k) {
    const auto* update = rest.get<SgdUpdate>(1 + k);
    if (update == nullptr || update->dw.id != wait->sums[k].id) {
      return Cover::no("no SGD update of each sum follows");
    }
    if (!takes(update->w.dtype) || update->w.dtype != update->dw.dtype) {
      return Cover::no("takes fp32 and fp64 only");
    }
    if (!rest.dead_after(update->dw, 1 + count)) return Cover::no("the sums are wanted outside");
  }
  return Cover::of(1 + count);
}

template <typename T>
struct ShardedUpdate {
  SgdArgs<T> args;
  int64_t count;
  const double *lr, *scale;
  const int32_t* tick;

  void operator()(Communicator* ranks, ThreadPool& pool) const {
    SgdArgs<T> now = args;
    now.sgd.lr = T(lr[*tick]);
    now.scale = scale != nullptr ? T(*scale) : T(1);
    const Range mine =
        ranks != nullptr ? split(count, ranks->rank(), ranks->size()) : Range{0, count};
    pool.share(mine.end - mine.begin, kGroup<T>, kLeastElements, [&](Range part) {
      update_functions<T>().sgd(now, {mine.begin + part.begin, mine.begin + part.end});
    });
    if (ranks == nullptr) return;
    ranks->all_gather_parts(now.w, count, dtype_of<T>());
    if (now.m != nullptr) ranks->all_gather_parts(now.m, count, dtype_of<T>());
  }
};

template <typename T>
std::unique_ptr<Step> prepare_sharded_update(const Span& span, const Binding& binding) {
  const auto& wait = span.get<AllReduceWait>(0);
  std::vector<ShardedUpdate<T>> updates;
  for (size_t k = 1; k < span.size(); ++k) {
    const auto& op = span.get<SgdUpdate>(k);
    updates.push_back({{binding.read(op.dw).as<T>(),
                        1,
                        0,
                        binding.write(op.w).as<T>(),
                        binding.write(op.m).as<T>(),
                        {0, T(op.momentum), T(op.weight_decay), op.nesterov}},
                       op.w.shape.numel(),
                       binding.read(op.lr).as<double>(),
                       binding.read(op.grad_scale).as<double>(),
                       binding.read(op.tick).as<int32_t>()});
  }
  return make_step([updates = std::move(updates), token = binding.read(wait.token).as<int64_t>(),
                    &pool = cpu_runtime(binding.runtime()).pool(),
                    ranks = binding.runtime().ranks()] {
    if (ranks != nullptr) ranks->wait(*token / 2);
    for (const auto& update : updates) update(ranks, pool);
  });
}

Kernel sharded_update_kernel() {
  Kernel kernel;
  kernel.name = "cpu.all_reduce_wait_sgd.sharded";
  kernel.traits.precisions = kFloatAndDouble;
  kernel.covers = covers_sharded_update;
  kernel.prepare = [](const Span& span, const Binding& binding) {
    return with_type(span.get<SgdUpdate>(1).w.dtype, [&](auto zero) {
      return prepare_sharded_update<decltype(zero)>(span, binding);
    });
  };
  return kernel;
}

}  // namespace

KernelTable all_reduce_kernels() {
  return {start_kernel("cpu.all_reduce_start.blocking", SumMode::blocking),
          start_kernel("cpu.all_reduce_start.queued", SumMode::queued),
          start_kernel("cpu.all_reduce_start.scatter", SumMode::scatter),
          wait_kernel(),
          sharded_update_kernel(),
          linear_grad_w_sum_kernel()};
}

}  // namespace ridgeline::cpu::simd
