#include "ridgeline/cuda/device/async_copy.cuh"
#include "ridgeline/cuda/device/cluster_load.cuh"
#include "ridgeline/cuda/device/mma.cuh"
#include "ridgeline/cuda/device/shared_matrix.cuh"
#include "ridgeline/cuda/recurrent/split_k_weights.h"

namespace ridgeline::cuda::recurrent {
namespace {

constexpr int kThreads = 128, kStages = 4;
// Values of a 16-byte access, and timesteps of a stage, which holds 8 KB of each factor.
template <typename T>
constexpr int kValues = 16 / sizeof(T);
template <typename T>
constexpr int kStageRows = 128 / sizeof(T);
constexpr int kFactorBytes = 8192, kStageBytes = 2 * kFactorBytes;
constexpr int kSharedBytes = kStages * kStageBytes;
// The pitch of a tile of sums, whose column kSplitTile has the bias's.
constexpr int kSumPitch = kSplitTile + 4;

// The product of a block's two factors, [timestep][64 rows or columns of dw] in shared memory.
template <typename T>
class TileProduct {  // halves by mma; a warp has a quarter of the tile
 public:
  // The offset of a 16-byte word of a factor: swizzled, so that the same word of eight timesteps is
  // in different banks.
  static __device__ uint32_t offset(int row, int word) { return row * 128 + (word ^ row & 7) * 16; }

  __device__ void add(uint32_t a_at, uint32_t b_at) {
#pragma unroll
    for (int k = 0; k < kStageRows<T>; k += 16) {
      const int in_8 = lane_ % 8, second = lane_ / 8 % 2, last = lane_ / 16;
      uint32_t a[2][4], b[2][4];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        load_matrices_transposed(a[i],
                                 a_at + offset(k + 8 * last + in_8, row() / 8 + 2 * i + second));
        load_matrices_transposed(b[i],
                                 b_at + offset(k + 8 * second + in_8, column() / 8 + 2 * i + last));
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          mma_m16n8k16<T>(d_[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
        }
        mma_m16n8k16<T>(bias_[i], a[i], Pair<T>::pack(1, 1), Pair<T>::pack(1, 1));
      }
    }
  }
  __device__ void store(float* sums) const {
    const int g = lane_ / 4, t = lane_ % 4;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float* to = sums + (row() + 16 * i + 8 * half + g) * kSumPitch;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          *reinterpret_cast<float2*>(to + column() + 8 * j + 2 * t) = {d_[i][j][2 * half],
                                                                       d_[i][j][2 * half + 1]};
        }
        if (column() == 0 && t == 0) to[kSplitTile] = bias_[i][2 * half];
      }
    }
  }

 private:
  __device__ int row() const { return warp_ / 2 * 32; }
  __device__ int column() const { return warp_ % 2 * 32; }
  int warp_ = int(threadIdx.x) / 32, lane_ = int(threadIdx.x) % 32;
  float d_[2][4][4] = {}, bias_[2][4] = {};
};

template <>
class TileProduct<float> {  // a thread has 8 x 4 of the tile
 public:
  static __device__ uint32_t offset(int row, int word) { return row * 256 + word * 16; }

  __device__ void add(uint32_t a_at, uint32_t b_at) {
#pragma unroll 4
    for (int k = 0; k < kStageRows<float>; ++k) {
      const uint4 words[3] = {load_shared_128(a_at + offset(k, row() / 4)),
                              load_shared_128(a_at + offset(k, row() / 4 + 1)),
                              load_shared_128(b_at + offset(k, column() / 4))};
      const float* v = reinterpret_cast<const float*>(words);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) d_[i][j] = fmaf(v[i], v[8 + j], d_[i][j]);
        if (column() == 0) bias_[i] += v[i];
      }
    }
  }
  __device__ void store(float* sums) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      float* to = sums + (row() + i) * kSumPitch;
      *reinterpret_cast<float4*>(to + column()) = {d_[i][0], d_[i][1], d_[i][2], d_[i][3]};
      if (column() == 0) to[kSplitTile] = bias_[i];
    }
  }

 private:
  __device__ int row() const { return int(threadIdx.x) / 16 * 8; }
  __device__ int column() const { return int(threadIdx.x) % 16 * 4; }
  float d_[8][4] = {}, bias_[8] = {};
};

__device__ inline float4 load_cluster_4(uint32_t address) {
  const uint4 v = load_cluster_16(address);
  return {__uint_as_float(v.x), __uint_as_float(v.y), __uint_as_float(v.z), __uint_as_float(v.w)};
}

// A block's tile: which rows of which weights, and where its factors come from.
template <typename T>
class Tile {
 public:
  __device__ explicit Tile(const SplitKWeights<T>& args) : args_(args) {
    const Sequence& s = args.sequence;
    int tile = int(blockIdx.x) / args.splits;
    int column = tile % args.column_tiles();
    const int of_x = args.tiles_of(args.in);
    if (tile >= args.layer_tiles()) {
      of_ = Of::head;
      column = tile - args.layer_tiles();
      tile = 0;
    } else if (column >= of_x) {
      of_ = Of::h;
      column -= of_x;
    }
    const bool head = of_ == Of::head;
    first_row_ = tile / args.column_tiles() * kSplitTile;
    first_column_ = column * kSplitTile;
    rows_ = head ? args.head.classes : args.rows();
    width_ = of_ == Of::x ? args.in : s.hidden;
    gradients_ = head ? args.head.gradients : args.gradients;
    pitch_ = head ? args.head.classes : int(args.pitch);
    // The copies of a word: the gate gradients of one row of weights may not be neighbours of those
    // of the next.
    const int together = head ? pitch_ : s.hidden;
    gradient_bytes_ = min(copy_bytes(gradients_, pitch_), copy_bytes(gradients_, together));
    input_bytes_ = of_ == Of::x ? copy_bytes(args.x, args.in)
                                : min(copy_bytes(args.y, s.hidden), copy_bytes(args.h0, 0));
  }

  // The number of timesteps, or of samples, that the sums are over.
  __device__ int extent() const {
    const Sequence& s = args_.sequence;
    return of_ == Of::head ? s.batch : s.batch * s.steps;
  }
  // Whether this tile's first block also adds up the samples' losses.
  __device__ bool has_scores() const { return of_ == Of::head && first_column_ == 0; }

  // A thread's place in the copies, a word of every kRowStep-th timestep [b, t] = `row`. It moves
  // on by additions: a division a word would be most of a copy's instructions.
  struct Cursor {
    int row, b, t;
  };
  static constexpr int kWords = kSplitTile / kValues<T>, kRowStep = kThreads / kWords;

  __device__ Cursor begin(int first) const {
    const int row = first + int(threadIdx.x) / kWords, steps = args_.sequence.steps;
    return {row, row / steps, row % steps};
  }
  __device__ void advance(Cursor& at) const {
    at.row += kRowStep;
    at.t += kRowStep;
    while (at.t >= args_.sequence.steps) {
      at.t -= args_.sequence.steps;
      ++at.b;
    }
  }
  // Begins the copy of a word of both factors into a stage.
  __device__ void copy(const Cursor& at, int last, uint32_t a_at, uint32_t b_at) const {
    const int word = int(threadIdx.x) % kWords * kValues<T>;
    const int m = first_row_ + word, n = first_column_ + word;
    const T* gradients = gradients_ + int64_t(at.row) * pitch_;
    copy_word(a_at, gradients_, gradients, at.row < last ? rows_ - m : 0, gradient_bytes_,
              [&](int e) { return column_of(m + e); });
    const T* inputs = at.row < last ? inputs_of(at) : nullptr;
    copy_word(b_at, gradients_, inputs, inputs != nullptr ? width_ - n : 0, input_bytes_,
              [&](int e) { return n + e; });
  }

  // Writes a sum of the tile, or of the bias in the column past the tile.
  __device__ void put(int row, int column, float sum) const {
    const int m = first_row_ + row, n = first_column_ + column;
    if (m >= rows_) return;
    const auto pick = [&](auto of_x, auto of_h, auto of_head) {
      return of_ == Of::x ? of_x : of_ == Of::h ? of_h : of_head;
    };
    if (column == kSplitTile) {
      const MixedOut<T> bias = pick(args_.db_ih, args_.db_hh, args_.head.db);
      if (first_column_ == 0 && bias) bias.put(m, sum);
    } else if (n < width_) {
      pick(args_.dw_ih, args_.dw_hh, args_.head.dw).put(int64_t(m) * width_ + n, sum);
    }
  }

 private:
  enum class Of : uint8_t { x, h, head };  // whose weights

  // The most bytes that one copy of these rows can have: 16, 8 or 4; 0 if there is none.
  static __device__ int copy_bytes(const T* rows, int64_t pitch) {
    const uintptr_t both = reinterpret_cast<uintptr_t>(rows) | uintptr_t(pitch * sizeof(T));
    return both % 16 == 0 ? 16 : both % 8 == 0 ? 8 : both % 4 == 0 ? 4 : 0;
  }
  // Copies a word of 16 bytes of a row: as many values as there are, at row[at(e)], and zeros.
  // `any` is an address to copy nothing from.
  template <typename At>
  static __device__ void copy_word(uint32_t to, const T* any, const T* row, int there, int bytes,
                                   const At& at) {
    const auto copy = [&]<int kBytes>() {
      constexpr int kEach = kBytes / int(sizeof(T));
#pragma unroll
      for (int e = 0; e < kValues<T>; e += kEach) {
        copy_async_or_zero<kBytes>(to + e * int(sizeof(T)), e < there ? row + at(e) : any,
                                   e < there ? kBytes : 0);
      }
    };
    if (bytes == 16) return copy.template operator()<16>();
    if (bytes == 8) return copy.template operator()<8>();
    if (bytes == 4) return copy.template operator()<4>();
    alignas(16) T v[kValues<T>];
#pragma unroll
    for (int e = 0; e < kValues<T>; ++e) v[e] = e < there ? row[at(e)] : T(0.0f);
    const uint4 word = *reinterpret_cast<const uint4*>(v);
    asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(word.x), "r"(word.y),
                 "r"(word.z), "r"(word.w)
                 : "memory");
  }
  // Returns the place of a row of the weights' gradients in the gate gradients: a GRU's last gate
  // has a vector of its own for h.
  __device__ int column_of(int m) const {
    const int hidden = args_.sequence.hidden;
    return of_ == Of::h && args_.cell == Cell::gru && m >= 2 * hidden ? m + hidden : m;
  }
  // x of a timestep, or the state that it began with; null if that is zero. The padding may hold
  // NaN or infinity, whose product with a gate gradient of zero is not zero.
  __device__ const T* inputs_of(const Cursor& at) const {
    const Sequence& s = args_.sequence;
    const auto y_of = [&](int row) {
      return args_.y + int64_t(row * s.directions + s.direction) * s.hidden;
    };
    if (of_ == Of::head) return y_of(at.row * s.steps + args_.head.time);
    const int length = s.length(at.b);
    if (at.t >= length) return nullptr;
    if (of_ == Of::x) return args_.x + int64_t(at.row) * args_.in;
    const int earlier = s.reverse ? at.t + 1 : at.t - 1;
    if (earlier >= 0 && earlier < length) return y_of(at.row + earlier - at.t);
    return args_.h0 != nullptr ? args_.h0 + int64_t(at.b) * s.hidden : nullptr;
  }

  const SplitKWeights<T>& args_;
  const T* gradients_;
  int first_row_, first_column_, rows_, width_, pitch_, gradient_bytes_, input_bytes_;
  Of of_ = Of::x;
};

// Called by a warp: adds up the samples' losses in a fixed order.
template <typename T>
__device__ void add_scores(const SplitKHead<T>& head, int batch) {
  double loss = 0;
  int correct = 0;
  for (int b = int(threadIdx.x); b < batch; b += 32) {
    loss += head.scores[b].loss;
    correct += head.scores[b].correct;
  }
#pragma unroll
  for (int off = 16; off > 0; off /= 2) {
    loss += __shfl_xor_sync(0xffffffffu, loss, off);
    correct += __shfl_xor_sync(0xffffffffu, correct, off);
  }
  if (threadIdx.x != 0) return;
  head.loss[*head.tick] = head.loss_scale * loss;
  if (head.correct != nullptr) head.correct[*head.tick] = correct;
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    rnn_grad_w_split_k_kernel(const __grid_constant__ SplitKWeights<T> args) {
#if __CUDA_ARCH__ >= 900  // the kernels refuse other GPUs
  extern __shared__ __align__(128) float shared[];
  constexpr int kRows = kStageRows<T>, kWords = kSplitTile / kValues<T>;
  const Tile<T> tile(args);
  const int rank = int(blockIdx.x) % args.splits;
  const int all = tile.extent();
  const int each = ((all + args.splits - 1) / args.splits + 15) / 16 * 16;
  const int first = rank * each, last = min(first + each, all);
  const int stages = last > first ? (last - first + kRows - 1) / kRows : 0;
  const uint32_t memory = shared_address(shared);
  // The stages are fetched one after the other.
  auto cursor = tile.begin(first);
  const auto fetch = [&](int stage) {
    const uint32_t at = memory + stage % kStages * kStageBytes;
#pragma unroll
    for (int i = int(threadIdx.x); i < kRows * kWords; i += kThreads) {
      const uint32_t to = at + TileProduct<T>::offset(i / kWords, i % kWords);
      tile.copy(cursor, last, to, to + kFactorBytes);
      tile.advance(cursor);
    }
  };
  for (int stage = 0; stage < kStages - 1; ++stage) {
    if (stage < stages) fetch(stage);
    copy_async_commit();
  }
  TileProduct<T> product;
  for (int stage = 0; stage < stages; ++stage) {
    copy_async_wait<kStages - 2>();
    __syncthreads();  // the stage is there, and the one before it has been multiplied
    if (stage + kStages - 1 < stages) fetch(stage + kStages - 1);
    copy_async_commit();
    const uint32_t at = memory + stage % kStages * kStageBytes;
    product.add(at, at + kFactorBytes);
  }
  copy_async_wait<0>();
  __syncthreads();
  if (tile.has_scores() && rank == 0 && threadIdx.x < 32) {
    add_scores(args.head, args.sequence.batch);
  }
  product.store(shared);
  cluster_sync();
  // Each block adds up every splits-th row, four columns a thread; the last four have the bias's.
  for (int i = int(threadIdx.x);; i += kThreads) {
    const int row = rank + i / (kSumPitch / 4) * args.splits, column = i % (kSumPitch / 4) * 4;
    if (row >= kSplitTile) break;
    const uint32_t at = memory + (row * kSumPitch + column) * 4;
    float4 parts[kMostSplits];
#pragma unroll
    for (int block = 0; block < kMostSplits; ++block) {
      parts[block] = {};
      if (block < args.splits) parts[block] = load_cluster_4(cluster_address(at, block));
    }
    float4 sum = parts[0];
#pragma unroll
    for (int block = 1; block < kMostSplits; ++block) {
      const float4& part = parts[block];
      sum = {sum.x + part.x, sum.y + part.y, sum.z + part.z, sum.w + part.w};
    }
    tile.put(row, column, sum.x);
    if (column == kSplitTile) continue;
    tile.put(row, column + 1, sum.y);
    tile.put(row, column + 2, sum.z);
    tile.put(row, column + 3, sum.w);
  }
  cluster_sync();  // no block exits while others read its sums
#endif
}

}  // namespace

template <typename T>
cudaError_t launch_split_k_weights(const SplitKWeights<T>& args, cudaStream_t stream) {
  const auto kernel = reinterpret_cast<const void*>(rnn_grad_w_split_k_kernel<T>);
  if (auto e =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes)) {
    return e;
  }
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = unsigned(args.splits);
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(unsigned(args.tiles() * args.splits));
  config.blockDim = dim3(unsigned(kThreads));
  config.dynamicSmemBytes = kSharedBytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, rnn_grad_w_split_k_kernel<T>, args);
}

template cudaError_t launch_split_k_weights<__nv_bfloat16>(const SplitKWeights<__nv_bfloat16>&,
                                                           cudaStream_t);
template cudaError_t launch_split_k_weights<__half>(const SplitKWeights<__half>&, cudaStream_t);
template cudaError_t launch_split_k_weights<float>(const SplitKWeights<float>&, cudaStream_t);

}  // namespace ridgeline::cuda::recurrent
