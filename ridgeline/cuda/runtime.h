#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ridgeline/core/runtime.h"

struct CUstream_st;

namespace ridgeline::cuda {

class Collectives;
class CublasLt;
class Cudnn;
class GraphOrder;

// One GPU with one stream: all work runs in the order in which it was enqueued.
class CudaRuntime final : public Runtime {
 public:
  // Throws Error(device) if the GPU does not exist, or if this build or the driver cannot use it.
  explicit CudaRuntime(int index);
  ~CudaRuntime() override;
  CudaRuntime(const CudaRuntime&) = delete;
  CudaRuntime& operator=(const CudaRuntime&) = delete;

  CUstream_st* stream() const { return stream_; }
  int sms() const { return sms_; }  // number of streaming multiprocessors
  // 10 * major + minor of the compute capability.
  int architecture() const override { return architecture_; }
  // cuBLASLt, opened on first use.
  const CublasLt& cublaslt() const;
  // Returns what collectives need, once connect_ranks() was called on all ranks of set_ranks();
  // otherwise null.
  Collectives* collectives() const { return collectives_.get(); }
  void connect_ranks() override;
  const Cudnn& cudnn() const;
  // The order of the parts while a graph is captured; otherwise null.
  GraphOrder* order() const { return order_.get(); }

  Device device() const override { return {DeviceKind::cuda, index_}; }
  std::string fingerprint() const override;

  // Aligned to 256 bytes, with 256 more readable bytes after the end.
  void* allocate(size_t bytes) override;
  void release(void* memory) noexcept override;

  // Returns when the host memory may be reused; the device may receive the bytes later, in order.
  void upload(void* device, const void* host, size_t bytes) override;
  void download(void* host, const void* device, size_t bytes) override;
  void synchronize() override;
  void clear(void* device, size_t bytes) override;
  size_t free_memory() const override;
  void copy(void* to, const void* from, size_t bytes) override;  // in units of 16 bytes
  // Uses two pinned buffers and two on the GPU, copied on a stream of their own.
  std::unique_ptr<Uploader> make_uploader(size_t bytes) override;
  // The rate of the fastest of several large copies.
  double host_copy_rate(bool to_device) override;
  // Measured by events between the calls; nothing is waited for before the last.
  std::vector<double> time_each(size_t count, const std::function<void(size_t)>& call) override;

  // Replays a graph of several calls, so that the gaps between launches do not count. Calls that
  // cannot be captured are timed one after the other.
  double time(const std::function<void()>& run, double budget) override;

  // Makes one or a few graph launches; while another graph is being captured, makes the calls
  // themselves.
  std::function<void()> capture(std::function<void()> step, int64_t count) override;

 private:
  class Graph;
  // Captures `count` steps, or fewer if they have many launches; `count` becomes the number
  // captured.
  std::shared_ptr<Graph> record(const std::function<void()>& step, int64_t& count);
  double seconds_of(const std::function<void()>& run);
  double median_seconds(const std::function<void()>& launch, int64_t calls, double budget);

  int index_ = 0;
  int sms_ = 0, architecture_ = 0;
  std::string name_;
  CUstream_st* stream_ = nullptr;
  void* staging_ = nullptr;  // pinned, for small downloads
  std::unique_ptr<GraphOrder> order_;
  mutable std::unique_ptr<CublasLt> cublaslt_;
  std::unique_ptr<Collectives> collectives_;
  mutable std::unique_ptr<Cudnn> cudnn_;
};

// The indices of the GPUs that this build can use. CUDA is not touched before the first call.
std::vector<int> usable_gpus();

// The runtime of a CUDA kernel: the planner gives kernels only the runtime of their own target.
inline CudaRuntime& cuda_runtime(Runtime& runtime) { return static_cast<CudaRuntime&>(runtime); }
inline const CudaRuntime& cuda_runtime(const Runtime& runtime) {
  return static_cast<const CudaRuntime&>(runtime);
}

}  // namespace ridgeline::cuda
