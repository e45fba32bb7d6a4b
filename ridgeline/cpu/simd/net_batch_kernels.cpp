#include <algorithm>
#include <atomic>
#include <cstring>

#include "ridgeline/cpu/simd/gemv.h"
#include "ridgeline/cpu/simd/linear_chain.h"
#include "ridgeline/cpu/simd/net_infer_kernels.h"
#include "ridgeline/cpu/simd/weight_memory.h"

// A perceptron for a batch as one kernel, with weights packed in prepare. Samples stay batch-major:
// a tile multiplies rows of samples by packed weights, so nothing is transposed. Threads take
// chunks of samples through all layers and wait for each other only at the end.
namespace ridgeline::cpu::simd {
namespace {

// Samples of a chunk. With fewer than 24 the weights pass too often through the first-level cache;
// the inputs of 96 stay in the second-level cache beside the weights of a panel.
constexpr int64_t kLeastChunk = 24, kMostChunk = 96;
// cpu.net_infer.simd is for fewer samples.
constexpr int64_t kLeastSamples = 9;
// Chunks per thread, so that a thread that begins late or shares its core delays the others little.
constexpr int64_t kChunksPerThread = 4;

// [Gather,] layers, [Softmax or Copy,] [Argmax,] [Tick]: all that a call for inference computes.
struct BatchNet {
  const Gather* gather = nullptr;
  Chain chain;
  const Softmax* softmax = nullptr;
  const Copy* copy = nullptr;
  const Argmax* argmax = nullptr;
  const Tick* tick = nullptr;
  size_t ops;

  explicit BatchNet(const RemainingOps& rest)
      : gather(rest.get<Gather>(0)), chain(rest, gather != nullptr ? 1 : 0), ops(chain.ops) {
    if (chain.layers.empty()) return;
    const Value& last = chain.layers.back().y();
    softmax = following<Softmax>(rest, last);
    copy = following<Copy>(rest, last);
    const auto* op = rest.get<Argmax>(ops);
    if (op != nullptr && op->x.id == y().id && op->x.shape[0] == samples()) {
      argmax = op;
      ++ops;
    }
    tick = rest.get<Tick>(ops);
    if (tick != nullptr) ++ops;
  }

  const Linear& first() const { return *chain.layers.front().linear; }
  int64_t samples() const { return first().n(); }
  // The last layer writes here; softmax replaces it in place.
  const Value& y() const {
    return softmax != nullptr ? softmax->y : copy != nullptr ? copy->to : chain.layers.back().y();
  }
  int64_t packed_floats() const {
    int64_t floats = 0;
    for (const Chain::Layer& each : chain.layers) {
      floats += gemv_functions().packed(each.linear->in(), each.linear->out());
    }
    return floats;
  }

 private:
  // Returns the next op if it is a T that alone reads `last`.
  template <typename T>
  const T* following(const RemainingOps& rest, const Value& last) {
    const auto* op = rest.get<T>(ops);
    if (op == nullptr || input(*op).id != last.id || !rest.dead_after(last, ops + 1)) {
      return nullptr;
    }
    if (input(*op).shape[0] != samples() || output(*op).dtype != last.dtype) return nullptr;
    chain.inner.push_back(last.id);
    ++ops;
    return op;
  }
  static const Value& input(const Softmax& op) { return op.x; }
  static const Value& output(const Softmax& op) { return op.y; }
  static const Value& input(const Copy& op) { return op.from; }
  static const Value& output(const Copy& op) { return op.to; }
};

bool all_float(const BatchNet& net) {
  const auto is = [](const Value& value) { return !value || value.dtype == DType::fp32; };
  if (net.gather != nullptr && !is(net.gather->y)) return false;
  return is(net.y()) && std::ranges::all_of(net.chain.layers, [&](const Chain::Layer& each) {
           const Linear& op = *each.linear;
           return is(op.x) && is(op.w) && is(op.b) && is(each.y());
         });
}

bool weights_are_fixed(const BatchNet& net, const Program& program) {
  const auto fixed = [&](const Value& value) {
    if (!value) return true;
    const Role role = program.info(value.id).role;
    return role == Role::param || role == Role::copy;
  };
  return std::ranges::all_of(net.chain.layers, [&](const Chain::Layer& each) {
    return fixed(each.linear->w) && fixed(each.linear->b);
  });
}

// The memory of a thread: gathered samples, and the outputs of two layers.
struct ChunkMemory {
  float* x;
  float* between[2];

  ChunkMemory(Scratch& scratch, const BatchNet& net) {
    const int64_t samples = std::min(kMostChunk, net.samples());
    x = scratch.take<float>(net.gather != nullptr ? size_t(samples * net.first().in()) : 0);
    for (float*& each : between) each = scratch.take<float>(size_t(samples * net.chain.widest()));
  }
};

// Checks whether the op before the layer gathers samples that only the layer reads.
bool follows_gather(const RemainingOps& rest, const Linear& linear) {
  if (rest.begin == 0) return false;
  const auto* gather = std::get_if<Gather>(&rest.program.ops[rest.begin - 1]);
  return gather != nullptr && gather->y.id == linear.x.id && rest.dead_after(linear.x, 1);
}

Cover covers_net_batch(const RemainingOps& rest) {
  if (rest.get<Gather>(0) == nullptr) {
    const auto* linear = rest.get<Linear>(0);
    if (linear == nullptr) return Cover::no("the next op is no gather or linear");
    if (!begins_chain(rest) || follows_gather(rest, *linear)) {
      return Cover::no("begins with the first of consecutive layers, or the gather before it");
    }
  }
  const BatchNet net(rest);
  if (net.chain.layers.empty()) return Cover::no("no linear layer follows");
  if (!all_float(net)) return Cover::no("takes fp32 only");
  if (!weights_are_fixed(net, rest.program)) return Cover::no("takes weights that do not change");
  if (net.samples() < kLeastSamples) return Cover::no("takes nine samples or more");
  Cover cover = Cover::of(net.ops);
  cover.skips = net.chain.inner;
  if (const Gather* gather = net.gather) {
    const DType set = gather->set.dtype;
    if (set != DType::fp32 && set != DType::uint8) return Cover::no("gathers floats or bytes");
    if (gather->y.id != net.first().x.id || gather->y.shape[0] != net.samples()) {
      return Cover::no("the first layer reads other samples");
    }
    if (!rest.dead_after(gather->y, 2)) return Cover::no("the gathered samples are read again");
    cover.skips.push_back(gather->y.id);
  }
  Scratch scratch;
  for (int i = 0; i < cpu_runtime(rest.runtime).pool().size(); ++i) ChunkMemory(scratch, net);
  cover.workspace = scratch.bytes();
  return cover;
}

class NetBatchStep final : public Step {
 public:
  NetBatchStep(const BatchNet& net, const Binding& binding)
      : pool_(cpu_runtime(binding.runtime()).pool()),
        samples_(net.samples()),
        weights_(net.packed_floats()) {
    const int64_t threads = pool_.size();
    const int64_t size =
        std::clamp(samples_ / (threads * kChunksPerThread), kLeastChunk, kMostChunk);
    // Each thread has as many chunks as the others, unless there are fewer chunks than threads.
    chunks_ = (samples_ + size - 1) / size;
    if (chunks_ > threads) chunks_ = (chunks_ + threads - 1) / threads * threads;
    Scratch scratch(binding.workspace());
    for (int i = 0; i < threads; ++i) memory_.emplace_back(scratch, net);
    if (net.gather != nullptr) {
      bind(*net.gather, binding);
    } else {
      x_ = binding.read(net.first().x).as<float>();
    }
    float* packed = weights_.data();
    for (const Chain::Layer& each : net.chain.layers) packed = add_layer(each, packed, binding);
    y_ = binding.write(net.y()).as<float>();
    softmax_ = net.softmax != nullptr;
    if (net.argmax != nullptr) labels_ = binding.write(net.argmax->y).as<int32_t>();
    if (net.tick != nullptr) tick_ = binding.write(net.tick->tick).as<int32_t>();
  }

  void run() override {
    next_.store(0, std::memory_order_relaxed);
    pool_.run([this](int thread) {
      for (;;) {
        const int64_t chunk = next_.fetch_add(1, std::memory_order_relaxed);
        if (chunk >= chunks_) return;
        run_chunk({samples_ * chunk / chunks_, samples_ * (chunk + 1) / chunks_},
                  memory_[size_t(thread)], chunk % 2 == 1);
      }
    });
    if (tick_ != nullptr) ++*tick_;
  }

 private:
  struct Layer {
    GemvArgs args;
    SimdActivation act;  // besides ReLU, which the product applies
  };

  void bind(const Gather& op, const Binding& binding) {
    const Tensor set = binding.read(op.set);
    (set.dtype == DType::uint8 ? bytes_ : floats_) = set.data;
    order_ = binding.read(op.order).as<int32_t>();
    first_ = binding.read(op.first).as<int64_t>();
    gather_tick_ = binding.read(op.tick).as<int32_t>();
    scale_ = float(op.scale);
    shift_ = float(op.shift);
  }

  // Returns the memory after the packed weights.
  float* add_layer(const Chain::Layer& layer, float* packed, const Binding& binding) {
    const GemvFunctions& f = gemv_functions();
    const Linear& op = *layer.linear;
    f.pack(binding.read(op.w).as<float>(), op.in(), nullptr, 0, op.out(),
           binding.read(op.b).as<float>(), nullptr, packed);
    Layer one{};
    one.args.packed = packed;
    one.args.in = one.args.x_stride = op.in();
    one.args.out = one.args.y_stride = op.out();
    if (layer.activation != nullptr) one.act = simd_activation(*layer.activation);
    one.args.relu = one.act == ActivationKind::relu;
    if (one.args.relu) one.act = ActivationKind::none;
    layers_.push_back(one);
    return packed + f.packed(op.in(), op.out());
  }

  // Returns the inputs of these samples, batch-major.
  const float* inputs(Range samples, float* gathered) const {
    const int64_t width = layers_.front().args.in;
    if (order_ == nullptr) return x_ + samples.begin * width;
    const int32_t* order = order_ + *first_ + int64_t{*gather_tick_} * samples_;
    // Floats that follow each other in the set, as those of a prediction do, are read there.
    const auto apart = [](int32_t one, int32_t next) { return next != one + 1; };
    const int32_t *first = order + samples.begin, *last = order + samples.end;
    if (floats_ != nullptr && std::adjacent_find(first, last, apart) == last) {
      return static_cast<const float*>(floats_) + int64_t{*first} * width;
    }
    float* to = gathered;
    for (int64_t i = samples.begin; i < samples.end; ++i, to += width) {
      const int64_t from = int64_t{order[i]} * width;
      if (bytes_ != nullptr) {
        gemv_functions().scale(static_cast<const uint8_t*>(bytes_) + from, to, width, scale_,
                               shift_);
      } else {
        std::memcpy(to, static_cast<const float*>(floats_) + from, size_t(width) * sizeof(float));
      }
    }
    return gathered;
  }

  void run_chunk(Range samples, const ChunkMemory& memory, bool backward) const {
    const GemvFunctions& f = gemv_functions();
    const int64_t count = samples.end - samples.begin;
    const int64_t classes = layers_.back().args.out;
    float* const result = y_ + samples.begin * classes;
    const float* x = inputs(samples, memory.x);
    for (size_t l = 0; l < layers_.size(); ++l) {
      float* const y = l + 1 == layers_.size() ? result : memory.between[l % 2];
      GemvArgs args = layers_[l].args;
      args.x = x;
      args.y = y;
      args.samples = count;
      args.backward = backward;
      f.multiply_many(args);
      if (layers_[l].act != ActivationKind::none)
        f.activate(layers_[l].act, y, y, count * args.out);
      x = y;
    }
    if (softmax_) f.softmax(result, result, count, classes);
    for (int64_t i = 0; labels_ != nullptr && i < count; ++i) {
      const float* row = result + i * classes;
      labels_[samples.begin + i] = int32_t(std::max_element(row, row + classes) - row);
    }
  }

  ThreadPool& pool_;
  int64_t samples_, chunks_;
  WeightMemory weights_;
  std::vector<Layer> layers_;
  std::vector<ChunkMemory> memory_;                  // one per thread
  std::atomic<int64_t> next_{0};                     // the next chunk
  const float* x_ = nullptr;                         // without a gather
  const void *bytes_ = nullptr, *floats_ = nullptr;  // the set, one of them
  const int32_t *order_ = nullptr, *gather_tick_ = nullptr;
  const int64_t* first_ = nullptr;
  float scale_ = 1, shift_ = 0;
  float* y_ = nullptr;
  bool softmax_ = false;
  int32_t *labels_ = nullptr, *tick_ = nullptr;
};

}  // namespace

Kernel net_batch_kernel() {
  Kernel kernel;
  kernel.name = "cpu.net_infer.batch";
  kernel.covers = covers_net_batch;
  kernel.prepare = [](const Span& span, const Binding& binding) -> std::unique_ptr<Step> {
    return std::make_unique<NetBatchStep>(BatchNet({span.program, span.begin, binding.runtime()}),
                                          binding);
  };
  return kernel;
}

}  // namespace ridgeline::cpu::simd
