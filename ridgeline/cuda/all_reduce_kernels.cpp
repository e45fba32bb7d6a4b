#include "ridgeline/cuda/all_reduce_kernels.h"

#include <algorithm>
#include <optional>

#include "ridgeline/core/device_sums.h"
#include "ridgeline/cuda/kernel.h"
#include "ridgeline/cuda/libraries/nccl.h"
#include "ridgeline/cuda/narrow_sum.h"

namespace ridgeline::cuda {
namespace {

struct Sum {
  const void* from;
  void* to;
  int64_t count;
  DType dtype;

  size_t bytes() const { return size_t(count) * size_of(dtype); }
};

std::vector<Sum> sums_of(const AllReduceStart& op, const Binding& binding) {
  std::vector<Sum> sums;
  for (size_t k = 0; k < op.grads.size(); ++k) {
    sums.push_back({binding.read(op.grads[k]).data, binding.write(op.sums[k]).data,
                    op.grads[k].shape.numel(), op.grads[k].dtype});
  }
  return sums;
}

Collectives* collectives_of(const Binding& binding) {
  return cuda_runtime(binding.runtime()).collectives();
}

// --- NCCL ---

Cover covers_nccl(const RemainingOps& rest) {
  const auto* op = rest.get<AllReduceStart>(0);
  if (op == nullptr) return no_such_op("all_reduce_start");
  const Collectives* collectives = cuda_runtime(rest.runtime).collectives();
  if (collectives == nullptr) return Cover::no("this process is alone");
  if (!collectives->nccl_refusal().empty()) return Cover::no(collectives->nccl_refusal());
  for (const Value& grad : op->grads) {
    if (grad.dtype != DType::fp32 && grad.dtype != DType::fp64) {
      return Cover::no("adds up fp32 and fp64 only");
    }
  }
  return Cover::of(1);
}

// Sums fp32 gradients that are sent as bf16. Each rank receives one part from all others, adds it
// up in fp32 and sends the sum to all. NCCL's own bf16 sums would round after every addition.
class NarrowSum {
 public:
  NarrowSum(int64_t most, const Binding& binding)
      : collectives_(collectives_of(binding)),
        ranks_(collectives_->ranks().size()),
        rank_(collectives_->ranks().rank()),
        packed_(binding.runtime(), bytes_of(most)),
        parts_(binding.runtime(), bytes_of(most)) {}

  void add_up(const Sum& sum) const {
    const int64_t part = part_of(sum.count);
    const cudaStream_t stream = collectives_->stream();
    auto* packed = reinterpret_cast<__nv_bfloat16*>(packed_.data());
    auto* parts = reinterpret_cast<__nv_bfloat16*>(parts_.data());
    check(launch_narrow(static_cast<const float*>(sum.from), packed, sum.count, part * ranks_,
                        stream),
          "gradients as bf16");
    collectives_->exchange(packed, parts, part);
    check(launch_add_parts(parts, packed + rank_ * part, part, ranks_, stream),
          "a sum of gradients in bf16");
    collectives_->all_gather(packed, part);
    check(launch_widen(packed, static_cast<float*>(sum.to), sum.count, stream),
          "sums of gradients from bf16");
  }

 private:
  int64_t part_of(int64_t count) const { return (count + ranks_ - 1) / ranks_; }
  size_t bytes_of(int64_t count) const {
    return size_t(part_of(count) * ranks_) * sizeof(__nv_bfloat16);
  }

  Collectives* collectives_;
  int ranks_, rank_;
  // One sum at a time uses these, because sums run one after another on their stream.
  DeviceBuffer packed_, parts_;
};

class NcclSum final : public Step {
 public:
  NcclSum(const AllReduceStart& op, const Binding& binding)
      : sums_(sums_of(op, binding)),
        token_(binding.write(op.token).data),
        collectives_(collectives_of(binding)),
        stream_(cuda_runtime(binding.runtime()).stream()) {
    int64_t most = 0;
    for (const Sum& sum : sums_) {
      if (sum.dtype == DType::fp32 && op.wire == DType::bf16) most = std::max(most, sum.count);
    }
    if (most > 0) narrow_.emplace(most, binding);
  }
  ~NcclSum() override { cudaStreamSynchronize(collectives_->stream()); }
  NcclSum(const NcclSum&) = delete;
  NcclSum& operator=(const NcclSum&) = delete;

  void run() override {
    collectives_->fork(stream_);
    for (const Sum& sum : sums_) {
      if (narrow_ && sum.dtype == DType::fp32) {
        narrow_->add_up(sum);
      } else {
        collectives_->all_reduce(sum.from, sum.to, sum.count, sum.dtype);
      }
    }
    check(cudaMemsetAsync(token_, 0, sizeof(int64_t), collectives_->stream()), "a token");
    collectives_->leave(token_);
  }

 private:
  std::vector<Sum> sums_;
  void* token_;
  Collectives* collectives_;
  cudaStream_t stream_;
  std::optional<NarrowSum> narrow_;
};

// --- MPI that accepts GPU memory ---

DeviceSums* device_sums(const Runtime& runtime) {
  return dynamic_cast<DeviceSums*>(runtime.ranks());
}

Cover covers_mpi(const RemainingOps& rest) {
  const auto* op = rest.get<AllReduceStart>(0);
  if (op == nullptr) return no_such_op("all_reduce_start");
  if (rest.runtime.ranks() == nullptr) return Cover::no("this process is alone");
  const DeviceSums* ranks = device_sums(rest.runtime);
  if (ranks == nullptr) return Cover::no("these ranks take the host's memory only");
  if (std::string why = ranks->device_refusal(); !why.empty()) return Cover::no(std::move(why));
  for (const Value& grad : op->grads) {
    if (grad.dtype != DType::fp32 && grad.dtype != DType::fp64) {
      return Cover::no("adds up fp32 and fp64 only");
    }
    if (grad.dtype == DType::fp32 && op->wire == DType::bf16) return Cover::no("sends no bf16");
  }
  return Cover::of(1);
}

// The MPI library reads the gradients as soon as it is called, and makes CUDA calls of its own, so
// this step runs between two graphs.
class MpiSum final : public Step {
 public:
  MpiSum(const AllReduceStart& op, const Binding& binding)
      : sums_(sums_of(op, binding)),
        token_(binding.write(op.token).data),
        ranks_(device_sums(binding.runtime())),
        runtime_(cuda_runtime(binding.runtime())) {}

  void run() override {
    if (runtime_.order() != nullptr) {
      throw_error(ErrorKind::usage, "no graph can hold a sum that MPI makes on the GPU");
    }
    check(cudaMemsetAsync(token_, 0, sizeof(int64_t), runtime_.stream()), "a token");
    runtime_.synchronize();
    for (const Sum& sum : sums_) ranks_->all_reduce_device(sum.from, sum.to, sum.count, sum.dtype);
  }

 private:
  std::vector<Sum> sums_;
  void* token_;
  DeviceSums* ranks_;
  CudaRuntime& runtime_;
};

Kernel mpi_kernel() {
  Kernel kernel =
      cuda_kernel("cuda.all_reduce_start.mpi", covers_mpi,
                  [](const Span& span, const Binding& binding) -> std::unique_ptr<Step> {
                    return std::make_unique<MpiSum>(span.get<AllReduceStart>(0), binding);
                  },
                  {.precisions = kFp64AndFp32, .library = Library::mpi, .between_graphs = true});
  return kernel;
}

// --- through host memory ---

// Pinned memory for all gradients of a layer, and the sum that the host computes in it.
class StagedSum final : public Step {
 public:
  StagedSum(const AllReduceStart& op, const Binding& binding)
      : sums_(sums_of(op, binding)),
        wire_(op.wire),
        token_(binding.write(op.token).data),
        collectives_(collectives_of(binding)),
        stream_(cuda_runtime(binding.runtime()).stream()) {
    size_t bytes = 0;
    for (const Sum& sum : sums_) bytes += sum.bytes();
    void* pinned = nullptr;
    check(cudaMallocHost(&pinned, std::max<size_t>(1, bytes)), "pinned memory for gradients");
    host_ = static_cast<std::byte*>(pinned);
  }
  ~StagedSum() override {
    if (collectives_ != nullptr) cudaStreamSynchronize(collectives_->stream());
    cudaFreeHost(host_);
  }
  StagedSum(const StagedSum&) = delete;
  StagedSum& operator=(const StagedSum&) = delete;

  void run() override {
    if (collectives_ == nullptr) {
      for (const Sum& sum : sums_) {
        check(cudaMemcpyAsync(sum.to, sum.from, sum.bytes(), cudaMemcpyDeviceToDevice, stream_),
              "copying gradients");
      }
      check(cudaMemsetAsync(token_, 0, sizeof(int64_t), stream_), "a token");
      return;
    }
    cudaStream_t side = collectives_->stream();
    collectives_->fork(stream_);
    std::byte* at = host_;
    for (const Sum& sum : sums_) {
      check(cudaMemcpyAsync(at, sum.from, sum.bytes(), cudaMemcpyDeviceToHost, side),
            "gradients to the host");
      at += sum.bytes();
    }
    check(cudaLaunchHostFunc(
              side, [](void* self) { static_cast<StagedSum*>(self)->add_up(); }, this),
          "adding up gradients on the host");
    at = host_;
    for (const Sum& sum : sums_) {
      check(cudaMemcpyAsync(sum.to, at, sum.bytes(), cudaMemcpyHostToDevice, side),
            "gradients to the GPU");
      at += sum.bytes();
    }
    check(cudaMemsetAsync(token_, 0, sizeof(int64_t), side), "a token");
    collectives_->leave(token_);
  }

 private:
  void add_up() noexcept {
    try {
      std::byte* at = host_;
      for (const Sum& sum : sums_) {
        collectives_->ranks().all_reduce(at, at, sum.count, sum.dtype, Reduce::sum, wire_);
        at += sum.bytes();
      }
    } catch (const std::exception& error) {
      collectives_->set_failure(error.what());
    }
  }

  std::vector<Sum> sums_;
  DType wire_;
  void* token_;
  Collectives* collectives_;
  cudaStream_t stream_;
  std::byte* host_ = nullptr;
};

Cover covers_staged(const RemainingOps& rest) {
  const auto* op = rest.get<AllReduceStart>(0);
  if (op == nullptr) return no_such_op("all_reduce_start");
  const bool alone = cuda_runtime(rest.runtime).collectives() == nullptr;
  if (alone && op->wire == DType::bf16) return Cover::no("a process alone sends nothing");
  return Cover::of(1);
}

std::unique_ptr<Step> prepare_wait(const Span& span, const Binding& binding) {
  const auto& op = span.get<AllReduceWait>(0);
  return make_step([token = binding.read(op.token).data, collectives = collectives_of(binding),
                    stream = cuda_runtime(binding.runtime()).stream()] {
    if (collectives != nullptr) collectives->join(token, stream);
  });
}

Kernel staged_kernel() {
  Kernel kernel =
      cuda_kernel("cuda.all_reduce_start.staged", covers_staged,
                  [](const Span& span, const Binding& binding) -> std::unique_ptr<Step> {
                    return std::make_unique<StagedSum>(span.get<AllReduceStart>(0), binding);
                  },
                  {.through_host = true});
  return kernel;
}

}  // namespace

KernelTable all_reduce_kernels() {
  return {cuda_kernel("cuda.all_reduce_start.nccl", covers_nccl,
                      [](const Span& span, const Binding& binding) -> std::unique_ptr<Step> {
                        return std::make_unique<NcclSum>(span.get<AllReduceStart>(0), binding);
                      },
                      {.precisions = kFp64AndFp32, .library = Library::nccl, .vendor = true}),
          staged_kernel(),
          // Without measurements the table's order decides, so the kernels that every machine can
          // run come first.
          mpi_kernel(),
          cuda_kernel(
              "cuda.all_reduce_wait.event",
              [](const RemainingOps& rest) {
                return rest.get<AllReduceWait>(0) != nullptr ? Cover::of(1)
                                                             : no_such_op("all_reduce_wait");
              },
              prepare_wait)};
}

}  // namespace ridgeline::cuda
