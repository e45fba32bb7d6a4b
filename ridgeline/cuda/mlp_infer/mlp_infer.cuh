#pragma once

#include "ridgeline/cuda/conv/tensor.cuh"
#include "ridgeline/cuda/device/cluster.cuh"
#include "ridgeline/cuda/device/mbarrier.cuh"
#include "ridgeline/cuda/device/mma.cuh"
#include "ridgeline/cuda/mlp_infer/mlp_infer.h"
#include "ridgeline/cuda/plain/curve.cuh"

namespace ridgeline::cuda {

constexpr int kInferWarps = 8, kInferThreads = 32 * kInferWarps;

// 16 bytes of a row a lane, four lanes a row: two steps of an mma. Which of them hold which inputs
// does not matter as long as both factors agree.
constexpr int kInferChunkBytes = 64;

__host__ __device__ constexpr int infer_chunks(int in, int width) {
  return (in * width + kInferChunkBytes - 1) / kInferChunkBytes;
}
// Of a row of activations in shared memory: an odd number of 64 bytes, so that two rows fill all
// banks.
__host__ __device__ constexpr int infer_stride(int in, int width) {
  return (infer_chunks(in, width) | 1) * kInferChunkBytes;
}
// Columns of sums that a warp keeps: what registers allow.
template <int kRows>
constexpr int kInferTiles = kRows == 64 ? 2 : 4;
// Biases of a layer lie in eights.
__host__ __device__ constexpr int infer_padded(int out) { return (out + 7) / 8 * 8; }
// Of a row of a warp's sums, in floats: without bank conflicts.
template <int kRows>
constexpr int kInferSumStride = 8 * kInferTiles<kRows> + 8;

// Two neighbouring activations as factors, to `address` of shared memory of any block of the
// cluster.
template <typename T>
__device__ inline void store_factors(uint32_t address, float2 v) {
  if constexpr (sizeof(T) == 2) {
    asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(address), "r"(Pair<T>::pack(v.x, v.y))
                 : "memory");
  } else {
    cluster_store(address, {Factor<T>::round(v.x), Factor<T>::round(v.y)});
  }
}

// One block's part of kRows rows.
template <typename T, int kRows>
class MlpInference {
 public:
  __device__ MlpInference(const MlpInferArgs& args, int cluster, int second, int sums, char* shared)
      : args_(args),
        shared_(shared),
        second_(second),
        sums_(reinterpret_cast<float*>(shared + sums)),
        biases_(sums_ + kInferWarps * kRows * kSumStride),
        cluster_(cluster),
        rank_(int(cluster_rank())),
        row0_(int(blockIdx.x) / cluster_ * kRows),
        warp_(int(threadIdx.x) / 32),
        group_(int(threadIdx.x) % 32 / 4),
        quad_(int(threadIdx.x) % 4) {}

  __device__ void run() {
    cluster_arrive();  // this block runs: others may store into its memory
    wait_for_previous_kernel();
    allow_next_kernel();
    Ring ring;
    begin(0, ring);
    load_rows();
    __syncthreads();
    for (int l = 0; l < args_.layers; ++l) {
      const bool top = l + 1 == args_.layers;
      if (top && rank_ > 0) return;  // nobody stores here any more
      const Shares shares = share(l);
      for (int pass = 0; pass < shares.passes; ++pass) {
        if (pass > 0) {
          fetch(l, shares, pass, ring);
          __syncthreads();  // the sums of the pass before were read
        }
        multiply(l, shares, pass, ring);
        __syncthreads();
        if (l == 0 && pass == 0) cluster_wait();
        finish(l, shares, pass);
      }
      if (top) continue;
      clear_tail(l + 1);
      cluster_arrive();
      begin(l + 1, ring);
      cluster_wait();
    }
    __syncthreads();
    classify();
  }

 private:
  static constexpr int kElements = 16 / int(sizeof(T));  // of 16 bytes
  static constexpr int kTiles = kInferTiles<kRows>;      // of 8 columns
  static constexpr int kSumStride = kInferSumStride<kRows>;
  static constexpr int kDepth = 3;     // chunks of weights under way
  static constexpr int kTogether = 8;  // loads of bytes likewise
  struct Ring {
    uint4 w[kDepth][kTiles];
  };

  // How a block's columns of a layer fall to its warps: `groups` at a time of kTiles * 8 columns
  // each, the inputs of each in `parts`.
  struct Shares {
    int column0, columns, groups, parts, passes;
  };
  __device__ Shares share(int l) const {
    const int all = (args_.layer[l].out + 7) / 8;
    const int blocks = l + 1 == args_.layers ? 1 : cluster_;
    const int each = (all + blocks - 1) / blocks, first = min(each * rank_, all);
    Shares s;
    s.column0 = 8 * first;
    s.columns = 8 * max(0, min(each, all - first));
    const int wanted = (each + kTiles - 1) / kTiles;
    s.groups = wanted >= 8 ? 8 : wanted > 4 ? 8 : wanted > 2 ? 4 : wanted;
    s.parts = kInferWarps / s.groups;
    s.passes = (wanted + s.groups - 1) / s.groups;
    return s;
  }

  __device__ char* activations(int l) const { return shared_ + (l & 1 ? second_ : 0); }
  __device__ int stride(int l) const { return infer_stride(args_.layer[l].in, sizeof(T)); }

  // The batch's rows as factors; 0 past the batch and past the inputs. Biases, too, come on chip:
  // nothing that a layer needs but its weights is far away.
  __device__ void load_rows() const {
    const int32_t tick = *args_.tick;
    const int32_t* order = args_.order + *args_.first + int64_t(tick) * args_.n;
    int32_t* sources = reinterpret_cast<int32_t*>(sums_);  // not in use yet
    for (int row = int(threadIdx.x); row < kRows; row += kInferThreads) {
      sources[row] = row0_ + row < args_.n ? order[row0_ + row] : -1;
    }
    for (int l = 0, from = 0; l < args_.layers; from += infer_padded(args_.layer[l++].out)) {
      const MlpInferLayer& layer = args_.layer[l];
      for (int n = int(threadIdx.x); n < infer_padded(layer.out); n += kInferThreads) {
        biases_[from + n] = bias(layer, n);
      }
    }
    __syncthreads();  // all have read the tick
    if (threadIdx.x == 0 && atomicAdd(args_.done, 1u) == gridDim.x - 1) {
      *args_.done = 0;
      *args_.tick = tick + 1;
    }
    const int words = infer_chunks(args_.layer[0].in, sizeof(T)) * 4;
    for (int begin = int(threadIdx.x); begin < kRows * words; begin += kTogether * kInferThreads) {
      Bytes bytes[kTogether];
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        const int item = begin + i * kInferThreads, k = item % words * kElements;
        const int source = item < kRows * words ? sources[item / words] : -1;
        const bool there = source >= 0 && k < args_.layer[0].in;
        bytes[i].there = there;
        if (there) bytes[i].load(args_.set + int64_t(source) * args_.layer[0].in + k);
      }
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        const int item = begin + i * kInferThreads;
        if (item >= kRows * words) break;
        *reinterpret_cast<uint4*>(activations(0) + item / words * stride(0) + item % words * 16) =
            factors(bytes[i]);
      }
    }
  }

  // As many bytes as 16 bytes have factors.
  struct Bytes {
    uint32_t v[kElements / 4];
    bool there;

    __device__ void load(const uint8_t* from) {
      if constexpr (kElements == 8) {
        const uint2 both = __ldg(reinterpret_cast<const uint2*>(from));
        v[0] = both.x, v[1] = both.y;
      } else {
        v[0] = __ldg(reinterpret_cast<const uint32_t*>(from));
      }
    }
  };
  __device__ uint4 factors(const Bytes& bytes) const {
    if (!bytes.there) return uint4{};
    float x[kElements];
    uint32_t out[4];
#pragma unroll
    for (int e = 0; e < kElements; ++e) {
      x[e] = fmaf(float(bytes.v[e / 4] >> (8 * (e % 4)) & 0xff), args_.scale, args_.shift);
    }
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      if constexpr (kElements == 8) {
        out[w] = Pair<T>::pack(x[2 * w], x[2 * w + 1]);
      } else {
        out[w] = __float_as_uint(Factor<T>::round(x[w]));
      }
    }
    return {out[0], out[1], out[2], out[3]};
  }

  // Weights of this warp's columns at one chunk of inputs; 0 beyond either.
  __device__ void fetch_chunk(const MlpInferLayer& layer, int column, int chunk,
                              uint4 (&to)[kTiles]) const {
    const int k = chunk * 4 * kElements + quad_ * kElements;
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      const int n = column + 8 * j + group_;
      to[j] = uint4{};
      if (n < layer.out && k < layer.in) {
        to[j] = __ldg(reinterpret_cast<const uint4*>(static_cast<const T*>(layer.w) +
                                                     int64_t(n) * layer.in + k));
      }
    }
  }
  __device__ int column_of(const Shares& s, int pass) const {
    return s.column0 + (pass * s.groups + warp_ / s.parts) * kTiles * 8;
  }
  __device__ void fetch(int l, const Shares& s, int pass, Ring& ring) const {
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
      fetch_chunk(args_.layer[l], column_of(s, pass), warp_ % s.parts + d * s.parts, ring.w[d]);
    }
  }
  __device__ void begin(int l, Ring& ring) const {
    if (l + 1 == args_.layers && rank_ > 0) return;
    fetch(l, share(l), 0, ring);
  }

  // Weights as factors: those of tf32 lie in memory as fp32.
  static __device__ uint4 rounded(uint4 v) {
    if constexpr (sizeof(T) == 4) {
      for (uint32_t* each : {&v.x, &v.y, &v.z, &v.w}) {
        *each = __float_as_uint(Factor<T>::round(__uint_as_float(*each)));
      }
    }
    return v;
  }

  // This warp's sums of a pass, to its place in shared memory.
  __device__ void multiply(int l, const Shares& s, int pass, Ring& ring) const {
    const MlpInferLayer& layer = args_.layer[l];
    const int column = column_of(s, pass), chunks = infer_chunks(layer.in, sizeof(T));
    const char* rows = activations(l) + group_ * stride(l) + 16 * quad_;
    float sum[kRows / 16][kTiles][4] = {};
    for (int begin = warp_ % s.parts; begin < chunks; begin += kDepth * s.parts) {
#pragma unroll
      for (int d = 0; d < kDepth; ++d) {
        const int chunk = begin + d * s.parts;
        if (chunk >= chunks) break;
        uint4 w[kTiles];
#pragma unroll
        for (int j = 0; j < kTiles; ++j) w[j] = rounded(ring.w[d][j]);
        fetch_chunk(layer, column, chunk + kDepth * s.parts, ring.w[d]);
#pragma unroll
        for (int i = 0; i < kRows / 16; ++i) {
          const char* at = rows + 16 * i * stride(l) + chunk * kInferChunkBytes;
          const uint4 low = *reinterpret_cast<const uint4*>(at);
          const uint4 high = *reinterpret_cast<const uint4*>(at + 8 * stride(l));
          const uint32_t first[4] = {low.x, high.x, low.y, high.y};
          const uint32_t then[4] = {low.z, high.z, low.w, high.w};
#pragma unroll
          for (int j = 0; j < kTiles; ++j) {
            Factor<T>::mma(sum[i][j], first, w[j].x, w[j].y);
            Factor<T>::mma(sum[i][j], then, w[j].z, w[j].w);
          }
        }
      }
    }
    float* to = sums_ + warp_ * kRows * kSumStride + group_ * kSumStride + 2 * quad_;
#pragma unroll
    for (int i = 0; i < kRows / 16; ++i) {
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
        float* at = to + 16 * i * kSumStride + 8 * j;
        *reinterpret_cast<float2*>(at) = {sum[i][j][0], sum[i][j][1]};
        *reinterpret_cast<float2*>(at + 8 * kSumStride) = {sum[i][j][2], sum[i][j][3]};
      }
    }
  }

  __device__ float bias(const MlpInferLayer& layer, int n) const {
    if (layer.b == nullptr || n >= layer.out) return 0.0f;
    return layer.wide_bias ? __ldg(static_cast<const float*>(layer.b) + n)
                           : float(static_cast<const T*>(layer.b)[n]);
  }

  // Bias and curve of a pass's sums; to the next layer's activations in every block, or, of the top
  // layer, to this block's as fp32.
  __device__ void finish(int l, const Shares& s, int pass) const {
    const MlpInferLayer& layer = args_.layer[l];
    const bool top = l + 1 == args_.layers;
    const float* biases = biases_;
    for (int below = 0; below < l; ++below) biases += infer_padded(args_.layer[below].out);
    const int pairs = s.groups * kTiles * 4;  // of a row: a power of two
    const int shift = 31 - __clz(pairs);
    const uint32_t next = shared_address(activations(l + 1));
    const int next_stride = top ? kLogitStride * 4 : stride(l + 1);
    for (int i = int(threadIdx.x); i < kRows * pairs; i += kInferThreads) {
      const int row = i >> shift, pair = i & (pairs - 1);
      const int group = pair / (kTiles * 4), within = 2 * (pair % (kTiles * 4));
      const int n = s.column0 + (pass * s.groups + group) * kTiles * 8 + within;
      if (n >= min(layer.out, s.column0 + s.columns)) continue;
      const float* from = sums_ + (group * s.parts * kRows + row) * kSumStride + within;
      float2 sum = {};
      for (int part = 0; part < s.parts; ++part) {
        const float2 v = *reinterpret_cast<const float2*>(from + part * kRows * kSumStride);
        sum.x += v.x, sum.y += v.y;
      }
      const float2 b = *reinterpret_cast<const float2*>(biases + n);
      const float2 y = {curve_value(layer.curve, sum.x + b.x),
                        curve_value(layer.curve, sum.y + b.y)};
      if (top) {
        float* logits = reinterpret_cast<float*>(activations(l + 1)) + row * kLogitStride + n;
        logits[0] = y.x;
        if (n + 1 < layer.out) logits[1] = y.y;
        continue;
      }
      const uint32_t at = next + uint32_t(row * next_stride + n * int(sizeof(T)));
      for (int to = 0; to < cluster_; ++to) store_factors<T>(cluster_address(at, uint32_t(to)), y);
    }
  }

  // Inputs of layer l past the last, of which a chunk may have some.
  __device__ void clear_tail(int l) const {
    const int from = args_.layer[l].in * int(sizeof(T)) / 16,
              words = infer_chunks(args_.layer[l].in, sizeof(T)) * 4 - from;
    for (int i = int(threadIdx.x); i < kRows * words; i += kInferThreads) {
      *reinterpret_cast<uint4*>(activations(l) + i / words * stride(l) + 16 * (from + i % words)) =
          uint4{};
    }
  }

  // A warp a row, a lane a class.
  __device__ void classify() const {
    const int classes = args_.layer[args_.layers - 1].out, lane = int(threadIdx.x) % 32;
    const float* logits = reinterpret_cast<const float*>(activations(args_.layers));
    for (int row = warp_; row < kRows && row0_ + row < args_.n; row += kInferWarps) {
      const float z = lane < classes ? float(T(logits[row * kLogitStride + lane])) : -INFINITY;
      float most = z, total;
#pragma unroll
      for (int d = 16; d > 0; d /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, d));
      const float power = lane < classes ? expf(z - most) : 0.0f;
      total = power;
#pragma unroll
      for (int d = 16; d > 0; d /= 2) total += __shfl_xor_sync(~0u, total, d);
      const float probability = power / total;
      if (lane < classes) {
        args_.probabilities[int64_t(row0_ + row) * classes + lane] = probability;
      }
      if (args_.predictions == nullptr) continue;
      float largest = probability;
#pragma unroll
      for (int d = 16; d > 0; d /= 2) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, d));
      const unsigned winners = __ballot_sync(~0u, lane < classes && probability == largest);
      if (lane == 0) args_.predictions[row0_ + row] = max(0, __ffs(int(winners)) - 1);
    }
  }

  static constexpr int kLogitStride = kMlpInferClasses + 1;  // floats

  const MlpInferArgs& args_;
  char* shared_;
  int second_;
  float *sums_, *biases_;  // biases: of all layers, each in eights
  int cluster_, rank_, row0_, warp_, group_, quad_;
};

}  // namespace ridgeline::cuda
