#pragma once

#include "ridgeline/cuda/recurrent/pass.cuh"

namespace ridgeline::cuda::recurrent {

template <typename T, int kLayers>
struct PersistentForwardParams {
  PersistentForward<T> layers[kLayers];
  PassShape shape;
};

template <typename T, Cell kCell, int kRowTiles, int kPieces, int kOwn, bool kStacked>
class ForwardPass {
 public:
  using Product = BlockProduct<T, kPieces, kRowTiles>;
  using Math = typename Handed<T>::Math;
  static constexpr int kGates = cell_gates(kCell), kSaved = cell_saved(kCell);
  // Row gate * kGateRows + u of a block's product is that gate of its unit u.
  static constexpr int kGateRows = forward_gate_rows(kCell, kRowTiles);
  static constexpr int kWarpFloats = kPanelItems * Product::kPitch;  // partial sums of a warp
  enum { kH, kC, kLength, kStates };                                 // of a ThreadState

  __device__ ForwardPass(const PersistentForward<T>* layers, const PassPlace& at, float* shared)
      : args_(layers[kStacked ? at.layer : 0]),
        at_(at),
        partials_(shared),
        state_(shared + at.shape.buffers * kWarps * kWarpFloats) {
    const PassShape& shape = at.shape;
    handed_ = place_offset<Handed<T>::kPlanes>(at.unit);
    exchange_ = args_.exchange + at.group * shape.slots(steps()) * shape.all_words +
                at.layer * shape.step_words;
  }

  __device__ void run() {
    if (at_.items <= 0) return;  // the last launch of several may have fewer groups
    const PassShape& shape = at_.shape;
    const int first_piece = at_.slice() % (kStacked ? kWarps / 2 : kWarps) * shape.warp_pieces;
    Product product;
    product.load_weights(
        first_piece, shape.warp_pieces,
        [this](int row, int octet, float(&v)[8]) { weights(row, octet, v); },
        at_.kept(kept_memory(), Product::kWeightWords), shape.kept_pieces,
        at_.streamed(args_.streamed, Product::kWeightWords));
    load_states();
    const int64_t lane = Product::lane_offset(first_piece) +
                         (takes_below() ? shape.all_words - shape.step_words : 0);
    const int64_t step_gap = shape.all_words - at_.panels * shape.panel_words;
    const bool ahead = at_.panels > 1;  // the next panel's state came while this one was waited for
    uint4* slot = exchange_;
    fetch_inputs(0, 0);
    product.begin(slot + lane, at_.two_tiles(0));
    float* partial = partials_;
    for (int step = 0; step < steps(); ++step) {
      for (int panel = 0; panel < at_.panels; ++panel) {
        const bool last = panel + 1 == at_.panels;
        const int next_step = step + last, next_panel = last ? 0 : panel + 1;
        uint4* next = slot + shape.panel_words + (last ? step_gap : 0);
        product.finish(slot + lane, at_.two_tiles(panel), partial + at_.warp * kWarpFloats);
        const bool more = next_step < steps();
        if (ahead && more) product.begin(next + lane, at_.two_tiles(next_panel));
        Items now = load_items(panel);
        __syncthreads();
        advance(step, panel, slot + shape.all_words, partial, now);
        if (shape.buffers == 1) {
          __syncthreads();
        } else {
          partial = partial == partials_ ? partials_ + kWarps * kWarpFloats : partials_;
        }
        if (!ahead && more && shape.pause == 0) product.begin(next + lane, at_.two_tiles(0));
        if (more) fetch_inputs(next_step, next_panel);
        if (ahead) prefetch_inputs(step + 2, panel);
        store(step, panel, now);
        if (!ahead && more && shape.pause > 0) {
          wait_cycles(shape.pause);
          product.begin(next + lane, at_.two_tiles(0));
        }
        slot = next;
      }
    }
    store_states();
  }

 private:
  // What a thread works on in a turn.
  struct Items {
    float h[kOwn], c[kOwn], gates[kOwn][4];
    int length[kOwn];
    bool has[kOwn];
  };

  __device__ int steps() const { return at_.s.steps; }
  __device__ int hidden() const { return at_.s.hidden; }
  // In a stack half of the warps of a layer above another take the state of that one: it has been
  // handed over when the layer below ends the same step. Those of the lowest have no weights.
  __device__ bool upper_half() const { return kStacked && at_.slice() >= kWarps / 2; }
  __device__ bool takes_below() const { return upper_half() && at_.layer > 0; }
  // Behind the states of all panels.
  __device__ uint4* kept_memory() const {
    return reinterpret_cast<uint4*>(partials_ + at_.shape.buffers * kWarps * kWarpFloats +
                                    at_.group_panels() * kOwn * kStates * kThreads);
  }

  __device__ void weights(int row, int octet, float (&v)[8]) const {
    const int gate = row / kGateRows, in_block = row % kGateRows;
    const int unit = at_.tile * at_.shape.units + in_block;
    if (gate >= kGates || in_block >= at_.shape.units || unit >= hidden()) return;
    if (upper_half() && at_.layer == 0) return;
    const T* w = upper_half() ? args_.w_ih : args_.w_hh;
    load_octet(w + (int64_t(gate) * hidden() + unit) * hidden(), octet, hidden(), v);
  }

  __device__ void load_states() {
    if (at_.has_unit()) {
#pragma unroll
      for (int gate = 0; gate < kGates; ++gate) {
        const int at = gate * hidden() + at_.unit;
        bias_x_[gate] = args_.b_ih ? args_.b_ih[at] : 0.0f;
        bias_h_[gate] = args_.b_hh ? args_.b_hh[at] : 0.0f;
      }
    }
    for (int panel = 0; panel < at_.panels; ++panel) {
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        const bool there = at_.has(panel, i);
        const int64_t at = there ? int64_t(at_.item(panel, i)) * hidden() + at_.unit : 0;
        state_.at(panel, i, kH) = there && args_.h0 != nullptr ? float(args_.h0[at]) : 0.0f;
        state_.at(panel, i, kC) = there && args_.c0 != nullptr ? float(args_.c0[at]) : 0.0f;
        state_.at(panel, i, kLength) = __int_as_float(there ? at_.s.length(at_.item(panel, i)) : 0);
      }
    }
  }
  __device__ int length(int panel, int i) const {
    return __float_as_int(state_.at(panel, i, kLength));
  }
  __device__ Items load_items(int panel) const {
    Items now;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      now.has[i] = at_.has(panel, i);
      now.h[i] = state_.at(panel, i, kH);
      now.c[i] = kCell == Cell::lstm ? state_.at(panel, i, kC) : 0.0f;
      now.length[i] = length(panel, i);
    }
    return now;
  }

  // Row [b, t] of an item at a step.
  __device__ int row(int step, int panel, int i, int length) const {
    return at_.first_row(i) + panel * at_.panel_rows() + at_.s.time(step, length);
  }
  __device__ const float* inputs(int step, int panel, int i, int length) const {
    return args_.from_x + int64_t(row(step, panel, i, length)) * (kGates * hidden()) + at_.unit;
  }
  // The sums with x of a step, on their way while the state is waited for.
  __device__ void fetch_inputs(int step, int panel) {
    if (kStacked && at_.layer > 0) return;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int of_item = length(panel, i);  // 0 where there is none
      if (step >= of_item) continue;
      const float* from = inputs(step, panel, i, of_item);
#pragma unroll
      for (int gate = 0; gate < kGates; ++gate) x_[i][gate] = __ldcs(from + gate * hidden());
    }
  }
  // With several panels a turn is shorter than the way from memory.
  __device__ void prefetch_inputs(int step, int panel) const {
    if (kStacked && at_.layer > 0) return;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int of_item = length(panel, i);
      if (step >= of_item) continue;
      const float* from = inputs(step, panel, i, of_item);
#pragma unroll
      for (int gate = 0; gate < kGates; ++gate) prefetch_l2(from + gate * hidden());
    }
  }

  // The new state of the thread's items, handed over to the next step's slot.
  __device__ void advance(int step, int panel, uint4* to, const float* partial, Items& now) {
    const bool wanted = step + 1 < steps() || (kStacked && at_.layer + 1 < at_.shape.layers);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      float sums[kGates][kWarps];
      if (at_.in_panel(i) < kPanelItems) {
        const float* at = partial + at_.in_panel(i) * Product::kPitch + at_.unit_in_block;
#pragma unroll
        for (int gate = 0; gate < kGates; ++gate) {
#pragma unroll
          for (int warp = 0; warp < kWarps; ++warp) {
            sums[gate][warp] = at[warp * kWarpFloats + gate * kGateRows];
          }
        }
      }
      if (step < now.length[i]) move_on(i, sums, now);
      if (!now.has[i]) now.h[i] = 0.0f;
      const float other = __shfl_down_sync(~0u, now.h[i], 1);
      if (now.has[i] && at_.unit % 2 == 0 && wanted) {
        hand_over<T>(to, handed_ + item_offset(at_.in_panel(i)), now.h[i], other);
      }
      state_.at(panel, i, kH) = now.h[i];
      if (kCell == Cell::lstm) state_.at(panel, i, kC) = now.c[i];
    }
  }
  __device__ void move_on(int i, const float (&sums)[kGates][kWarps], Items& now) const {
    float from_h[kGates], from_x[kGates];
#pragma unroll
    for (int gate = 0; gate < kGates; ++gate) {
      from_h[gate] = ((sums[gate][0] + sums[gate][1]) + (sums[gate][2] + sums[gate][3])) +
                     ((sums[gate][4] + sums[gate][5]) + (sums[gate][6] + sums[gate][7])) +
                     bias_h_[gate];
      from_x[gate] = x_[i][gate] + bias_x_[gate];
    }
#pragma unroll
    for (int gate = 0; gate < kGates; ++gate) {
      now.gates[i][gate] = gate_value<kCell, Math>(gate, from_x[gate], from_h[gate], now.gates[i]);
    }
    if (kCell == Cell::gru) now.gates[i][3] = from_h[kGates - 1];
    now.h[i] = float(T(next_state<kCell, Math>(now.gates[i], now.h[i], now.c[i])));
  }

  __device__ void store(int step, int panel, const Items& now) const {
    const int H = hidden();
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      if (!now.has[i]) continue;
      const bool live = step < now.length[i];
      const int place = row(step, panel, i, now.length[i]) * at_.s.directions + at_.s.direction;
      args_.y[int64_t(place) * H + at_.unit] = T(live ? now.h[i] : 0.0f);
      if (kSaved == 0 || args_.reserve == nullptr) continue;
      T* reserve = args_.reserve + int64_t(place) * (kSaved * H) + at_.unit;
#pragma unroll
      for (int v = 0; v < (kSaved < 4 ? kSaved : 4); ++v) {
        reserve[v * H] = T(live ? now.gates[i][v] : 0.0f);
      }
      if constexpr (kCell == Cell::lstm) reserve[4 * H] = T(live ? now.c[i] : 0.0f);
    }
  }

  __device__ void store_states() const {
    for (int panel = 0; panel < at_.panels; ++panel) {
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        if (!at_.has(panel, i)) continue;
        const int64_t at = int64_t(at_.item(panel, i)) * hidden() + at_.unit;
        if (args_.hT != nullptr) args_.hT[at] = T(state_.at(panel, i, kH));
        if (kCell == Cell::lstm && args_.cT != nullptr) {
          args_.cT[at] = T(state_.at(panel, i, kC));
        }
      }
    }
  }

  const PersistentForward<T> args_;
  const PassPlace at_;
  float* partials_;
  const ThreadState<kStates, kOwn> state_;
  uint4* exchange_;
  int handed_;  // where in a slot the thread's unit is handed over
  float bias_x_[kGates] = {}, bias_h_[kGates] = {};
  float x_[kOwn][kGates] = {};
};

template <typename T, Cell kCell, int kRowTiles, int kPieces, int kOwn, int kLayers = 1>
__global__ void __launch_bounds__(kThreads, 1)
    rnn_forward_persistent_kernel(const __grid_constant__ PersistentForwardParams<T, kLayers> p) {
#if __CUDA_ARCH__ >= 900  // the rows refuse others
  extern __shared__ __align__(16) float shared[];
  const PersistentForward<T>& first = p.layers[0];
  const PassPlace at(p.shape, first.sequence, first.first_item, first.items);
  ForwardPass<T, kCell, kRowTiles, kPieces, kOwn, (kLayers > 1)>(p.layers, at, shared).run();
#endif
}

}  // namespace ridgeline::cuda::recurrent
