#pragma once

// Products of generated functions. All of them, forward, for gradients and for weights, have the
// form
//   y[row, column] = sum over k of a[row, k] * b[column, k]
// with operands whose rows are padded with zeros to whole chunks of k. Here operands go straight
// from memory into registers: in small networks a block uses an operand once or twice, and the
// second use hits L1. tiled_product.cuh has the products of large networks. A *unit* is 16 x 16
// results, of which lane 4g + t has rows 2g, 2g + 1 and columns 4t .. 4t + 3.

#include "ridgeline/cuda/generate/device/tile_order.cuh"

namespace ridgeline::generated {

// A lane's results of a unit.
template <typename Value>
struct Block {
  Value v[2][4];
};

// The shape of one warp's product: kMt x kNt units, with k in kChunks chunks that are split over
// kSplit warps, and kRing of them in flight. kShared: a is in shared memory and is not prefetched.
template <typename Math_, int kMt_, int kNt_, int kSplit_, int kRing_, int kChunks_, int kLda_,
          int kLdb_, bool kShared_, bool kRound_>
struct Shape {
  using Math = Math_;
  static constexpr int kMt = kMt_, kNt = kNt_, kSplit = kSplit_, kRing = kRing_, kChunks = kChunks_;
  static constexpr int kLda = kLda_, kLdb = kLdb_;
  static constexpr bool kShared = kShared_, kRound = kRound_;
  static constexpr int kGroups = kWarps / kSplit;
};

template <typename S>
class Product {
 public:
  using Math = typename S::Math;
  using Number = typename Math::Number;
  using Sum = typename Math::Sum;
  using Value = typename Math::Value;

  __device__ explicit Product(int lane) : g_(lane >> 2), t_(lane & 3) {}

  // `a` and `b` point to row 0 of the warp's tile. `part` of kSplit is this warp's share of k.
  __device__ void start_a(const Number* a, int part) {
    if constexpr (!S::kShared) {
#pragma unroll
      for (int r = 0; r < S::kRing; ++r) {
        if (r < kMost) load_a(a_[r], a, real_chunk(r, part));
      }
    }
  }
  __device__ void start_b(const Number* b, int part) {
#pragma unroll
    for (int r = 0; r < S::kRing; ++r) {
      if (r < kMost) load_b(b_[r], b, real_chunk(r, part));
    }
  }
  __device__ void forget_b() {
#pragma unroll
    for (int r = 0; r < S::kRing; ++r) {
#pragma unroll
      for (int n = 0; n < S::kNt; ++n) b_[r][n][0] = b_[r][n][1] = uint4{0, 0, 0, 0};
    }
  }
  // Called after start_a and start_b with the same arguments.
  __device__ void finish(const Number* a, const Number* b, int part) {
#pragma unroll
    for (int m = 0; m < S::kMt; ++m) {
#pragma unroll
      for (int n = 0; n < 2 * S::kNt; ++n) {
#pragma unroll
        for (int i = 0; i < 4 * kSets; ++i) d_[i / 4][m][n][i % 4] = Sum(0);
      }
    }
    if constexpr (kMost <= 2 * S::kRing) {
#pragma unroll
      for (int i0 = 0; i0 < kMost; i0 += S::kRing) iterate(i0, a, b, part);
    } else {
#pragma unroll 1
      for (int i0 = 0; i0 < kMost; i0 += S::kRing) iterate(i0, a, b, part);
    }
  }
  __device__ Block<Value> block(int m, int n) const {
    Block<Value> out;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int at = 2 * n + (c >> 1), i = 2 * r + (c & 1);
        out.v[r][c] =
            Value(kSets == 1 ? d_[0][m][at][i] : d_[0][m][at][i] + d_[kSets - 1][m][at][i]);
      }
    }
    return out;
  }

 private:
  static constexpr int kMost = (S::kChunks + S::kSplit - 1) / S::kSplit;  // chunks per warp
  static constexpr int kLane = 16 / int(sizeof(Number));
  // Chunks alternate between two sets, so that one need not wait for the other.
  static constexpr int kSets = S::kMt * S::kNt == 1 && kMost > 1 && S::kRing > 1 ? 2 : 1;

  static __device__ int chunk(int i, int part) { return part + i * S::kSplit; }
  // Past the end, a valid chunk is fetched and not used. Conditional loads would leave registers
  // partly defined, and the compiler would reserve such registers through the whole function.
  static __device__ int real_chunk(int i, int part) {
    const int c = chunk(i, part);
    return S::kChunks % S::kSplit == 0 || c < S::kChunks ? c : S::kChunks - 1;
  }
  __device__ void load_a(uint4 (&to)[S::kMt][2], const Number* a, int chunk) const {
    const Number* at = a + 2 * g_ * S::kLda + chunk * Math::kChunk + t_ * kLane;
#pragma unroll
    for (int m = 0; m < S::kMt; ++m) {
      to[m][0] = *reinterpret_cast<const uint4*>(at + 16 * m * S::kLda);
      to[m][1] = *reinterpret_cast<const uint4*>(at + (16 * m + 1) * S::kLda);
    }
  }
  __device__ void load_b(uint4 (&to)[S::kNt][2], const Number* b, int chunk) const {
    const Number* at = b + (4 * (g_ >> 1) + (g_ & 1)) * S::kLdb + chunk * Math::kChunk + t_ * kLane;
#pragma unroll
    for (int n = 0; n < S::kNt; ++n) {
      to[n][0] = *reinterpret_cast<const uint4*>(at + 16 * n * S::kLdb);
      to[n][1] = *reinterpret_cast<const uint4*>(at + (16 * n + 2) * S::kLdb);
    }
  }

  // Multiplies chunks i0 .. i0 + kRing - 1 and fetches the chunks that replace them.
  __device__ void iterate(int i0, const Number* a, const Number* b, int part) {
#pragma unroll
    for (int r = 0; r < S::kRing; ++r) {
      const int i = i0 + r, c = chunk(i, part);
      if (i < kMost && (S::kChunks % S::kSplit == 0 || c < S::kChunks)) {
        if constexpr (S::kShared) load_a(a_[0], a, c);
        uint4(&x)[S::kMt][2] = a_[S::kShared ? 0 : r];
        multiply_units<Math, S::kRound, S::kMt, S::kNt>(d_[r % kSets], x, b_[r]);
      }
      if (i + S::kRing < kMost) {
        if constexpr (!S::kShared) load_a(a_[r], a, real_chunk(i + S::kRing, part));
        load_b(b_[r], b, real_chunk(i + S::kRing, part));
      }
    }
  }

  int g_, t_;
  uint4 a_[S::kShared ? 1 : S::kRing][S::kMt][2];
  uint4 b_[S::kRing][S::kNt][2];
  Sum d_[kSets][S::kMt][2 * S::kNt][4];
};

// Sums of the warps of a group, added in the order of their shares. The warp with `part` 0 receives
// all units.
template <typename S>
class Reduction {
 public:
  using Value = typename S::Math::Value;
  static constexpr int kUnits = S::kMt * S::kNt;
  static constexpr int kBytes =
      S::kSplit == 1 ? 0 : kWarps * kUnits * 2 * 32 * 4 * int(sizeof(Value));

  __device__ Reduction(void* scratch, int lane, int warp)
      : scratch_(static_cast<Four*>(scratch) + warp * kUnits * 64 + lane) {}

  __device__ void put(int m, int n, const Block<Value>& block) {
    Four* to = scratch_ + (m * S::kNt + n) * 64;
#pragma unroll
    for (int r = 0; r < 2; ++r)
      to[32 * r] = {{block.v[r][0], block.v[r][1], block.v[r][2], block.v[r][3]}};
  }
  // Called after a block barrier by the group's first warp.
  __device__ Block<Value> get(int m, int n) const {
    Block<Value> sum{};
#pragma unroll
    for (int s = 0; s < S::kSplit; ++s) {
      const Four* from = scratch_ + (s * kUnits + m * S::kNt + n) * 64;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const Four part = from[32 * r];
#pragma unroll
        for (int c = 0; c < 4; ++c) sum.v[r][c] += part.v[c];
      }
    }
    return sum;
  }

 private:
  struct alignas(16) Four {
    Value v[4];
  };
  Four* scratch_;
};

// An epilogue E has
//   State            what is fetched while the product is computed
//   kUnits           how many units' states a warp that multiplies may hold at a time, and
//   kAhead           how many a warp with nothing else in its registers may hold
//   kRowEnd, kColumnEnd   where results end, in whole units; units past them are not passed on
//   prepare(row, column) -> State, and take(row, column, block, state), for the lane's first row
//   and column.

// Passes the results of a warp group's product to the epilogue; the group's first warp does this.
// With kSplit > 1 all warps of the block must call this together.
template <typename S, typename E>
__device__ inline void hand_over(Product<S>& product, int part, int row, int column, void* scratch,
                                 const E& e, typename E::State (&states)[S::kMt][S::kNt]) {
  const int thread = thread_of(), lane = thread & 31;
  const int r = row + 2 * (lane >> 2), c = column + 4 * (lane & 3);
  Reduction<S> reduction(scratch, lane, thread >> 5);
  if constexpr (S::kSplit > 1) {
#pragma unroll
    for (int m = 0; m < S::kMt; ++m) {
#pragma unroll
      for (int n = 0; n < S::kNt; ++n) reduction.put(m, n, product.block(m, n));
    }
    __syncthreads();
    if (part != 0) return;
  }
#pragma unroll
  for (int m = 0; m < S::kMt; ++m) {
#pragma unroll
    for (int n = 0; n < S::kNt; ++n) {
      if (row + 16 * m >= E::kRowEnd || column + 16 * n >= E::kColumnEnd) continue;
      if constexpr (S::kMt * S::kNt > E::kUnits) states[m][n] = e.prepare(r + 16 * m, c + 16 * n);
      if constexpr (S::kSplit > 1) {
        e.take(r + 16 * m, c + 16 * n, reduction.get(m, n), states[m][n]);
      } else {
        e.take(r + 16 * m, c + 16 * n, product.block(m, n), states[m][n]);
      }
    }
  }
}
template <typename S, typename E>
__device__ inline void prepare(int part, int row, int column, const E& e,
                               typename E::State (&states)[S::kMt][S::kNt]) {
  if constexpr (S::kMt * S::kNt <= E::kUnits) {
    const bool wanted = S::kSplit == 1 || part == 0;
    const int lane = lane_of(), r = row + 2 * (lane >> 2), c = column + 4 * (lane & 3);
#pragma unroll
    for (int m = 0; m < S::kMt; ++m) {
#pragma unroll
      for (int n = 0; n < S::kNt; ++n) {
        states[m][n] = {};
        if (!wanted || row + 16 * m >= E::kRowEnd || column + 16 * n >= E::kColumnEnd) continue;
        states[m][n] = e.prepare(r + 16 * m, c + 16 * n);
      }
    }
  }
}

// One block computes all columns of one strip of 16 * kMt rows. prefetch() fetches the first part
// of b and the epilogue's state; both must already be in memory. run() does the rest.
template <typename S, int kColumnUnits, typename E>
class Strip {
 public:
  using Number = typename S::Math::Number;
  static constexpr int kTiles = (kColumnUnits + S::kNt - 1) / S::kNt;
  static_assert(S::kSplit == 1 || kTiles <= S::kGroups, "shares of k are added in one pass");

  __device__ Strip() : warp_(warp_of()), product_(lane_of()) {}
  // `first_row`: in the batch, for the epilogue.
  __device__ void prefetch(const Number* b, int first_row, const E& e) {
    const int tile = group() < kTiles ? group() : kTiles - 1;
    product_.start_b(rows(b, tile), part());
    prepare<S>(part(), first_row, 16 * S::kNt * tile, e, states_);
  }
  // Called instead of prefetch() if run() will not be called: a value that is undefined on some
  // path to its use would occupy registers on all paths.
  __device__ void forget() {
    product_.forget_b();
#pragma unroll
    for (int m = 0; m < S::kMt; ++m) {
#pragma unroll
      for (int n = 0; n < S::kNt; ++n) states_[m][n] = {};
    }
  }
  // `a` begins at first_row.
  __device__ void run(const Number* a, const Number* b, int first_row, void* scratch, const E& e) {
    if constexpr (S::kSplit > 1) {
      const bool real = group() < kTiles;
      if (real) {
        product_.start_a(a, part());
        product_.finish(a, rows(b, group()), part());
        hand_over<S>(product_, part(), first_row, 16 * S::kNt * group(), scratch, e, states_);
      } else {
        __syncthreads();
      }
    } else {
      for (int tile = group(); tile < kTiles; tile += S::kGroups) {
        const int column = 16 * S::kNt * tile;
        product_.start_a(a, 0);
        product_.finish(a, rows(b, tile), 0);
        typename E::State now[S::kMt][S::kNt];
#pragma unroll
        for (int i = 0; i < S::kMt * S::kNt; ++i)
          now[i / S::kNt][i % S::kNt] = states_[i / S::kNt][i % S::kNt];
        // Loads for the next tile take as long as storing these results.
        if (tile + S::kGroups < kTiles) {
          product_.start_b(rows(b, tile + S::kGroups), 0);
          prepare<S>(0, first_row, column + 16 * S::kNt * S::kGroups, e, states_);
        }
        hand_over<S>(product_, 0, first_row, column, scratch, e, now);
      }
    }
  }

 private:
  __device__ int group() const { return warp_ / S::kSplit; }
  __device__ int part() const { return warp_ % S::kSplit; }
  static __device__ const Number* rows(const Number* b, int tile) {
    return b + 16 * S::kNt * tile * S::kLdb;
  }

  int warp_;
  Product<S> product_;
  typename E::State states_[S::kMt][S::kNt];
};

// Splits a product over the grid into tiles of kDown x (kGroups / kDown) groups, and each tile into
// kParts equal parts of k; S describes one part.
template <typename S, int kRowUnits, int kColumnUnits, int kDown, int kParts = 1>
class Grid {
 public:
  using Number = typename S::Math::Number;
  static constexpr int kAcross = S::kGroups / kDown;
  static constexpr int kRowTiles = (kRowUnits + S::kMt * kDown - 1) / (S::kMt * kDown);
  static constexpr int kColumnTiles = (kColumnUnits + S::kNt * kAcross - 1) / (S::kNt * kAcross);
  static constexpr int kTiles = kRowTiles * kColumnTiles * kParts;

  // Computes tiles `first`, `first + stride`, and so on.
  template <typename E>
  static __device__ void run(const Number* a, const Number* b, int first, int stride, void* scratch,
                             E e) {
    Turns turns(first, stride);
    run(a, b, turns, scratch, e);
  }
  template <typename Order, typename E>
  static __device__ void run(const Number* a, const Number* b, Order& order, void* scratch, E e) {
    const int warp = warp_of(), group = warp / S::kSplit, part = warp % S::kSplit;
    bool again = false;
#pragma unroll 1
    for (int task = order.tile(); task < kTiles; task = order.tile()) {
      const int drawn = order.draw();
      const int tile = task / kParts;
      const int row = 16 * S::kMt * (tile / kColumnTiles * kDown + group / kAcross);
      const int column = 16 * S::kNt * (tile % kColumnTiles * kAcross + group % kAcross);
      const int k = task % kParts * S::kChunks * S::Math::kChunk;
      if constexpr (kParts > 1) e.part = task % kParts;
      const bool real = row < 16 * kRowUnits && column < 16 * kColumnUnits;
      if (real) {
        typename E::State states[S::kMt][S::kNt];
        Product<S> product(lane_of());
        const Number *at = a + i64(row) * S::kLda + k, *bt = b + i64(column) * S::kLdb + k;
        product.start_a(at, part);
        product.start_b(bt, part);
        prepare<S>(part, row, column, e, states);
        product.finish(at, bt, part);
        if (S::kSplit > 1 && again)
          __syncthreads();  // the sums of the previous tile have been read
        hand_over<S>(product, part, row, column, scratch, e, states);
      } else if constexpr (S::kSplit > 1) {  // joins the barriers of the other warps
        if (again) __syncthreads();
        __syncthreads();
      }
      again = true;
      order.put(drawn);
      if constexpr (Order::kNeedsBarrier) __syncthreads();
      order.next();
    }
    order.pass(kTiles);
  }
};

}  // namespace ridgeline::generated
