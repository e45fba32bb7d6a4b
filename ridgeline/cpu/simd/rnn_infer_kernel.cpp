#include <algorithm>
#include <atomic>

#include "ridgeline/cpu/simd/gemv.h"
#include "ridgeline/cpu/simd/net_infer_kernels.h"
#include "ridgeline/cpu/simd/weight_memory.h"

// An LSTM or GRU layer for a batch, with weights packed in prepare. Samples stay batch-major, so
// nothing is transposed, and a tile multiplies input and state together. Threads take chunks of
// samples through all timesteps and wait for each other only at the end.
namespace ridgeline::cpu::simd {
namespace {

// Samples of a chunk. The weights pass through the second-level cache once per timestep of a chunk,
// beside the inputs and states of its samples.
constexpr int64_t kMostChunk = 96;
// cpu.net_infer.simd is for fewer samples.
constexpr int64_t kLeastSamples = 9;
static_assert(kLeastSamples >= kLeastCellSamples);

int64_t chunk_size(const RnnShape& s, int threads) {
  return std::clamp((s.batch + 2 * threads - 1) / (2 * threads), std::min(s.batch, int64_t{24}),
                    kMostChunk);
}

// The memory of a thread: twice the inputs and states of a timestep, row by row, and twice the
// cells, for the timesteps before and after.
struct ChunkMemory {
  float *rows[2], *cells[2];
  // Rows of a power of two would compete for a few sets of a cache.
  static int64_t stride(const RnnShape& s) { return (s.in + s.hidden + 15) / 16 * 16 + 16; }

  ChunkMemory(Scratch& scratch, const RnnShape& s) {
    const int64_t samples = std::min(kMostChunk, s.batch);
    for (float*& each : rows) each = scratch.take<float>(size_t(samples * stride(s)));
    for (float*& each : cells) {
      each = scratch.take<float>(s.cell == CellKind::lstm ? size_t(samples * s.hidden) : 0);
    }
  }
};

Cover covers_rnn(const RemainingOps& rest) {
  const auto* op = rest.get<Rnn>(0);
  if (op == nullptr) return Cover::no("the next op is no rnn");
  const RnnShape& s = op->shape;
  if (gates(s.cell) == 1) return Cover::no("takes LSTM and GRU");
  if (op->y.dtype != DType::fp32 || op->y.shape.numel() == 0) return Cover::no("takes fp32 only");
  if (op->lengths || op->reserve) return Cover::no("takes no lengths and keeps no reserve");
  for (const RnnWeights& each : op->weights) {
    for (const Value& value : each.values()) {
      if (!value) continue;
      const Role role = rest.program.info(value.id).role;
      if (role != Role::param && role != Role::copy) {
        return Cover::no("takes weights that do not change");
      }
    }
  }
  if (s.batch < kLeastSamples) return Cover::no("takes nine samples or more");
  Cover cover = Cover::of(1);
  Scratch scratch;
  for (int i = 0; i < cpu_runtime(rest.runtime).pool().size(); ++i) ChunkMemory(scratch, s);
  cover.workspace = scratch.bytes();
  return cover;
}

class RnnInferStep final : public Step {
 public:
  RnnInferStep(const Rnn& op, const Binding& binding)
      : pool_(cpu_runtime(binding.runtime()).pool()),
        s_(op.shape),
        packed_(gemv_functions().packed_cell(s_.cell, s_.in, s_.hidden)),
        weights_(packed_ * s_.directions()) {
    const int64_t size = chunk_size(s_, pool_.size());
    chunks_ = (s_.batch + size - 1) / size;
    // A last chunk of a few samples would be too small for a tile.
    while (chunks_ > 1 && s_.batch / chunks_ < kLeastCellSamples) --chunks_;
    Scratch scratch(binding.workspace());
    for (int i = 0; i < pool_.size(); ++i) memory_.emplace_back(scratch, s_);
    const auto floats = [&](const Value& v) { return binding.read(v).as<const float>(); };
    for (int64_t d = 0; d < s_.directions(); ++d) {
      const RnnWeights& w = op.weights[size_t(d)];
      gemv_functions().pack_cell(s_.cell, s_.in, s_.hidden, floats(w.w_ih), floats(w.w_hh),
                                 floats(w.b_ih), floats(w.b_hh), weights_.data() + d * packed_);
    }
    x_ = floats(op.x);
    h0_ = floats(op.h0);
    c0_ = floats(op.c0);
    y_ = binding.write(op.y).as<float>();
    hT_ = binding.write(op.hT).as<float>();
    cT_ = binding.write(op.cT).as<float>();
  }

  void run() override {
    next_.store(0, std::memory_order_relaxed);
    pool_.run([this](int thread) {
      for (;;) {
        const int64_t chunk = next_.fetch_add(1, std::memory_order_relaxed);
        if (chunk >= chunks_) return;
        const Range samples{s_.batch * chunk / chunks_, s_.batch * (chunk + 1) / chunks_};
        for (int64_t d = 0; d < s_.directions(); ++d) {
          run_chunk(samples, d, memory_[size_t(thread)]);
        }
      }
    });
  }

 private:
  // Copies `width` floats of each sample between rows that are so many floats apart.
  static void copy(const float* from, int64_t from_stride, float* to, int64_t to_stride,
                   int64_t samples, int64_t width) {
    for (int64_t i = 0; i < samples; ++i) {
      std::copy_n(from + i * from_stride, width, to + i * to_stride);
    }
  }

  void run_chunk(Range samples, int64_t d, const ChunkMemory& memory) const {
    const int64_t n = samples.end - samples.begin, H = s_.hidden, first = samples.begin;
    const int64_t stride = ChunkMemory::stride(s_), y_row = s_.directions() * H;
    const int64_t state = (d * s_.batch + first) * H;
    const auto& [rows, cells] = memory;
    if (h0_ != nullptr) copy(h0_ + state, H, rows[0] + s_.in, stride, n, H);
    if (c0_ != nullptr) std::copy_n(c0_ + state, n * H, cells[0]);
    CellArgs args{};
    args.cell = s_.cell;
    args.packed = weights_.data() + d * packed_;
    args.in = s_.in;
    args.hidden = H;
    args.x_stride = args.h_stride = args.y_stride = stride;
    args.samples = n;
    for (int64_t step = 0; step < s_.steps; ++step) {
      const int64_t t = s_.reverse(d) ? s_.steps - 1 - step : step;
      float *now = rows[step % 2], *next = rows[(step + 1) % 2];
      copy(x_ + (first * s_.steps + t) * s_.in, s_.steps * s_.in, now, stride, n, s_.in);
      args.x = now;
      args.h = step > 0 || h0_ != nullptr ? now + s_.in : nullptr;
      args.y = next + s_.in;
      args.c = step > 0 || c0_ != nullptr ? cells[step % 2] : nullptr;
      args.c_next = cells[(step + 1) % 2];
      gemv_functions().step_many(args);
      args.backward = !args.backward;
      copy(args.y, stride, y_ + (first * s_.steps + t) * y_row + d * H, s_.steps * y_row, n, H);
    }
    if (hT_ != nullptr) copy(args.y, stride, hT_ + state, H, n, H);
    if (cT_ != nullptr) std::copy_n(args.c_next, n * H, cT_ + state);
  }

  ThreadPool& pool_;
  RnnShape s_;
  int64_t packed_, chunks_;
  WeightMemory weights_;
  std::vector<ChunkMemory> memory_;  // one per thread
  std::atomic<int64_t> next_{0};     // the next chunk
  const float *x_ = nullptr, *h0_ = nullptr, *c0_ = nullptr;
  float *y_ = nullptr, *hT_ = nullptr, *cT_ = nullptr;
};

}  // namespace

Kernel rnn_infer_kernel() {
  Kernel kernel;
  kernel.name = "cpu.rnn_infer.batch";
  kernel.covers = covers_rnn;
  kernel.prepare = [](const Span& span, const Binding& binding) -> std::unique_ptr<Step> {
    return std::make_unique<RnnInferStep>(span.get<Rnn>(0), binding);
  };
  return kernel;
}

}  // namespace ridgeline::cpu::simd
