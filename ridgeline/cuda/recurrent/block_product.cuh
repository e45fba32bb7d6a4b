#pragma once

#include "ridgeline/cuda/recurrent/exchange.cuh"
#include "ridgeline/cuda/recurrent/vec8.cuh"

namespace ridgeline::cuda::recurrent {

// The number of chunks of a state that a warp has in registers, or in flight to them, at a time.
constexpr int ring_chunks(int planes, int row_tiles, int held) {
  return planes == 1 && row_tiles == 6 ? 2 * held : held;
}

// partial[sample][row] of a warp = its share of the block's weights . a panel's slot. A share is a
// number of chunks of 32 places; past the end of the extent, weights and slot are zero. The weights
// of the first kHeld chunks stay in registers, those of the next chunks in shared memory, and the
// rest stream from L2. kRing chunks of the slot are in registers at a time. They are prefetched
// some iterations ahead, from L2 or from shared memory; words that had not been written yet are
// read again.
template <typename T, int kHeld, int kTiles>
class BlockProduct {
 public:
  using H = Handed<T>;
  static constexpr int kPlanes = H::kPlanes;
  static constexpr int kRing = ring_chunks(kPlanes, kTiles, kHeld);
  static constexpr bool kByGroups = false;
  static constexpr int kProductRegisters = 216, kGateRegisters = 72;
  static constexpr int kPanel = kPanelSamples, kParts = kWarps;
  using Slot = LaneSlot<kPlanes>;
  static constexpr int kRows = 16 * kTiles;
  static constexpr int kPitch = kRows + 4;  // floats per sample: avoids bank conflicts of a store
  static constexpr int kChunkWords = kPlanes * 2 * 32;  // uint4s per chunk of a slot
  // uint4s per chunk of a warp's weights
  static constexpr int kWeightWords = kPlanes * kTiles * 2 * 32;

  // vec8_of(row, vec8) returns the weights of a row at 8 places, a Vec8<T>. `kept` and
  // `streamed_weights` belong to this warp; each lane writes and reads only its own words.
  template <typename Vec8Of>
  __device__ void load_weights(int first_chunk, int chunks, const Vec8Of& vec8_of, uint4* kept,
                               int kept_chunks, uint4* streamed_weights) {
    kept_ = kept + lane();
    streamed_weights_ = streamed_weights + lane();
    kept_chunks_ = kept_chunks;
    chunks_ = chunks;
#pragma unroll
    for (int p = 0; p < kHeld; ++p) load_chunk(first_chunk + p, vec8_of, a_[p]);
    for (int p = kHeld; p < chunks; ++p) {
      Fragments a[kPlanes];
      load_chunk(first_chunk + p, vec8_of, a);
      uint4* to = is_kept(p) ? kept_at(p) : streamed_at(p);
#pragma unroll
      for (int i = 0; i < kPlanes * kTiles * 2; ++i) {
        const uint32_t* w = a[i / (2 * kTiles)].word[i % 2][i / 2 % kTiles];
        to[32 * i] = uint4{w[0], w[1], w[2], w[3]};
      }
    }
  }

  // The offset at which a lane reads a slot, from the share's first chunk on.
  static __device__ int lane_offset(int first_chunk) {
    return slot_index<kPlanes>(4 * first_chunk + (lane() & 3), 0, lane() >> 2);
  }

  // A panel of a slot, from the lane's first word on; `two`: it has samples in its second tile.
  struct Panel {
    const uint4* at;  // null if there is none
    bool two;
  };

  // Starts the first loads of a panel.
  __device__ void begin(const Panel& panel) {
#pragma unroll
    for (int r = 0; r < kRing; ++r) load(r, 0, panel.at);
#pragma unroll
    for (int r = 0; r < kRing; ++r) load_second(r, panel);
  }

  // Multiplies a panel whose loads have started, and starts those of the next panel, if there is
  // one. put(sums) receives the warp's partial sums. Returns whether some words had to be read
  // again.
  template <typename Put>
  __device__ bool finish(const Panel& panel, const Panel& next, const Put& put) {
    if (next.at != nullptr) {
      return panel.two ? multiply_all<2, true>(panel.at, next, put)
                       : multiply_all<1, true>(panel.at, next, put);
    }
    return panel.two ? multiply_all<2, false>(panel.at, next, put)
                     : multiply_all<1, false>(panel.at, next, put);
  }

 private:
  // Consecutive products into one accumulator wait for each other, so a single tile has two
  // accumulators. With several planes, the largest products have accumulators of their own, because
  // the tensor cores truncate a sum with every addition.
  static constexpr int kChains = kTiles == 1 || kPlanes > 1 ? 2 : 1;
  static constexpr int chain(int r, int i, int j) {
    return kPlanes > 1 ? int(i + j > 0) : r % kChains;
  }
  struct Fragments {
    uint32_t word[2][kTiles][4];  // of both halves of a chunk
  };

  static __device__ int lane() { return threadIdx.x & 31; }
  // Whether a chunk that is not in registers is kept in shared memory.
  __device__ bool is_kept(int p) const { return p - kHeld < kept_chunks_; }
  __device__ uint4* kept_at(int p) const { return kept_ + (p - kHeld) * kWeightWords; }
  __device__ uint4* streamed_at(int p) const {
    return streamed_weights_ + (p - kHeld - kept_chunks_) * kWeightWords;
  }

  template <typename Vec8Of>
  __device__ static void load_chunk(int chunk, const Vec8Of& vec8_of, Fragments (&a)[kPlanes]) {
    const int g = lane() >> 2, t = lane() & 3;
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const Vec8<T> vec8 = vec8_of(16 * m + 8 * half + g, 4 * chunk + t);
        if constexpr (kPlanes == 1) {  // the words are operands already
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            a[0].word[e / 2][m][e % 2 * 2 + half] = reinterpret_cast<const uint32_t*>(vec8.v)[e];
          }
        } else {
          float planes[8][kPlanes];
#pragma unroll
          for (int e = 0; e < 8; ++e) H::take_apart(float(vec8.v[e]), planes[e]);
#pragma unroll
          for (int i = 0; i < kPlanes * 4; ++i) {
            const int plane = i / 4, e = i % 4;
            a[plane].word[e / 2][m][e % 2 * 2 + half] =
                Pair<typename H::Operand>::pack(planes[2 * e][plane], planes[2 * e + 1][plane]);
          }
        }
      }
    }
  }

  // Loads the words of a tile of the chunk r chunks after `at` into slot r of the ring.
  __device__ void load(int r, int tile, const uint4* at) {
#pragma unroll
    for (int plane = 0; plane < kPlanes; ++plane) {
      b_[r][plane][tile] = load_handed(at + ((r * kPlanes + plane) * 2 + tile) * 32);
    }
  }
  __device__ void load_second(int r, const Panel& panel) {
    if (panel.two) return load(r, 1, panel.at);
#pragma unroll
    for (int plane = 0; plane < kPlanes; ++plane) b_[r][plane][1] = uint4{0, 0, 0, 0};
  }
  static __device__ uint32_t largest(const uint4& v) { return max(max(v.x, v.y), max(v.z, v.w)); }

  // Waits until the words of ring slots `first` to `last` have arrived: reads those that have not
  // again, and also those of the slots behind, of which the first `filled` have chunks from `at`
  // on. Returns whether there were any.
  __device__ bool await(int first, int last, int filled, const uint4* at) {
    for (bool again = false;; again = true) {
      uint32_t any = 0;  // absent words are the largest value
#pragma unroll
      for (int r = first; r <= last; ++r) {
        if (r >= filled) continue;
#pragma unroll
        for (int i = 0; i < 2 * kPlanes; ++i) any = max(any, largest(b_[r][i / 2][i % 2]));
      }
      if (!__any_sync(~0u, any == kAbsent)) return again;
#pragma unroll
      for (int r = first; r < kRing; ++r) {
#pragma unroll
        for (int i = 0; i < 2 * kPlanes; ++i) {
          uint4& v = b_[r][i / 2][i % 2];
          if (r < filled && largest(v) == kAbsent) v = load_handed(at + (r * kPlanes * 2 + i) * 32);
        }
      }
    }
  }

  template <int kSampleTiles, bool kAhead, typename Put>
  __device__ bool multiply_all(const uint4* at, const Panel& next, const Put& put) {
    float d[kChains][kSampleTiles][kTiles][4] = {};
    // Chunk p, or the first of the next panel, takes slot r of the ring.
    const auto load_next = [&](int r, int p) {
      if (p < chunks_) {
#pragma unroll
        for (int tile = 0; tile < kSampleTiles; ++tile) load(r, tile, at + (p - r) * kChunkWords);
      } else if (kAhead) {
        load(r, 0, next.at);
        load_second(r, next);
      }
    };
    const bool early = await(0, kRing - 1, kRing, at);
#pragma unroll
    for (int r = 0; r < kRing; ++r) {
      if (r < kHeld) {
#pragma unroll
        for (int i = 0; i < kPlanes; ++i) multiply<kSampleTiles>(a_[r][i], i, r, d);
      } else {
        multiply_fetched<kSampleTiles>(r, r, d);
      }
      load_next(r, r + kRing);
    }
    for (int base = kRing; base < chunks_; base += kRing) {
      // Small chunks are waited for together, because each wait costs about as much as multiplying
      // one.
      constexpr bool kTogether = kTiles == 1;
      const uint4* from = at + base * kChunkWords;
      if (kTogether) await(0, kRing - 1, chunks_ - base, from);
#pragma unroll
      for (int r = 0; r < kRing; ++r) {
        if (base + r >= chunks_) continue;
        if (!kTogether) await(r, r, chunks_ - base, from);
        multiply_fetched<kSampleTiles>(base + r, r, d);
        load_next(r, base + r + kRing);
      }
    }
    put([&](float* partial, bool adds) { this->put<kSampleTiles>(d, partial, adds); });
    return early;
  }

  // Whether planes i and j of the factors are multiplied; the omitted products are below 2^-25 of
  // the result.
  static constexpr bool counts(int i, int j) { return i + j < kPlanes; }

  // Multiplies plane i of the weights with those of the slot; consecutive products go to different
  // accumulators.
  template <int kSampleTiles>
  __device__ void multiply(const Fragments& a, int i, int r,
                           float (&d)[kChains][kSampleTiles][kTiles][4]) const {
#pragma unroll
    for (int j = 0; j < kPlanes; ++j) {
      if (!counts(i, j)) continue;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int tile = 0; tile < kSampleTiles; ++tile) {
          const uint4& b = b_[r][j][tile];
#pragma unroll
          for (int m = 0; m < kTiles; ++m) {
            mma_m16n8k16<typename H::Operand>(d[chain(r, i, j)][tile][m], a.word[half][m],
                                              half == 0 ? b.x : b.z, half == 0 ? b.y : b.w);
          }
        }
      }
    }
  }

  // Multiplies chunk p, whose weights are not in registers.
  template <int kSampleTiles>
  __device__ void multiply_fetched(int p, int r,
                                   float (&d)[kChains][kSampleTiles][kTiles][4]) const {
    const auto multiply_from = [&](auto load, const uint4* from) {
#pragma unroll
      for (int i = 0; i < kPlanes; ++i) {
        Fragments a;
#pragma unroll
        for (int m = 0; m < kTiles; ++m) {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const uint4 w = load(from + 32 * (2 * (kTiles * i + m) + half));
            a.word[half][m][0] = w.x;
            a.word[half][m][1] = w.y;
            a.word[half][m][2] = w.z;
            a.word[half][m][3] = w.w;
          }
        }
        multiply<kSampleTiles>(a, i, r, d);
      }
    };
    if (is_kept(p)) {
      multiply_from([](const uint4* at) { return load_shared(at); }, kept_at(p));
    } else {
      multiply_from([](const uint4* at) { return *at; }, streamed_at(p));
    }
  }
  static __device__ uint4 load_shared(const uint4* from) {
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(smem_address(from)));
    return v;
  }

  template <int kSampleTiles>
  __device__ static void put(const float (&d)[kChains][kSampleTiles][kTiles][4], float* partial,
                             bool adds) {
    float* at = partial + 2 * (lane() & 3) * kPitch + (lane() >> 2);
#pragma unroll
    for (int tile = 0; tile < kSampleTiles; ++tile) {
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          float& to = at[(8 * tile + (e & 1)) * kPitch + 16 * m + e / 2 * 8];
          float sum = adds ? to : 0.0f;
#pragma unroll
          for (int c = 0; c < kChains; ++c) sum += d[c][tile][m][e];
          to = sum;
        }
      }
    }
  }

  Fragments a_[kHeld][kPlanes];
  uint4 b_[kRing][kPlanes][2];
  uint4 *kept_, *streamed_weights_;
  int kept_chunks_, chunks_;
};

}  // namespace ridgeline::cuda::recurrent
