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

  // Whether this block has samples: the last of several launches may have fewer groups.
  __device__ bool has_samples() const { return at_.samples > 0; }

  // Called by all threads of a cluster.
  __device__ void start_cluster() const {
    typename Product::Slots(product_, at_).begin(product_, at_, args_.h0);
    cluster_sync();
  }

  // Called by the warps that multiply.
  __device__ void multiply() const {
    if constexpr (kInCluster) {
      multiply_in_cluster();
    } else if constexpr (Product::kByGroups) {
      multiply_by_groups();
    } else {
      multiply_by_warps();
    }
  }

  // Called by the other warps.
  __device__ void apply() const {
    const States states(states_, at_.thread);
    const Inputs inputs(inputs_, at_.thread, at_.shape.depth);
    const Biases biases = load_biases();
    at_.template for_each<kOwn>([&](int panel, int i) {
      states.h(panel, i) = at_.state_of(args_.h0, panel, i);
      if (kCell == Cell::lstm) states.c(panel, i) = at_.state_of(args_.c0, panel, i);
      states.set_length(panel, i, at_.length_of(panel, i));
    });
    Iteration fetched{exchange_};
    for (int i = 0; i < inputs.depth(); ++i) fetch(fetched, states, inputs);
    for (Iteration iteration{exchange_}; iteration.count < iterations(); advance(iteration)) {
      inputs.await();
      Samples samples = load_samples(iteration, states, inputs, biases);
      const float* partial = own_sums(iteration.count);
      await_sums(iteration.count, at_.shape);
      const Sums sums = add_up(partial);
      release_sums(iteration.count, iterations(), at_.shape);
      move_on(iteration, biases, sums, samples);
      keep_samples(iteration, samples, states);
      fetch(fetched, states, inputs);
      store(iteration, samples);
    }
    at_.template for_each<kOwn>([&](int panel, int i) {
      at_.store_state(args_.hT, panel, i, states.h(panel, i));
      if (kCell == Cell::lstm) at_.store_state(args_.cT, panel, i, states.c(panel, i));
    });
  }

 private:
  // The biases of this thread's two units.
  struct Biases {
    float of_x[2][kGates], of_h[2][kGates];
  };
  // A thread works on one of these in an iteration.
  struct Sample {
    float h[2], c[2];
    float gates[2][4];  // initially the sums with x, biases added
    int length;         // 0 if there is no sample
    bool has;
  };
  struct Samples {
    Sample own[kOwn];
  };
  struct Sums {  // the sums with h
    float2 of[kOwn][kGates];
  };

  __device__ int steps() const { return at_.s.steps; }
  __device__ int hidden() const { return at_.s.hidden; }
  __device__ int iterations() const { return steps() * at_.panels; }
  // In a stack, half of the warps of a layer above another multiply the state of the layer below,
  // which that layer has sent when it ends the same timestep. In the lowest layer these warps have
  // no weights.
  __device__ bool upper_half() const {
    return kStacked && (Product::kByGroups ? at_.warp : at_.slice()) >= kWarps / 2;
  }
  __device__ bool takes_below() const { return upper_half() && at_.layer > 0; }

  __device__ void advance(Iteration& iteration) const {
    iteration.slot += at_.shape.panel_words;
    ++iteration.count;
    if (++iteration.panel < at_.panels) return;
    iteration.panel = 0;
    ++iteration.step;
    iteration.slot += at_.shape.all_words - at_.panels * at_.shape.panel_words;
  }

  // The weights of a row of the block's product, [H]; null if there are none.
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
      product.load_weights([this](int row, int vec8) {
        return vec8_of_row<kEven>(weights_of(row), vec8, hidden());
      });
    });
    product.multiply_iterations({product_, at_}, iterations(), at_, partials_);
  }
  __device__ void multiply_by_warps() const {
    const PassShape& shape = at_.shape;
    if constexpr (kStacked) {
      if (upper_half() && at_.layer == 0) {
        return idle_iterations(iterations(), at_, partials_, kPartFloats);
      }
    }
    const int first_chunk = at_.slice() % (kStacked ? kWarps / 2 : kWarps) * shape.warp_chunks;
    Product product;
    with_evenness(hidden(), own_weights(), [&]<bool kEven>() {
      product.load_weights(
          first_chunk, shape.warp_chunks,
          [this](int row, int vec8) { return vec8_of_row<kEven>(weights_of(row), vec8, hidden()); },
          at_.kept(product_, Product::kWeightWords), shape.kept_chunks,
          at_.streamed_weights(args_.l2_workspace, Product::kWeightWords));
    });
    const int64_t lane = Product::lane_offset(first_chunk) +
                         (takes_below() ? shape.all_words - shape.step_words : 0);
    multiply_iterations(
        product, Iteration{exchange_ + lane}, iterations(), at_,
        [this](Iteration& iteration) { advance(iteration); }, partials_, kPartFloats);
  }
  __device__ void multiply_by_groups() const {
    const int group = at_.warp / 4;
    const int first = kStacked ? 0 : group * Product::kPlaces;
    if constexpr (kStacked) {
      if (upper_half() && at_.layer == 0) {
        return Product::idle_iterations(iterations(), at_.shape, group, partials_);
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
    product.multiply_iterations(
        Iteration{exchange_ + share}, iterations(), at_,
        [this](Iteration& iteration) { advance(iteration); }, partials_);
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
        if (kCell == Cell::gru && gate == kGates - 1) continue;  // these sums stay separate
        b.of_x[k][gate] += b.of_h[k][gate];
        b.of_h[k][gate] = 0.0f;
      }
    }
    return b;
  }

  // Prefetches the sums with x of an iteration, and advances the iteration.
  __device__ void fetch(Iteration& iteration, const States& states, const Inputs& inputs) const {
    if (iteration.count < iterations() && !(kStacked && at_.layer > 0)) {
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        const int length = states.length(iteration.panel, i);
        if (iteration.step >= length) continue;
        const int row = at_.row(iteration.step, iteration.panel, i, length);
        const float* from = args_.from_x + int64_t(row) * (kGates * hidden()) + at_.unit;
#pragma unroll
        for (int gate = 0; gate < kGates; ++gate) {
          inputs.ask(iteration.count, i, gate, from + gate * hidden(), at_.even, at_.both);
        }
      }
    }
    inputs.end_iteration();
    advance(iteration);
  }

  // Called before the sums with h have arrived.
  __device__ Samples load_samples(const Iteration& iteration, const States& states,
                                  const Inputs& inputs, const Biases& biases) const {
    Samples samples;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      Sample& sample = samples.own[i];
      const float2 h = states.h(iteration.panel, i);
      const float2 c = kCell == Cell::lstm ? states.c(iteration.panel, i) : float2{};
      sample.h[0] = h.x;
      sample.h[1] = h.y;
      sample.c[0] = c.x;
      sample.c[1] = c.y;
      sample.length = states.length(iteration.panel, i);
      sample.has = at_.has(iteration.panel, i);
#pragma unroll
      for (int gate = 0; gate < kGates; ++gate) {
        const bool none = kStacked && at_.layer > 0;
        const float2 x = none ? float2{0.0f, 0.0f} : inputs.get(iteration.count, i, gate);
        sample.gates[0][gate] = x.x + biases.of_x[0][gate];
        sample.gates[1][gate] = x.y + biases.of_x[1][gate];
      }
    }
    return samples;
  }
  __device__ void keep_samples(const Iteration& iteration, const Samples& samples,
                               const States& states) const {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const Sample& sample = samples.own[i];
      states.h(iteration.panel, i) = {sample.h[0], sample.h[1]};
      if (kCell == Cell::lstm) states.c(iteration.panel, i) = {sample.c[0], sample.c[1]};
    }
  }

  // The address of the sums of this thread's first sample, computed before they are awaited.
  __device__ const float* own_sums(int count) const {
    const float* partial = sums_of(count, partials_, kPartFloats, at_.shape);
    partial += at_.in_panel(0) * Product::kPitch + at_.unit_in_block;
    asm volatile("" ::"r"(smem_address(partial)));
    return partial;
  }
  // The sums with h of this thread's samples, over the block's warps.
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

  // Computes the new state of this thread's samples and sends it to the next timestep's slot.
  __device__ void move_on(const Iteration& iteration, const Biases& biases, const Sums& sums,
                          Samples& samples) const {
    uint4* to = iteration.slot + at_.shape.all_words;
    const bool wanted =
        iteration.step + 1 < steps() || (kStacked && at_.layer + 1 < at_.shape.layers);
    // Computes the states of all samples first, so that one sample's latency hides another's.
#pragma unroll
    for (int i = 0; i < kOwn; ++i) apply_gates(iteration, biases, sums.of[i], samples.own[i]);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const Sample& sample = samples.own[i];
      if constexpr (kInCluster) {
        const typename Product::Slots slots(product_, at_);
        if (wanted) {
          slots.send(iteration.step + 1, iteration.panel, at_.tile, handed_,
                     {sample.h[0], sample.h[1]});
        }
      } else if (sample.has && wanted) {
        hand_over<T>(to, Product::Slot::offset(handed_, at_.unit, at_.in_panel(i)),
                     {sample.h[0], sample.h[1]});
      }
    }
  }
  __device__ void apply_gates(const Iteration& iteration, const Biases& biases,
                              const float2 (&sums)[kGates], Sample& sample) const {
    // With several samples there is no branch; unused results are discarded.
    const bool live = iteration.step < sample.length;
    if (kOwn == 1 && !live) return;
    float next[2];
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      float(&gates)[4] = sample.gates[k];
      const auto sum = [&](int gate) { return k == 0 ? sums[gate].x : sums[gate].y; };
      const float last_sum = sum(kGates - 1) + biases.of_h[k][kGates - 1];
#pragma unroll
      for (int gate = 0; gate < kGates; ++gate) {
        gates[gate] = gate_value<kCell, Math>(gate, gates[gate],
                                              gate == kGates - 1 ? last_sum : sum(gate), gates);
      }
      if (kCell == Cell::gru) gates[3] = last_sum;
      float c = sample.c[k];
      next[k] = next_state<kCell, Math>(gates, sample.h[k], c);
      sample.c[k] = live ? c : sample.c[k];
    }
    const float2 h = Handed<T>::rounded({next[0], at_.both ? next[1] : 0.0f});
    sample.h[0] = live ? h.x : sample.h[0];
    sample.h[1] = live ? h.y : sample.h[1];
  }

  __device__ void store(const Iteration& iteration, const Samples& samples) const {
    const int H = hidden();
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const Sample& sample = samples.own[i];
      if (!sample.has) continue;
      const bool live = iteration.step < sample.length;
      const int place = at_.place(iteration.step, iteration.panel, i, sample.length);
      const auto put = [&](T* to, float first, float second) {
        store_two(to, live ? float2{first, second} : float2{0.0f, 0.0f}, at_.even, at_.both);
      };
      put(args_.y + int64_t(place) * H + at_.unit, sample.h[0], sample.h[1]);
      if (kSaved == 0 || args_.reserve == nullptr) continue;
      T* reserve = args_.reserve + int64_t(place) * (kSaved * H) + at_.unit;
#pragma unroll
      for (int v = 0; v < (kSaved < 4 ? kSaved : 4); ++v) {
        put(reserve + v * H, sample.gates[0][v], sample.gates[1][v]);
      }
      if constexpr (kCell == Cell::lstm) put(reserve + 4 * H, sample.c[0], sample.c[1]);
    }
  }

  const PersistentForward<T> args_;
  const Place at_;
  uint4* product_;  // the product's part of the block's memory
  float *partials_, *states_, *inputs_;
  uint4* exchange_;
  int handed_;  // the offset in a slot at which this thread's units are sent
};

template <typename T, Cell kCell, typename Product, int kOwn, int kLayers = 1>
__global__ void __launch_bounds__(kBlockThreads, 1)
    rnn_forward_persistent_kernel(const __grid_constant__ PersistentForwardParams<T, kLayers> p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL  // the kernels refuse other GPUs
  extern __shared__ __align__(kPanelAlignment) float shared[];
  const PersistentForward<T>& first = p.layers[0];
  using Pass = ForwardPass<T, kCell, Product, kOwn, (kLayers > 1)>;
  const Pass pass(p.layers, {p.shape, first.sequence, first.first_sample, first.samples},
                  held_address(shared));
  if (!pass.has_samples()) return;
  if constexpr (Pass::kInCluster) pass.start_cluster();
  if (threadIdx.x < kThreads) {
    take_registers<Product::kProductRegisters>();
    pass.multiply();
  } else {
    give_registers<Product::kGateRegisters>();
    pass.apply();
  }
  if constexpr (Pass::kInCluster) cluster_sync();  // no block exits while others send to it
#endif
}

}  // namespace ridgeline::cuda::recurrent
