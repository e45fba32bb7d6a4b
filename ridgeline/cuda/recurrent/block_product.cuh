#pragma once

#include "ridgeline/cuda/recurrent/exchange.cuh"

namespace ridgeline::cuda::recurrent {

// partial[item][row] of a warp = its share of the block's weights . a panel's slot. A share is so
// many pieces of 32 places; where the extent has fewer, weights and slot are zero. The weights of
// the first kPieces stay in registers, those of the next in shared memory, those of the rest come
// from L2. What of the slot has not come is asked for again; kPieces pieces are on their way at a
// time.
template <typename T, int kPieces, int kTiles>
class BlockProduct {
 public:
  using H = Handed<T>;
  static constexpr int kPlanes = H::kPlanes;
  static constexpr int kRows = 16 * kTiles;
  static constexpr int kPitch = kRows + 4;  // floats an item: lanes of a store miss each other
  static constexpr int kPieceWords = kPlanes * 2 * 32;            // uint4s of a slot
  static constexpr int kWeightWords = kPlanes * kTiles * 2 * 32;  // uint4s of a warp's piece

  // octet_of(row, octet, values) gives the weights of a row at 8 places, or leaves zeros. `kept`
  // and `streamed` are this warp's; each lane writes and reads its own words only.
  template <typename OctetOf>
  __device__ void load_weights(int first_piece, int pieces, const OctetOf& octet_of, uint4* kept,
                               int kept_pieces, uint4* streamed) {
    kept_ = kept + lane();
    streamed_ = streamed + lane();
    kept_pieces_ = kept_pieces;
    pieces_ = pieces;
#pragma unroll
    for (int p = 0; p < kPieces; ++p) load_piece(first_piece + p, octet_of, a_[p]);
    for (int p = kPieces; p < pieces; ++p) {
      Fragments a[kPlanes];
      load_piece(first_piece + p, octet_of, a);
      uint4* to = more(p);
#pragma unroll
      for (int i = 0; i < kPlanes * kTiles * 2; ++i) {
        const uint32_t* w = a[i / (2 * kTiles)].word[i % 2][i / 2 % kTiles];
        to[32 * i] = uint4{w[0], w[1], w[2], w[3]};
      }
    }
  }

  // Where a lane reads a slot, from the share's first piece on.
  static __device__ int lane_offset(int first_piece) {
    return slot_index<kPlanes>(4 * first_piece + (lane() & 3), 0, lane() >> 2);
  }

  // Starts the first loads of a slot; `two`: it has items in its second tile.
  __device__ void begin(const uint4* at, bool two) {
#pragma unroll
    for (int r = 0; r < kPieces; ++r) load(r, 0, at);
#pragma unroll
    for (int r = 0; r < kPieces; ++r) {
      if (two) {
        load(r, 1, at);
      } else {
#pragma unroll
        for (int plane = 0; plane < kPlanes; ++plane) b_[r][plane][1] = uint4{0, 0, 0, 0};
      }
    }
  }

  __device__ void finish(const uint4* at, bool two, float* partial) {
    await(at);
    if (two) {
      multiply_all<2>(at, partial);
    } else {
      multiply_all<1>(at, partial);
    }
  }

 private:
  // A chain of products waits for itself, so a single tile has two. Of planes the largest products
  // have sums of their own: the tensor cores cut a sum off with every addition.
  static constexpr int kChains = kTiles == 1 || kPlanes > 1 ? 2 : 1;
  static constexpr int chain(int r, int i, int j) {
    return kPlanes > 1 ? int(i + j > 0) : r % kChains;
  }
  struct Fragments {
    uint32_t word[2][kTiles][4];  // of both halves of a piece
  };

  static __device__ int lane() { return threadIdx.x & 31; }
  __device__ uint4* more(int p) const {
    p -= kPieces;
    return p < kept_pieces_ ? kept_ + p * kWeightWords
                            : streamed_ + (p - kept_pieces_) * kWeightWords;
  }

  template <typename OctetOf>
  __device__ static void load_piece(int piece, const OctetOf& octet_of, Fragments (&a)[kPlanes]) {
    const int g = lane() >> 2, t = lane() & 3;
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float values[8] = {};
        octet_of(16 * m + 8 * half + g, 4 * piece + t, values);
        float planes[8][kPlanes];
#pragma unroll
        for (int e = 0; e < 8; ++e) H::take_apart(values[e], planes[e]);
#pragma unroll
        for (int plane = 0; plane < kPlanes; ++plane) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            a[plane].word[e / 2][m][e % 2 * 2 + half] =
                Pair<typename H::Operand>::pack(planes[2 * e][plane], planes[2 * e + 1][plane]);
          }
        }
      }
    }
  }

  // The words of a tile of the piece that `at` points to, r pieces on, into the ring's place r.
  __device__ void load(int r, int tile, const uint4* at) {
#pragma unroll
    for (int plane = 0; plane < kPlanes; ++plane) {
      b_[r][plane][tile] = load_handed(at + ((r * kPlanes + plane) * 2 + tile) * 32);
    }
  }
  // Until all words of the ring are here: asks again for those that are not.
  __device__ void await(const uint4* at) {
    while (true) {
      uint32_t last[kPieces][kPlanes][2], any = 0;  // absent words are the largest
#pragma unroll
      for (int r = 0; r < kPieces; ++r) {
#pragma unroll
        for (int i = 0; i < 2 * kPlanes; ++i) {
          const uint4& v = b_[r][i / 2][i % 2];
          last[r][i / 2][i % 2] = max(max(v.x, v.y), max(v.z, v.w));
          any = max(any, last[r][i / 2][i % 2]);
        }
      }
      if (!__any_sync(~0u, any == kAbsent)) return;
#pragma unroll
      for (int r = 0; r < kPieces; ++r) {
#pragma unroll
        for (int i = 0; i < 2 * kPlanes; ++i) {
          if (last[r][i / 2][i % 2] != kAbsent) continue;
          b_[r][i / 2][i % 2] = load_handed(at + (r * kPlanes * 2 + i) * 32);
        }
      }
    }
  }

  template <int kItemTiles>
  __device__ void multiply_all(const uint4* at, float* partial) {
    float d[kChains][kItemTiles][kTiles][4] = {};
    const auto load_next = [&](int r, int p) {
      if (p >= pieces_) return;
#pragma unroll
      for (int tile = 0; tile < kItemTiles; ++tile) load(r, tile, at + (p - r) * kPieceWords);
    };
#pragma unroll
    for (int r = 0; r < kPieces; ++r) {
#pragma unroll
      for (int i = 0; i < kPlanes; ++i) multiply<kItemTiles>(a_[r][i], i, r, d);
      load_next(r, r + kPieces);
    }
    for (int base = kPieces; base < pieces_; base += kPieces) {
      await(at + base * kPieceWords);
#pragma unroll
      for (int r = 0; r < kPieces; ++r) {
        if (base + r >= pieces_) continue;
#pragma unroll
        for (int i = 0; i < kPlanes; ++i) {
          Fragments a;
          fetch(base + r, i, a);
          multiply<kItemTiles>(a, i, r, d);
        }
        load_next(r, base + r + kPieces);
      }
    }
    put<kItemTiles>(d, partial);
  }

  // Whether planes i and j of the factors are multiplied: what is left out is below 2^-25 of the
  // product.
  static constexpr bool counts(int i, int j) { return i + j < kPlanes; }

  // Plane i of the weights with those of the slot; products that follow each other are of different
  // sums.
  template <int kItemTiles>
  __device__ void multiply(const Fragments& a, int i, int r,
                           float (&d)[kChains][kItemTiles][kTiles][4]) const {
#pragma unroll
    for (int j = 0; j < kPlanes; ++j) {
      if (!counts(i, j)) continue;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int tile = 0; tile < kItemTiles; ++tile) {
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

  // Plane i of the weights of a piece that is not in registers.
  __device__ void fetch(int p, int i, Fragments& a) const {
    const uint4* from = more(p) + 32 * (2 * kTiles * i);
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint4 w = from[32 * (2 * m + half)];
        a.word[half][m][0] = w.x;
        a.word[half][m][1] = w.y;
        a.word[half][m][2] = w.z;
        a.word[half][m][3] = w.w;
      }
    }
  }

  template <int kItemTiles>
  __device__ static void put(const float (&d)[kChains][kItemTiles][kTiles][4], float* partial) {
    float* at = partial + 2 * (lane() & 3) * kPitch + (lane() >> 2);
#pragma unroll
    for (int tile = 0; tile < kItemTiles; ++tile) {
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          float sum = d[0][tile][m][e];
#pragma unroll
          for (int c = 1; c < kChains; ++c) sum += d[c][tile][m][e];
          at[(8 * tile + (e & 1)) * kPitch + 16 * m + e / 2 * 8] = sum;
        }
      }
    }
  }

  Fragments a_[kPieces][kPlanes];
  uint4 b_[kPieces][kPlanes][2];
  uint4 *kept_, *streamed_;
  int kept_pieces_, pieces_;
};

}  // namespace ridgeline::cuda::recurrent
