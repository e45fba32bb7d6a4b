#pragma once

#include "ridgeline/cuda/device/cluster.cuh"
#include "ridgeline/cuda/recurrent/pass.cuh"

namespace ridgeline::cuda::recurrent {

template <typename T>
struct PersistentBackwardParams {
  PersistentBackward<T> args;
  PassShape shape;
};

// dh[units] = w_hh^T . gate gradients: the inner extent is as many times longer as there are gates.
// A cluster shares it out: each block multiplies its part of it for the units of all of them, and
// sends each the sums of its own units.
template <typename T, Cell kCell, int kCluster, int kRowTiles, int kPieces, int kOwn>
class BackwardPass {
 public:
  using Product = BlockProduct<T, kPieces, kRowTiles>;
  using Math = typename Handed<T>::Math;
  static constexpr int kGates = cell_gates(kCell), kSaved = cell_saved(kCell);
  static constexpr int kVectors = cell_vectors(kCell);
  static constexpr int kWarpFloats = kPanelItems * Product::kPitch;
  static constexpr int kUnits = Product::kRows / kCluster;           // of a block, in a cluster
  static constexpr int kReceived = kCluster * kPanelItems * kUnits;  // floats a panel
  enum { kDh, kDc, kLength, kStates };                               // of a ThreadState

  __device__ BackwardPass(const PersistentBackwardParams<T>& p, float* shared)
      : args_(p.args),
        at_(p.shape, p.args.sequence, p.args.first_item, p.args.items),
        partials_(shared),
        state_(shared + p.shape.buffers * kWarps * kWarpFloats) {
    exchange_ = args_.exchange + at_.group * p.shape.step_words * at_.s.steps;
    rank_ = at_.tile % kCluster;
    unit_octets_ = (hidden() + 7) / 8;
#pragma unroll
    for (int gate = 0; gate < kGates; ++gate) {
      handed_[gate] = place_offset<Handed<T>::kPlanes>(8 * gate * unit_octets_ + at_.unit);
    }
    float* behind = partials_ + p.shape.buffers * kWarps * kWarpFloats +
                    at_.group_panels() * kOwn * kStates * kThreads;
    received_ = behind;
    if (kCluster > 1) behind += p.shape.ring * kReceived;
    barriers_ = reinterpret_cast<ByteBarrier*>(behind);
    if (kCluster > 1) behind += (p.shape.ring + 1) / 2 * 4;  // 8 bytes each, in sixteens
    kept_ = reinterpret_cast<uint4*>(behind);
  }

  __device__ void run() {
    if (at_.items <= 0)
      return;  // all of a cluster: the last launch of several may have fewer groups
    if constexpr (kCluster > 1) start_cluster();
    const PassShape& shape = at_.shape;
    const int first_piece = (rank_ * kWarps + at_.slice()) * shape.warp_pieces;
    Product product;
    product.load_weights(
        first_piece, shape.warp_pieces,
        [this](int row, int octet, float(&v)[8]) { weights(row, octet, v); },
        at_.kept(kept_, Product::kWeightWords), shape.kept_pieces,
        at_.streamed(args_.streamed, Product::kWeightWords));
    load_states();
    // A turn's gradients are handed over, multiplied a round later, and their sums gathered.
    Turn made = first_turn(), multiplied = made, gathered = made;
    fetch(made);
    for (int panel = 0; panel < at_.panels; ++panel) differentiate(made);
    const int turns = at_.panels * (at_.s.steps - (args_.dh0 == nullptr ? 1 : 0));
    // With several panels the sums of one are on their way in the cluster while the next is
    // multiplied; with more than two also the next gradients come meanwhile.
    const int lag = kCluster > 1 && at_.panels > 1 ? 1 : 0;
    const bool ahead = at_.panels > 1 + lag;
    const int lane = Product::lane_offset(first_piece);
    const auto begin = [&](const Turn& turn) {
      product.begin(turn.slot + lane, at_.two_tiles(turn.panel));
    };
    if (turns > 0) begin(multiplied);
    for (int turn = 0; turn < turns + lag; ++turn) {
      float* partial = partials_ + (shape.buffers == 2 ? turn & 1 : 0) * kWarps * kWarpFloats;
      const bool more = turn + 1 < turns;
      if (turn < turns) {
        product.finish(multiplied.slot + lane, at_.two_tiles(multiplied.panel),
                       partial + at_.warp * kWarpFloats);
        const Turn sent = multiplied;
        advance(multiplied);
        if (ahead && more) begin(multiplied);
        __syncthreads();
        if constexpr (kCluster > 1) send_sums(sent, partial);
      }
      if (turn >= lag) {
        gather_sums(gathered, partial);
        if (kCluster == 1 && shape.buffers == 1) __syncthreads();
        if (made.step >= 0) differentiate(made);
      }
      if (kCluster > 1 && shape.buffers == 1 && turn < turns) __syncthreads();
      if (!ahead && more) {
        if (at_.panels == 1 && shape.pause > 0) wait_cycles(shape.pause);
        begin(multiplied);
      }
    }
    store_states();
    if constexpr (kCluster > 1) cluster_sync();  // no block leaves while others send to it
  }

 private:
  static constexpr int kLoads = kSaved == 0 ? 2 : kSaved + 2;  // saved (or y), before, dy

  __device__ int hidden() const { return at_.s.hidden; }

  // A panel at a step, and the place of its sums in the ring of what the cluster sends.
  struct Turn {
    uint4* slot;
    int step, panel, place;
    uint32_t parity;
  };
  __device__ Turn first_turn() const { return {exchange_, at_.s.steps - 1, 0, 0, 0}; }
  __device__ void advance(Turn& turn) const {
    turn.slot += at_.shape.panel_words;
    if (++turn.panel == at_.panels) {
      turn.panel = 0;
      --turn.step;
      turn.slot += at_.shape.step_words - at_.panels * at_.shape.panel_words;
    }
    if (kCluster > 1 && ++turn.place == at_.shape.ring) {
      turn.place = 0;
      turn.parity ^= 1;
    }
  }

  __device__ void start_cluster() {
    if (threadIdx.x == 0) {
      for (int i = 0; i < at_.shape.ring; ++i) {
        barriers_[i].init();
        barriers_[i].expect(kReceived * sizeof(float));
      }
    }
    cluster_sync();
  }

  // Place k of the inner extent is gate k / (8 * unit_octets), unit k % (8 * unit_octets).
  __device__ void weights(int row, int octet, float (&v)[8]) const {
    const int unit =
        kCluster > 1 ? (at_.tile - rank_) * kUnits + row : at_.tile * at_.shape.units + row;
    if (unit >= hidden() || (kCluster == 1 && row >= at_.shape.units)) return;
    const int gate = octet / unit_octets_, from = octet % unit_octets_ * 8;
    if (gate >= kGates) return;
    const T* w = args_.w_hh + (int64_t(gate) * hidden() + from) * hidden() + unit;
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      if (from + e < hidden()) v[e] = float(w[int64_t(e) * hidden()]);
    }
  }

  __device__ void load_states() {
    for (int panel = 0; panel < at_.panels; ++panel) {
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        const bool there = at_.has(panel, i);
        const int64_t at = there ? int64_t(at_.item(panel, i)) * hidden() + at_.unit : 0;
        state_.at(panel, i, kDh) = there && args_.dhT != nullptr ? float(args_.dhT[at]) : 0.0f;
        state_.at(panel, i, kDc) = there && args_.dcT != nullptr ? float(args_.dcT[at]) : 0.0f;
        state_.at(panel, i, kLength) = __int_as_float(there ? at_.s.length(at_.item(panel, i)) : 0);
      }
    }
  }
  __device__ int length(int panel, int i) const {
    return __float_as_int(state_.at(panel, i, kLength));
  }

  // Where the thread's i-th item has a step: row of [B, T, D].
  __device__ int place(int step, int panel, int i, int length) const {
    const int row = at_.first_row(i) + panel * at_.panel_rows() + at_.s.time(step, length);
    return row * at_.s.directions + at_.s.direction;
  }

  // What a turn needs from the way forward, on its way while sums are waited for.
  __device__ void fetch(const Turn& turn) {
    const int step = turn.step, panel = turn.panel, H = hidden();
    if (step < 0) return;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int of_item = length(panel, i);  // 0 where there is none
      if (step >= of_item) continue;
      const int at = place(step, panel, i, of_item);
      loads_[i][kLoads - 1] = float(args_.dy[int64_t(at) * H + at_.unit]);
      if constexpr (kSaved == 0) {
        loads_[i][0] = float(args_.y[int64_t(at) * H + at_.unit]);
      } else {
        const T* reserve = args_.reserve + int64_t(at) * (kSaved * H) + at_.unit;
#pragma unroll
        for (int v = 0; v < kSaved; ++v) loads_[i][v] = float(reserve[v * H]);
        loads_[i][kSaved] = before(step, panel, i, of_item);
      }
    }
  }

  // c of the step before for lstm, h for gru.
  __device__ float before(int step, int panel, int i, int length) const {
    const int H = hidden();
    if (step > 0) {
      const int at = place(step - 1, panel, i, length);
      return kCell == Cell::lstm ? float(args_.reserve[(int64_t(at) * kSaved + 4) * H + at_.unit])
                                 : float(args_.y[int64_t(at) * H + at_.unit]);
    }
    const T* first = kCell == Cell::lstm ? args_.c0 : args_.h0;
    return first != nullptr ? float(first[int64_t(at_.item(panel, i)) * H + at_.unit]) : 0.0f;
  }
  // With several panels a turn is shorter than the way from memory: what the same panel needs two
  // steps on.
  __device__ void prefetch(int step, int panel) const {
    const int H = hidden();
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int of_item = length(panel, i);
      if (step < 0 || step >= of_item) continue;
      const int at = place(step, panel, i, of_item);
      prefetch_l2(args_.dy + int64_t(at) * H + at_.unit);
      if (kSaved == 0 || kCell == Cell::gru) prefetch_l2(args_.y + int64_t(at) * H + at_.unit);
#pragma unroll
      for (int v = 0; v < kSaved; ++v) {
        prefetch_l2(args_.reserve + int64_t(at) * (kSaved * H) + v * H + at_.unit);
      }
    }
  }

  // The gate gradients of a turn, handed over and stored. The state's dh becomes what goes to the
  // step before directly. The turn advances.
  __device__ void differentiate(Turn& turn) {
    const int step = turn.step, panel = turn.panel;
    uint4* to = turn.slot;
    float gradients[kOwn][4];
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
#pragma unroll
      for (int v = 0; v < 4; ++v) gradients[i][v] = 0.0f;
      const bool has = at_.has(panel, i);
      if (has && step < length(panel, i)) unit_gradients(panel, i, gradients[i]);
#pragma unroll
      for (int gate = 0; gate < kGates; ++gate) {
        const float mine = gradients[i][hidden_vector(kCell, gate)];
        const float other = __shfl_down_sync(~0u, mine, 1);
        if (has && at_.unit % 2 == 0) {
          hand_over<T>(to, handed_[gate] + item_offset(at_.in_panel(i)), mine, other);
        }
      }
    }
    advance(turn);
    fetch(turn);
    if (at_.panels > 1) prefetch(step - 2, panel);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      if (at_.has(panel, i)) store_gradients(step, panel, i, gradients[i]);
    }
  }

  __device__ void unit_gradients(int panel, int i, float (&gradients)[4]) {
    UnitSaved<float> saved{};
    if constexpr (kSaved == 0) {
      saved.y = loads_[i][0];
    } else {
#pragma unroll
      for (int v = 0; v < kSaved; ++v) saved.gates[v] = loads_[i][v];
      saved.before = loads_[i][kSaved];
    }
    float dc = state_.at(panel, i, kDc);
    const float dh = state_.at(panel, i, kDh) + loads_[i][kLoads - 1];
    state_.at(panel, i, kDh) = unit_grad<kCell, Math>(saved, dh, dc, gradients);
    state_.at(panel, i, kDc) = dc;
  }

  __device__ void store_gradients(int step, int panel, int i, const float (&gradients)[4]) const {
    T* to = args_.gate_gradients +
            int64_t(place(step, panel, i, length(panel, i))) * (kVectors * hidden()) + at_.unit;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) to[v * hidden()] = T(gradients[v]);
  }

  // The state's dh += the product's sums of the thread's items. The turn advances.
  __device__ void gather_sums(Turn& turn, const float* partial) {
    const int panel = turn.panel;
    const float* received = received_ + turn.place * kReceived;
    if constexpr (kCluster > 1) {
      barriers_[turn.place].wait(turn.parity);
      if (threadIdx.x == 0) barriers_[turn.place].expect(kReceived * sizeof(float));
    }
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      if (!at_.has(panel, i)) continue;
      float sum = state_.at(panel, i, kDh);
      if constexpr (kCluster == 1) {
        const float* at = partial + at_.in_panel(i) * Product::kPitch + at_.unit_in_block;
        float of_warp[kWarps];
#pragma unroll
        for (int warp = 0; warp < kWarps; ++warp) of_warp[warp] = at[warp * kWarpFloats];
        sum += ((of_warp[0] + of_warp[1]) + (of_warp[2] + of_warp[3])) +
               ((of_warp[4] + of_warp[5]) + (of_warp[6] + of_warp[7]));
      } else {
        const float* at = received + at_.in_panel(i) * kUnits + at_.unit_in_block;
#pragma unroll
        for (int from = 0; from < kCluster; ++from) sum += at[from * kPanelItems * kUnits];
      }
      state_.at(panel, i, kDh) = sum;
    }
    advance(turn);
  }

  // Four units of an item at a time, to the block that has them.
  __device__ void send_sums(const Turn& turn, const float* partial) const {
    constexpr int kQuads = Product::kRows / 4;  // of an item
    for (int task = threadIdx.x; task < kPanelItems * kQuads; task += kThreads) {
      const int n = task / kQuads, quad = task % kQuads;
      const float* at = partial + n * Product::kPitch + 4 * quad;
      float4 sum = {};
#pragma unroll
      for (int warp = 0; warp < kWarps; ++warp) {
        const float4 v = *reinterpret_cast<const float4*>(at + warp * kWarpFloats);
        sum.x += v.x;
        sum.y += v.y;
        sum.z += v.z;
        sum.w += v.w;
      }
      const uint32_t to = uint32_t(4 * quad / kUnits);
      const float* there = received_ + turn.place * kReceived + (rank_ * kPanelItems + n) * kUnits +
                           4 * quad % kUnits;
      store_async_16(cluster_address(shared_address(there), to),
                     uint4{__float_as_uint(sum.x), __float_as_uint(sum.y), __float_as_uint(sum.z),
                           __float_as_uint(sum.w)},
                     cluster_address(shared_address(&barriers_[turn.place]), to));
    }
  }

  __device__ void store_states() const {
    for (int panel = 0; panel < at_.panels; ++panel) {
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        if (!at_.has(panel, i)) continue;
        const int64_t at = int64_t(at_.item(panel, i)) * hidden() + at_.unit;
        if (args_.dh0 != nullptr) args_.dh0[at] = T(state_.at(panel, i, kDh));
        if (kCell == Cell::lstm && args_.dc0 != nullptr) {
          args_.dc0[at] = T(state_.at(panel, i, kDc));
        }
      }
    }
  }

  const PersistentBackward<T> args_;
  const PassPlace at_;
  float* partials_;
  const ThreadState<kStates, kOwn> state_;
  uint4 *exchange_, *kept_;
  float* received_;
  ByteBarrier* barriers_;
  int rank_, unit_octets_;
  int handed_[kGates];  // where in a slot the thread's gradients are handed over
  float loads_[kOwn][kLoads] = {};
};

template <typename T, Cell kCell, int kCluster, int kRowTiles, int kPieces, int kOwn>
__global__ void __launch_bounds__(kThreads, 1)
    rnn_backward_persistent_kernel(const __grid_constant__ PersistentBackwardParams<T> p) {
#if __CUDA_ARCH__ >= 900  // the rows refuse others
  extern __shared__ __align__(16) float shared[];
  BackwardPass<T, kCell, kCluster, kRowTiles, kPieces, kOwn>(p, shared).run();
#endif
}

}  // namespace ridgeline::cuda::recurrent
