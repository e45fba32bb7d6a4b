#include "ridgeline/cuda/runtime.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "ridgeline/cuda/copy.h"
#include "ridgeline/cuda/error.h"
#include "ridgeline/cuda/graph_order.h"
#include "ridgeline/cuda/info.h"
#include "ridgeline/cuda/libraries/cublaslt.h"
#include "ridgeline/cuda/libraries/cudnn.h"
#include "ridgeline/cuda/libraries/nccl.h"
#include "ridgeline/cuda/probe.h"

namespace ridgeline::cuda {
namespace {

constexpr size_t kPad = 256;
// Downloads up to this size (losses, counters) go through pinned memory: the driver's own path for
// pageable memory takes a few microseconds longer.
constexpr size_t kStaging = size_t{64} << 10;
// Steps per graph: enough that the launch is negligible, few enough that capturing takes
// milliseconds.
constexpr int64_t kMostUnrolled = 32;
constexpr size_t kMostParts = 16'384;  // per graph: a step of a deep model has thousands

class Event {
 public:
  Event() { check(cudaEventCreate(&event_), "an event for timing"); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record(cudaStream_t stream) {
    check(cudaEventRecord(event_, stream), "an event for timing");
  }
  double seconds_since(const Event& start) const {
    float milliseconds = 0;
    check(cudaEventSynchronize(event_), "timed work");
    check(cudaEventElapsedTime(&milliseconds, start.event_, event_), "timed work");
    return 1e-3 * double(milliseconds);
  }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace

// A captured, instantiated graph.
class CudaRuntime::Graph {
 public:
  Graph(cudaGraph_t graph, cudaStream_t stream) : stream_(stream) {
    const cudaError_t error = cudaGraphInstantiate(&executable_, graph, 0);
    cudaGraphDestroy(graph);
    check(error, "making a graph of the captured steps");
  }
  ~Graph() {
    cudaStreamSynchronize(stream_);  // a launch may still be running
    cudaGraphExecDestroy(executable_);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void upload() { check(cudaGraphUpload(executable_, stream_), "a graph of steps"); }
  void launch() { check(cudaGraphLaunch(executable_, stream_), "a graph of steps"); }

 private:
  cudaStream_t stream_;
  cudaGraphExec_t executable_ = nullptr;
};

CudaRuntime::CudaRuntime(int index) : index_(index) {
  const GpuReport report = gpu_report();
  const std::string which = fmt::format("cuda:{}", index);
  if (!report.refusal.empty()) throw_error(ErrorKind::device, "{}: {}", which, report.refusal);
  if (index < 0 || size_t(index) >= report.gpus.size()) {
    throw_error(ErrorKind::device, "{}: this machine has {} GPU{}; use cuda:0{}", which,
                report.gpus.size(), report.gpus.size() == 1 ? "" : "s",
                report.gpus.size() > 1 ? fmt::format(" to cuda:{}", report.gpus.size() - 1) : "");
  }
  const GpuInfo& gpu = report.gpus[size_t(index)];
  if (!gpu.refusal.empty()) {
    throw_error(ErrorKind::device, "{} ({}): {}; or use --device cpu", which, gpu.name,
                gpu.refusal);
  }
  name_ = gpu.name;
  sms_ = gpu.sms;
  architecture_ = 10 * gpu.major + gpu.minor;
  // A build for older GPUs only runs here through its PTX, which has their code and nothing newer.
  const std::vector<int> built = compiled_architectures();
  if (const int newest = *std::ranges::max_element(built); newest < 90) {
    architecture_ = std::min(architecture_, newest);
  }
  check(cudaSetDevice(index), which);
  check(probe_kernels(), which + ": loading the kernels");
  check(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, kStreamPriority),
        which + ": a stream");
  check(cudaMallocHost(&staging_, kStaging), which + ": pinned host memory");
}

CudaRuntime::~CudaRuntime() {
  if (stream_ != nullptr) cudaStreamSynchronize(stream_);
  collectives_.reset();
  cublaslt_.reset();
  cudnn_.reset();
  if (staging_ != nullptr) cudaFreeHost(staging_);
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

const Cudnn& CudaRuntime::cudnn() const {
  if (!cudnn_) cudnn_ = std::make_unique<Cudnn>();
  return *cudnn_;
}

const CublasLt& CudaRuntime::cublaslt() const {
  if (!cublaslt_) cublaslt_ = std::make_unique<CublasLt>();
  return *cublaslt_;
}

std::string CudaRuntime::fingerprint() const {
  int driver = 0, runtime = 0;
  check(cudaDriverGetVersion(&driver), "the driver's version");
  check(cudaRuntimeGetVersion(&runtime), "the runtime's version");
  return fmt::format(
      "cuda; {}; sm_{}; {} multiprocessors; driver {}; runtime {}; cuBLASLt {}; cuDNN {}", name_,
      architecture_, sms_, driver, runtime, cublaslt().version(), cudnn().version());
}

void* CudaRuntime::allocate(size_t bytes) {
  check(cudaSetDevice(index_), to_string(device()));
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, bytes + kPad);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "free memory");
    throw_error(ErrorKind::device,
                "{}: out of memory: wanted {} bytes, {} free of {}; use a smaller batch or model",
                to_string(device()), bytes, free, total);
  }
  check(error, fmt::format("{}: {} bytes of memory", to_string(device()), bytes));
  check(cudaMemsetAsync(memory, 0, bytes + kPad, stream_), "clearing memory");
  return memory;
}

void CudaRuntime::release(void* memory) noexcept {
  cudaStreamSynchronize(stream_);
  cudaFree(memory);
}

void CudaRuntime::upload(void* device, const void* host, size_t bytes) {
  if (bytes == 0) return;
  // cudaMemcpyDefault: `host` may also be memory of this GPU that does not overlap the destination.
  check(cudaMemcpyAsync(device, host, bytes, cudaMemcpyDefault, stream_),
        fmt::format("copying {} bytes to the GPU", bytes));
}

void CudaRuntime::download(void* host, const void* device, size_t bytes) {
  if (bytes == 0) return;
  if (collectives_) {  // a sum was started and not yet waited for
    check(cudaStreamSynchronize(collectives_->stream()), "waiting for collectives");
  }
  const bool staged = bytes <= kStaging;
  void* to = staged ? staging_ : host;
  check(cudaMemcpyAsync(to, device, bytes, cudaMemcpyDeviceToHost, stream_),
        fmt::format("copying {} bytes from the GPU", bytes));
  synchronize();
  if (staged) std::memcpy(host, staging_, bytes);
}

void CudaRuntime::synchronize() {
  check(cudaStreamSynchronize(stream_), "waiting for the GPU");
  if (!collectives_) return;
  // A sum was started and not yet waited for: its host step communicates with the ranks, and
  // nothing else may do so at the same time.
  check(cudaStreamSynchronize(collectives_->stream()), "waiting for collectives");
  collectives_->check_failure();
}

void CudaRuntime::connect_ranks() {
  if (ranks() == nullptr || collectives_) return;
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, index_), to_string(device()));
  std::string gpu;
  for (const char byte : properties.uuid.bytes) gpu += fmt::format("{:02x}", uint8_t(byte));
  collectives_ = std::make_unique<Collectives>(*ranks(), gpu);
}

void CudaRuntime::clear(void* device, size_t bytes) {
  if (bytes > 0) check(cudaMemsetAsync(device, 0, bytes, stream_), "clearing a counter");
}

void CudaRuntime::copy(void* to, const void* from, size_t bytes) {
  check(launch_copy(to, from, bytes, stream_),
        fmt::format("copying {} bytes within the GPU", bytes));
}

std::shared_ptr<CudaRuntime::Graph> CudaRuntime::record(const std::function<void()>& step,
                                                        int64_t& count) {
  // Relaxed, because a library may load a GPU function on its first call. This is safe, since only
  // this thread uses the stream.
  check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed), "capturing a graph");
  order_ = std::make_unique<GraphOrder>(stream_);
  cudaGraph_t graph = nullptr;
  try {
    int64_t made = 0;
    do {
      step();
      ++made;
    } while (made < count && order_->parts() / size_t(made) * size_t(made + 1) <= kMostParts);
    count = made;
  } catch (...) {
    order_.reset();
    cudaStreamEndCapture(stream_, &graph);
    cudaGetLastError();
    if (graph != nullptr) cudaGraphDestroy(graph);
    throw;
  }
  order_.reset();
  check(cudaStreamEndCapture(stream_, &graph), "capturing a graph");
  return std::make_shared<Graph>(graph, stream_);
}

std::function<void()> CudaRuntime::capture(std::function<void()> step, int64_t count) {
  std::shared_ptr<Graph> many, rest;
  int64_t unrolled = std::min(count, kMostUnrolled);
  if (unrolled > 0) many = record(step, unrolled);
  const int64_t launches = unrolled > 0 ? count / unrolled : 0;
  int64_t left = count - launches * unrolled;  // fewer than were just captured
  if (left > 0) rest = record(step, left);
  for (const auto& graph : {many, rest}) {
    if (graph) graph->upload();
  }
  return [this, step = std::move(step), count, many, rest, launches] {
    if (order_ != nullptr) {  // a graph cannot launch another
      for (int64_t i = 0; i < count; ++i) step();
      return;
    }
    for (int64_t i = 0; i < launches; ++i) many->launch();
    if (rest) rest->launch();
  };
}

double CudaRuntime::seconds_of(const std::function<void()>& run) {
  Event begin, end;
  begin.record(stream_);
  run();
  end.record(stream_);
  return end.seconds_since(begin);
}

// `launch` makes `calls` calls at once.
double CudaRuntime::median_seconds(const std::function<void()>& launch, int64_t calls,
                                   double budget) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  const auto spent = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  constexpr size_t kFewest = 3, kMost = 200;  // a median needs a few, whatever the budget
  std::vector<double> seconds;
  while (seconds.size() < kFewest || (seconds.size() < kMost && spent() < budget)) {
    seconds.push_back(seconds_of(launch) / double(calls));
  }
  std::ranges::nth_element(seconds, seconds.begin() + int64_t(seconds.size() / 2));
  return seconds[seconds.size() / 2];
}

double CudaRuntime::time(const std::function<void()>& run, double budget) {
  const double first = seconds_of(run);  // the first call loads the GPU functions
  // Loading takes milliseconds: a call that takes this long is slow, or its library came from a
  // slow disk.
  if (first > 10 * std::max(budget, 0.01)) return std::min(first, seconds_of(run));
  synchronize();
  const double once = seconds_of(run);
  if (once > budget) return once;  // launch gaps are negligible, and a median would take seconds
  const double about = std::max(1e-7, std::min(once, seconds_of(run)));
  // Half a millisecond per graph, so that an event's half microsecond is a tenth of a percent.
  constexpr double kLong = 5e-4;
  int64_t calls = std::clamp<int64_t>(int64_t(kLong / about), 1, 50);
  std::shared_ptr<Graph> graph;
  try {
    graph = record(run, calls);
  } catch (const Error&) {
    return median_seconds(run, 1, budget);
  }
  graph->launch();
  return median_seconds([&] { graph->launch(); }, calls, budget);
}

std::vector<int> usable_gpus() {
  std::vector<int> usable;
  for (const GpuInfo& gpu : gpu_report().gpus) {
    if (gpu.refusal.empty()) usable.push_back(gpu.index);
  }
  return usable;
}

size_t CudaRuntime::free_memory() const {
  const std::string which = fmt::format("free memory of cuda:{}", index_);
  size_t free = 0, total = 0;
  check(cudaSetDevice(index_), which);
  check(cudaMemGetInfo(&free, &total), which);
  return free;
}

}  // namespace ridgeline::cuda
