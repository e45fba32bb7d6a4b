#pragma once

#include "ridgeline/cuda/recurrent/large_product.cuh"

namespace ridgeline::cuda::recurrent {

template <typename T, int kLayers>
struct PersistentForwardParams {
  PersistentForward<T> layers[kLayers];
  PassShape shape;
};

// Product is a BlockProduct, a GroupProduct or a LargeProduct, or a ClusterProduct, whose blocks
// send each other the state.
template <typename T, Cell kCell, typename Product, int kOwn, bool kStacked>
class ForwardPass {
 public:
  using Place = PassPlace<Product::kPanel>;
  using Math = typename Handed<T>::Math;
  using Inputs = FetchRing<float, kOwn, cell_gates(kCell)>;
  using States = ThreadStates<kCell, kOwn>;
  static constexpr int kGates = cell_gates(kCell), kSaved = cell_saved(kCell);
  // Row gate * kGateRows + u of a block's product is that gate of its unit u.
  static constexpr int kGateRows = forward_gate_rows(kCell, Product::kRows / 16);
  static constexpr int kPartFloats = Product::kPanel * Product::kPitch;  // of partial sums
  static constexpr bool kInCluster = requires { typename Product::Slots; };

  __device__ ForwardPass(const PersistentForward<T>* layers, const Place& at, float* shared)
      : args_(layers[kStacked ? at.layer : 0]), at_(at) {
    const PassShape& shape = at.shape;
    product_ = reinterpret_cast<uint4*>(shared);
    partials_ = shared + shape.product_floats;
    if constexpr (kInCluster) {
      handed_ = Product::Slots::own_word(at);
    } else {
      handed_ = Product::Slot::begin(at.unit);
    }
    exchange_ = args_.exchange + at.group * shape.slots(steps()) * shape.all_words +
                at.layer * shape.step_words;
    states_ = partials_ + shape.buffers * shape.sum_parts * kPartFloats;
    inputs_ = states_ + at.group_panels() * States::kPanelFloats;
  }

  // Whether this block has items: the last launch of several may have fewer groups.
  __device__ bool has_items() const { return at_.items > 0; }

  // By all threads of a cluster.
  __device__ void start_cluster() const {
    typename Product::Slots(product_, at_).begin(product_, at_, args_.h0);
    cluster_sync();
  }

  // By the warps that multiply.
  __device__ void multiply() const {
    if constexpr (kInCluster) {
      multiply_in_cluster();
    } else if constexpr (Product::kByGroups) {
      multiply_by_groups();
    } else {
      multiply_by_warps();
    }
  }

  // By the others.
  __device__ void apply() const {
    const States states(states_, at_.thread);
    const Inputs inputs(inputs_, at_.thread, at_.shape.depth);
    const Biases biases = load_biases();
    at_.template for_each<kOwn>([&](int panel, int i) {
      states.h(panel, i) = at_.state_of(args_.h0, panel, i);
      if (kCell == Cell::lstm) states.c(panel, i) = at_.state_of(args_.c0, panel, i);
      states.set_length(panel, i, at_.length_of(panel, i));
    });
    Turn fetched{exchange_};
    for (int i = 0; i < inputs.depth(); ++i) fetch(fetched, states, inputs);
    for (Turn turn{exchange_}; turn.count < turns(); advance(turn)) {
      inputs.await();
      Items items = load_items(turn, states, inputs, biases);
      const float* partial = own_sums(turn.count);
      await_sums(turn.count, at_.shape);
      const Sums sums = add_up(partial);
      release_sums(turn.count, turns(), at_.shape);
      move_on(turn, biases, sums, items);
      keep_items(turn, items, states);
      fetch(fetched, states, inputs);
      store(turn, items);
    }
    at_.template for_each<kOwn>([&](int panel, int i) {
      at_.store_state(args_.hT, panel, i, states.h(panel, i));
      if (kCell == Cell::lstm) at_.store_state(args_.cT, panel, i, states.c(panel, i));
    });
  }

 private:
  // Of the thread's two units.
  struct Biases {
    float of_x[2][kGates], of_h[2][kGates];
  };
  // What a thread works on in a turn.
  struct Item {
    float h[2], c[2];
    float gates[2][4];  // first the sums with x, biases added
    int length;         // 0 where there is no item
    bool has;
  };
  struct Items {
    Item own[kOwn];
  };
  struct Sums {  // with h
    float2 of[kOwn][kGates];
  };

  __device__ int steps() const { return at_.s.steps; }
  __device__ int hidden() const { return at_.s.hidden; }
  __device__ int turns() const { return steps() * at_.panels; }
  // In a stack half of the warps of a layer above another take the state of that one: it has been
  // handed over when the layer below ends the same step. Those of the lowest have no weights.
  __device__ bool upper_half() const {
    return kStacked && (Product::kByGroups ? at_.warp : at_.slice()) >= kWarps / 2;
  }
  __device__ bool takes_below() const { return upper_half() && at_.layer > 0; }

  __device__ void advance(Turn& turn) const {
    turn.slot += at_.shape.panel_words;
    ++turn.count;
    if (++turn.panel < at_.panels) return;
    turn.panel = 0;
    ++turn.step;
    turn.slot += at_.shape.all_words - at_.panels * at_.shape.panel_words;
  }

  // The weights of a row of the block's product, [H]; null where there are none.
  __device__ const T* weights_of(int row) const {
    const int gate = row / kGateRows, in_block = row % kGateRows;
    const int unit = at_.tile * at_.shape.units + in_block;
    const bool has = gate < kGates && in_block < at_.shape.units && unit < hidden() &&
                     !(upper_half() && at_.layer == 0);
    return has ? own_weights() + (int64_t(gate) * hidden() + unit) * hidden() : nullptr;
  }
  __device__ const T* own_weights() const { return upper_half() ? args_.w_ih : args_.w_hh; }

  __device__ void multiply_in_cluster() const {
    Product product;
    with_evenness(hidden(), own_weights(), [&]<bool kEven>() {
      product.load_weights([this](int row, int octet) {
        return octet_of_row<kEven>(weights_of(row), octet, hidden());
      });
    });
    product.multiply_turns({product_, at_}, turns(), at_, partials_);
  }
  __device__ void multiply_by_warps() const {
    const PassShape& shape = at_.shape;
    const int first_piece = at_.slice() % (kStacked ? kWarps / 2 : kWarps) * shape.warp_pieces;
    Product product;
    with_evenness(hidden(), own_weights(), [&]<bool kEven>() {
      product.load_weights(
          first_piece, shape.warp_pieces,
          [this](int row, int octet) {
            return octet_of_row<kEven>(weights_of(row), octet, hidden());
          },
          at_.kept(product_, Product::kWeightWords), shape.kept_pieces,
          at_.streamed(args_.streamed, Product::kWeightWords));
    });
    const int64_t lane = Product::lane_offset(first_piece) +
                         (takes_below() ? shape.all_words - shape.step_words : 0);
    multiply_turns(
        product, Turn{exchange_ + lane}, turns(), at_, [this](Turn& turn) { advance(turn); },
        partials_, kPartFloats);
  }
  __device__ void multiply_by_groups() const {
    const int group = at_.warp / 4;
    const int first = kStacked ? 0 : group * Product::kPlaces;
    if constexpr (kStacked) {
      if (upper_half() && at_.layer == 0) {
        return Product::idle_turns(turns(), at_.shape, group, partials_);
      }
    }
    const auto line_of = [&](int place, int row) {
      const T* w = weights_of(row);
      return w == nullptr ? WeightLine<T>{own_weights(), 0}
                          : WeightLine<T>{w + first + place, hidden() - first - place};
    };
    const Product product(
        product_, group, at_.tile, line_of,
        aligned_rows(args_.w_hh, hidden()) && (!kStacked || aligned_rows(args_.w_ih, hidden())));
    const int64_t share = int64_t(first / 8) * Product::kPanel +
                          (takes_below() ? at_.shape.all_words - at_.shape.step_words : 0);
    product.multiply_turns(
        Turn{exchange_ + share}, turns(), at_, [this](Turn& turn) { advance(turn); }, partials_);
  }

  __device__ Biases load_biases() const {
    Biases b{};
#pragma unroll
    for (int gate = 0; gate < kGates; ++gate) {
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        if (at_.unit + k >= hidden()) continue;
        const int at = gate * hidden() + at_.unit + k;
        b.of_x[k][gate] = args_.b_ih ? args_.b_ih[at] : 0.0f;
        b.of_h[k][gate] = args_.b_hh ? args_.b_hh[at] : 0.0f;
        if (kCell == Cell::gru && gate == kGates - 1) continue;  // the sums stay apart
        b.of_x[k][gate] += b.of_h[k][gate];
        b.of_h[k][gate] = 0.0f;
      }
    }
    return b;
  }

  // Asks for the sums with x of a turn, which advances.
  __device__ void fetch(Turn& turn, const States& states, const Inputs& inputs) const {
    if (turn.count < turns() && !(kStacked && at_.layer > 0)) {
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        const int length = states.length(turn.panel, i);
        if (turn.step >= length) continue;
        const int row = at_.row(turn.step, turn.panel, i, length);
        const float* from = args_.from_x + int64_t(row) * (kGates * hidden()) + at_.unit;
#pragma unroll
        for (int gate = 0; gate < kGates; ++gate) {
          inputs.ask(turn.count, i, gate, from + gate * hidden(), at_.even, at_.both);
        }
      }
    }
    inputs.end_turn();
    advance(turn);
  }

  // Before the sums with h are there.
  __device__ Items load_items(const Turn& turn, const States& states, const Inputs& inputs,
                              const Biases& biases) const {
    Items items;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      Item& item = items.own[i];
      const float2 h = states.h(turn.panel, i);
      const float2 c = kCell == Cell::lstm ? states.c(turn.panel, i) : float2{};
      item.h[0] = h.x;
      item.h[1] = h.y;
      item.c[0] = c.x;
      item.c[1] = c.y;
      item.length = states.length(turn.panel, i);
      item.has = at_.has(turn.panel, i);
#pragma unroll
      for (int gate = 0; gate < kGates; ++gate) {
        const bool none = kStacked && at_.layer > 0;
        const float2 x = none ? float2{0.0f, 0.0f} : inputs.get(turn.count, i, gate);
        item.gates[0][gate] = x.x + biases.of_x[0][gate];
        item.gates[1][gate] = x.y + biases.of_x[1][gate];
      }
    }
    return items;
  }
  __device__ void keep_items(const Turn& turn, const Items& items, const States& states) const {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const Item& item = items.own[i];
      states.h(turn.panel, i) = {item.h[0], item.h[1]};
      if (kCell == Cell::lstm) states.c(turn.panel, i) = {item.c[0], item.c[1]};
    }
  }

  // Where those of the thread's first item will be; found before they are waited for.
  __device__ const float* own_sums(int count) const {
    const float* partial = sums_of(count, partials_, kPartFloats, at_.shape);
    partial += at_.in_panel(0) * Product::kPitch + at_.unit_in_block;
    asm volatile("" ::"r"(smem_address(partial)));
    return partial;
  }
  // The sums with h of the thread's items, over the block's warps.
  __device__ Sums add_up(const float* partial) const {
    Sums sums;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const float* at = partial + (at_.in_panel(i) - at_.in_panel(0)) * Product::kPitch;
#pragma unroll
      for (int gate = 0; gate < kGates; ++gate) {
        sums.of[i][gate] =
            add_parts<Product::kParts, kPartFloats>(at + gate * kGateRows, at_.shape);
      }
    }
    return sums;
  }

  // The new state of the thread's items, handed over to the next step's slot.
  __device__ void move_on(const Turn& turn, const Biases& biases, const Sums& sums,
                          Items& items) const {
    uint4* to = turn.slot + at_.shape.all_words;
    const bool wanted = turn.step + 1 < steps() || (kStacked && at_.layer + 1 < at_.shape.layers);
    // First the states of all, so that what one item waits for another works on.
#pragma unroll
    for (int i = 0; i < kOwn; ++i) apply_gates(turn, biases, sums.of[i], items.own[i]);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const Item& item = items.own[i];
      if constexpr (kInCluster) {
        const typename Product::Slots slots(product_, at_);
        if (wanted) {
          slots.send(turn.step + 1, turn.panel, at_.tile, handed_, {item.h[0], item.h[1]});
        }
      } else if (item.has && wanted) {
        hand_over<T>(to, Product::Slot::offset(handed_, at_.unit, at_.in_panel(i)),
                     {item.h[0], item.h[1]});
      }
    }
  }
  __device__ void apply_gates(const Turn& turn, const Biases& biases, const float2 (&sums)[kGates],
                              Item& item) const {
    // One of several items is no branch: what it makes is left out.
    const bool live = turn.step < item.length;
    if (kOwn == 1 && !live) return;
    float next[2];
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      float(&gates)[4] = item.gates[k];
      const auto sum = [&](int gate) { return k == 0 ? sums[gate].x : sums[gate].y; };
      const float last_sum = sum(kGates - 1) + biases.of_h[k][kGates - 1];
#pragma unroll
      for (int gate = 0; gate < kGates; ++gate) {
        gates[gate] = gate_value<kCell, Math>(gate, gates[gate],
                                              gate == kGates - 1 ? last_sum : sum(gate), gates);
      }
      if (kCell == Cell::gru) gates[3] = last_sum;
      float c = item.c[k];
      next[k] = next_state<kCell, Math>(gates, item.h[k], c);
      item.c[k] = live ? c : item.c[k];
    }
    const float2 h = Handed<T>::rounded({next[0], at_.both ? next[1] : 0.0f});
    item.h[0] = live ? h.x : item.h[0];
    item.h[1] = live ? h.y : item.h[1];
  }

  __device__ void store(const Turn& turn, const Items& items) const {
    const int H = hidden();
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const Item& item = items.own[i];
      if (!item.has) continue;
      const bool live = turn.step < item.length;
      const int place = at_.place(turn.step, turn.panel, i, item.length);
      const auto put = [&](T* to, float first, float second) {
        store_two(to, live ? float2{first, second} : float2{0.0f, 0.0f}, at_.even, at_.both);
      };
      put(args_.y + int64_t(place) * H + at_.unit, item.h[0], item.h[1]);
      if (kSaved == 0 || args_.reserve == nullptr) continue;
      T* reserve = args_.reserve + int64_t(place) * (kSaved * H) + at_.unit;
#pragma unroll
      for (int v = 0; v < (kSaved < 4 ? kSaved : 4); ++v) {
        put(reserve + v * H, item.gates[0][v], item.gates[1][v]);
      }
      if constexpr (kCell == Cell::lstm) put(reserve + 4 * H, item.c[0], item.c[1]);
    }
  }

  const PersistentForward<T> args_;
  const Place at_;
  uint4* product_;  // what the product keeps of the block's memory
  float *partials_, *states_, *inputs_;
  uint4* exchange_;
  int handed_;  // where in a slot the thread's units are handed over
};

template <typename T, Cell kCell, typename Product, int kOwn, int kLayers = 1>
__global__ void __launch_bounds__(kBlockThreads, 1)
    rnn_forward_persistent_kernel(const __grid_constant__ PersistentForwardParams<T, kLayers> p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL  // the rows refuse others
  extern __shared__ __align__(kPanelAlignment) float shared[];
  const PersistentForward<T>& first = p.layers[0];
  using Pass = ForwardPass<T, kCell, Product, kOwn, (kLayers > 1)>;
  const Pass pass(p.layers, {p.shape, first.sequence, first.first_item, first.items},
                  held_address(shared));
  if (!pass.has_items()) return;
  if constexpr (Pass::kInCluster) pass.start_cluster();
  if (threadIdx.x < kThreads) {
    take_registers<Product::kProductRegisters>();
    pass.multiply();
  } else {
    give_registers<Product::kGateRegisters>();
    pass.apply();
  }
  if constexpr (Pass::kInCluster) cluster_sync();  // no block leaves while others send to it
#endif
}

}  // namespace ridgeline::cuda::recurrent
