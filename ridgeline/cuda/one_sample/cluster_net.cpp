#include "ridgeline/cuda/one_sample/cluster_net.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "ridgeline/cuda/error.h"
#include "ridgeline/cuda/one_sample/net_layout.h"

namespace ridgeline::cuda {
namespace {

using namespace one_sample;

constexpr size_t kReservedShared = 2048;  // for the function's static variables

// Host memory that is mapped into the GPU's address space.
class MappedMemory {
 public:
  explicit MappedMemory(size_t bytes) {
    check(cudaHostAlloc(&host_, bytes, cudaHostAllocMapped | cudaHostAllocPortable),
          "mapped host memory");
    std::memset(host_, 0, bytes);
    check(cudaHostGetDevicePointer(&device_, host_, 0), "mapped host memory");
  }
  ~MappedMemory() { cudaFreeHost(host_); }
  MappedMemory(const MappedMemory&) = delete;
  MappedMemory& operator=(const MappedMemory&) = delete;
  template <typename T>
  T* host() const {
    return static_cast<T*>(host_);
  }
  template <typename T>
  T* device() const {
    return static_cast<T*>(device_);
  }

 private:
  void *host_ = nullptr, *device_ = nullptr;
};

struct alignas(16) Chunk {
  float numbers[kFloatsPerChunk];
  uint32_t request;
};

// Stores all 16 bytes at once, because the GPU reads them at once.
void store_chunk(Chunk* to, const Chunk& chunk) {
#if defined(__SSE2__)
  _mm_store_si128(reinterpret_cast<__m128i*>(to),
                  _mm_load_si128(reinterpret_cast<const __m128i*>(&chunk)));
#else
  std::memcpy(to->numbers, chunk.numbers, sizeof(chunk.numbers));
  std::atomic_ref<uint32_t>(to->request).store(chunk.request, std::memory_order_release);
#endif
}

void pause_briefly() {
#if defined(__SSE2__)
  _mm_pause();
#endif
}

class ClusterNet final : public OneSampleNet {
 public:
  ClusterNet(CudaRuntime& runtime, NetLayout layout, const LayerChain& chain,
             const OneSampleOptions& options)
      : runtime_(runtime),
        args_(layout.args),
        in_(chain.layers.front().in),
        out_(chain.layers.back().out),
        resident_(options.resident),
        weights_(runtime, layout.weights.size() * sizeof(float)),
        state_(runtime, std::max<size_t>(16, state_bytes())),
        inputs_(size_t(args_.chunks) * sizeof(Chunk)),
        outputs_(size_t(args_.blocks) * size_t(args_.slots) * sizeof(uint64_t)),
        left_(sizeof(uint32_t)) {
    runtime.upload(weights_.data(), layout.weights.data(), weights_.size());
    runtime.synchronize();
    args_.weights = reinterpret_cast<const float*>(weights_.data());
    args_.state = reinterpret_cast<float*>(state_.data());
    mail_.inputs = inputs_.device<const uint4>();
    mail_.outputs = outputs_.device<uint64_t>();
    mail_.left = left_.device<uint32_t>();
    mail_.idle_ns = uint64_t(options.idle_seconds * 1e9);
    for (size_t l = 0; l < chain.layers.size(); ++l) {
      if (chain.layers[l].cell) cells_.push_back({int(l), *chain.layers[l].cell == CellKind::lstm});
    }
    // Uses a separate stream: work on the runtime's stream need not wait for a resident function.
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "a stream");
    refresh();
    if (!resident_) record();
  }

  ~ClusterNet() override {
    try {
      stop();
    } catch (...) {  // a failed GPU runs nothing any more
    }
    if (graph_ != nullptr) cudaGraphExecDestroy(graph_);
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  std::string name() const override {
    return resident_ ? "cuda.net_infer.resident" : "cuda.net_infer.cluster";
  }

  void run(const float* inputs, float* outputs) override {
    number_ = next_number(number_);
    write_inputs(inputs);
    if (!resident_) {
      check(cudaGraphLaunch(graph_, stream_), "cuda.net_infer.cluster");
    } else if (!running_) {
      start();
    }
    read_outputs(outputs);
  }

  void save_state(float* state) override { move_state(state, nullptr); }
  void restore_state(const float* state) override {
    move_state(nullptr, state);
    refresh();
  }

 private:
  struct CellPlace {
    int layer;
    bool lstm;
  };

  size_t state_bytes() const {
    return size_t(args_.blocks) * size_t(args_.state_floats) * sizeof(float);
  }

  void write_inputs(const float* inputs) {
    Chunk* to = inputs_.host<Chunk>();
    int64_t i = 0;
#if defined(__SSE2__)
    // Whole chunks in registers: a chunk that is put together in memory cannot be read from there
    // before its parts have left the store buffer, which takes five nanoseconds a chunk.
    const __m128i floats = _mm_set_epi32(0, -1, -1, -1),
                  number = _mm_set_epi32(int(number_), 0, 0, 0);
    for (; (i + 1) * kFloatsPerChunk < in_; ++i) {  // reads the float behind the chunk
      const auto* from = reinterpret_cast<const __m128i*>(inputs + i * kFloatsPerChunk);
      const __m128i chunk = _mm_or_si128(_mm_and_si128(_mm_loadu_si128(from), floats), number);
      _mm_store_si128(reinterpret_cast<__m128i*>(to + i), chunk);
    }
#endif
    for (; i < args_.chunks; ++i) {
      Chunk rest{{}, number_};
      for (int64_t j = 0; j < kFloatsPerChunk && i * kFloatsPerChunk + j < in_; ++j) {
        rest.numbers[j] = inputs[i * kFloatsPerChunk + j];
      }
      store_chunk(to + i, rest);
    }
  }

  void read_outputs(float* outputs) {
    uint64_t* slots = outputs_.host<uint64_t>();
    const int64_t all = int64_t{args_.blocks} * args_.slots;
    // Checks from the back: with few outputs the last blocks have none, but they answer as well.
    for (int64_t i = all; i-- > 0;) {
      const std::atomic_ref<uint64_t> slot(slots[i]);
      uint64_t value = slot.load(std::memory_order_acquire);
      for (uint64_t spins = 1; uint32_t(value >> 32) != number_; ++spins) {
        pause_briefly();
        look_after_kernel(spins);
        value = slot.load(std::memory_order_acquire);
      }
      if (i < out_) outputs[i] = std::bit_cast<float>(uint32_t(value));
    }
  }

  // Called while waiting for an answer: launches the resident function again if it has exited, and
  // reports its failure.
  void look_after_kernel(uint64_t spins) {
    const std::atomic_ref<uint32_t> left(*left_.host<uint32_t>());
    if (running_ && left.load(std::memory_order_relaxed) == mail_.launch) {
      check(cudaStreamSynchronize(stream_), name());
      running_ = false;
      start();
    }
    constexpr uint64_t kLong = uint64_t{1} << 16;
    if (spins % kLong != 0) return;
    const cudaError_t error = cudaStreamQuery(stream_);
    if (error != cudaSuccess && error != cudaErrorNotReady) check(error, name());
  }

  void start() {
    check(cudaSetDevice(runtime_.device().index), name());
    ++mail_.launch;
    mail_.first = number_;
    check(launch_net(args_, mail_, Mode::stay, stream_), name());
    running_ = true;
  }

  void stop() {
    if (running_) {
      store_chunk(inputs_.host<Chunk>(), {{}, kStop});
      running_ = false;
    }
    check(cudaStreamSynchronize(stream_), name());
  }

  // Recomputes the sums for a state that was set from outside.
  void refresh() {
    if (cells_.empty()) return;
    check(launch_net(args_, mail_, Mode::refresh, stream_), name());
    check(cudaStreamSynchronize(stream_), name());
  }

  void record() {
    cudaGraph_t graph = nullptr;
    check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed), "capturing a graph");
    const cudaError_t launched = launch_net(args_, mail_, Mode::once, stream_);
    check(cudaStreamEndCapture(stream_, &graph), "capturing a graph");
    const cudaError_t made =
        launched == cudaSuccess ? cudaGraphInstantiate(&graph_, graph, 0) : launched;
    cudaGraphDestroy(graph);
    check(made, name());
    check(cudaGraphUpload(graph_, stream_), name());
    check(cudaStreamSynchronize(stream_), name());
  }

  // Converts between the caller's order (h of each layer, and c of an lstm) and the blocks' order.
  void move_state(float* to, const float* from) {
    stop();
    std::vector<float> blocks(size_t(args_.blocks * args_.state_floats));
    runtime_.download(blocks.data(), state_.data(), state_bytes());
    for (const auto& [index, lstm] : cells_) {
      const LayerArgs& layer = args_.layer[index];
      const int units = outputs_per_group(layer.kind) * layer.groups;  // per block
      for (int vector = 0; vector < (lstm ? 2 : 1); ++vector) {
        for (int u = 0; u < layer.out; ++u) {
          const int at = u / units * args_.state_floats + layer.state + 4 * layer.groups +
                         vector * units + u % units;
          if (to != nullptr) *to++ = blocks[size_t(at)];
          if (from != nullptr) blocks[size_t(at)] = *from++;
        }
      }
    }
    if (from == nullptr) return;
    runtime_.upload(state_.data(), blocks.data(), state_bytes());
    runtime_.synchronize();
  }

  CudaRuntime& runtime_;
  NetArgs args_;
  int64_t in_, out_;
  bool resident_, running_ = false;
  DeviceBuffer weights_, state_;
  MappedMemory inputs_, outputs_, left_;
  MailArgs mail_;
  std::vector<CellPlace> cells_;
  uint32_t number_ = 0;
  cudaStream_t stream_ = nullptr;
  cudaGraphExec_t graph_ = nullptr;
};

}  // namespace

std::unique_ptr<OneSampleNet> make_cluster_net(CudaRuntime& runtime, const LayerChain& chain,
                                               const OneSampleOptions& options,
                                               std::string& why_not, int blocks) {
  if (runtime.architecture() < 90) {
    why_not = "clusters need a GPU of compute capability 9.0";
    return nullptr;
  }
  int most = 0;
  check(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin,
                               runtime.device().index),
        "shared memory of a block");
  std::optional<NetLayout> layout =
      lay_out_net(chain, {size_t(most) - kReservedShared, options.resident, blocks}, why_not);
  if (!layout) return nullptr;
  if (allow_net(layout->args) != cudaSuccess) {
    cudaGetLastError();
    why_not = "the GPU has no room for a cluster of so many blocks";
    return nullptr;
  }
  return std::make_unique<ClusterNet>(runtime, std::move(*layout), chain, options);
}

}  // namespace ridgeline::cuda
