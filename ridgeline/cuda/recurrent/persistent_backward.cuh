#pragma once

#include "ridgeline/cuda/recurrent/cluster_sums.cuh"
#include "ridgeline/cuda/recurrent/l2_partial_sums.cuh"

namespace ridgeline::cuda::recurrent {

template <typename T>
struct PersistentBackwardParams {
  PersistentBackward<T> args;
  PassShape shape;
};

// The forward values that an iteration needs: the saved ones (or y), the previous state, dy.
constexpr int backward_loads(Cell cell) { return cell_saved(cell) == 0 ? 2 : cell_saved(cell) + 2; }

// dh[units] = w_hh^T . gate gradients: the inner extent is longer by the number of gates. The
// blocks of a cluster split it: each block multiplies its part for the units of all blocks, and
// sends each block the sums of its units through distributed shared memory. Product is a
// BlockProduct, or a LargeProduct, whose blocks send the sums through L2. The latter are not
// launched as a cluster, because the GPU fits only 39 clusters of three blocks where 40 are needed.
template <typename T, Cell kCell, int kCluster, typename Product, int kOwn>
class BackwardPass {
 public:
  using Slot = typename Product::Slot;
  using Math = typename Handed<T>::Math;
  static constexpr int kGates = cell_gates(kCell), kSaved = cell_saved(kCell);
  static constexpr int kVectors = cell_vectors(kCell), kLoads = backward_loads(kCell);
  using Inputs = FetchRing<T, kOwn, kLoads>;
  using States = ThreadStates<kCell, kOwn>;
  static constexpr int kWarpFloats = kPanelSamples * Product::kPitch;
  // Units per block in a cluster: a multiple of four; the last block may have fewer.
  static constexpr int kUnits = (Product::kRows / kCluster + 3) / 4 * 4;
  static constexpr bool kThroughL2 = Product::kByGroups;

  __device__ BackwardPass(const PersistentBackwardParams<T>& p, float* shared)
      : args_(p.args),
        at_(p.shape, p.args.sequence, p.args.first_sample, p.args.samples),
        product_(reinterpret_cast<uint4*>(shared)),
        partials_(shared + p.shape.product_floats) {
    exchange_ = args_.exchange + at_.group * p.shape.step_words * at_.s.steps;
    rank_ = at_.tile % kCluster;
    unit_vec8s_ = (hidden() + 7) / 8;
    states_ = partials_ + p.shape.buffers * p.shape.sum_parts * kWarpFloats;
    inputs_ = states_ + at_.group_panels() * States::kPanelFloats;
    received_ = inputs_ + p.shape.depth * (Inputs::kIterationBytes / 4);
  }

  // Whether this block has samples: the last of several launches may have fewer groups. All blocks
  // of a cluster agree.
  __device__ bool has_samples() const { return at_.samples > 0; }

  // Returns what the blocks that share a sum exchange.
  __device__ auto shared_sums() const {
    const int units = min(kUnits, Product::kRows - rank_ * kUnits);
    if constexpr (kThroughL2) {
      return L2PartialSums<Product, kCluster, kUnits, kOwn>(args_.l2_workspace, rank_, units);
    } else {
      return ClusterSums<Product, kCluster, kUnits, kOwn>(received_, at_.shape.ring, rank_, units);
    }
  }

  // Called by the warps that multiply.
  __device__ void multiply() const {
    if constexpr (Product::kByGroups) {
      multiply_by_groups();
    } else {
      multiply_by_warps();
    }
  }
  __device__ void multiply_by_warps() const {
    const PassShape& shape = at_.shape;
    const int first_chunk = (rank_ * kWarps + at_.slice()) * shape.warp_chunks;
    Product product;
    product.load_weights(
        first_chunk, shape.warp_chunks,
        [this](int row, int vec8) { return weight_vec8(row, vec8); },
        at_.kept(product_, Product::kWeightWords), shape.kept_chunks,
        at_.streamed_weights(args_.l2_workspace, Product::kWeightWords));
    multiply_iterations(
        product, Iteration{exchange_ + Product::lane_offset(first_chunk)}, iterations(), at_,
        [this](Iteration& iteration) { advance(iteration); }, partials_, kWarpFloats);
  }
  __device__ void multiply_by_groups() const {
    const int group = at_.warp / 4, first = (rank_ * 2 + group) * (Product::kPlaces / 8);
    const int unit = at_.tile / kCluster * at_.shape.cluster_units;
    const auto line_of = [&](int place, int line) {
      const int at = 8 * first + place + line, pitch = 8 * unit_vec8s_;
      const int gate = int(at >= pitch) + int(at >= 2 * pitch) + int(at >= 3 * pitch);
      const int from = at - gate * pitch;
      if (gate >= kGates || from >= hidden()) return WeightLine<T>{args_.w_hh, 0};
      return WeightLine<T>{args_.w_hh + (int64_t(gate) * hidden() + from) * hidden() + unit,
                           min(hidden() - unit, at_.shape.cluster_units)};
    };
    const Product product(product_, group, at_.tile, line_of, aligned_rows(args_.w_hh, hidden()));
    product.multiply_iterations(
        Iteration{exchange_ + int64_t(first) * Product::kPanel}, iterations(), at_,
        [this](Iteration& iteration) { advance(iteration); }, partials_);
  }

  // Called by the other warps. The gradients of an iteration are sent, multiplied a round later,
  // and their sums gathered: in a cluster with many panels an iteration after they were sent.
  __device__ void apply() const {
    const States states(states_, at_.thread);
    const Inputs inputs(inputs_, at_.thread, at_.shape.depth);
    at_.template for_each<kOwn>([&](int panel, int i) {
      states.h(panel, i) = at_.state_of(args_.dhT, panel, i);
      if (kCell == Cell::lstm) states.c(panel, i) = at_.state_of(args_.dcT, panel, i);
      states.set_length(panel, i, at_.length_of(panel, i));
    });
    // With two panels, the product of the other panel hides the time that a cluster takes to send
    // the sums.
    const int lag = kCluster > 1 && at_.panels > (kThroughL2 ? 1 : 2) ? 1 : 0;
    Iteration fetched = first_iteration(), made = fetched, gathered = fetched;
    for (int i = 0; i < inputs.depth(); ++i) fetch(fetched, states, inputs);
    // The slopes of a single sample are computed while its sums are awaited; with several panels
    // there is no such time.
    const bool early = kOwn == 1 && at_.panels == 1;
    Slopes slopes{};
    const auto prepare = [&] {
      inputs.await();
      slopes = load_slopes(made, 0, inputs);
    };
    const auto make = [&] {
      if (!early) inputs.await();
      differentiate(made, states, [&](int i) {
        if (!early) slopes = load_slopes(made, i, inputs);
        return slopes;
      });
      fetch(fetched, states, inputs);
      advance(made);
    };
    // The slopes of the last timestep, which no product contributes to.
    if (early) prepare();
    for (int panel = 0; panel < at_.panels; ++panel) make();
    for (Iteration iteration = first_iteration(); iteration.count < iterations() + lag;
         advance(iteration)) {
      if (early && made.step >= 0) prepare();
      if (iteration.count < iterations()) await_sums(iteration.count, at_.shape);
      const float* partial = sums_of(iteration.count, partials_, kWarpFloats, at_.shape);
      if constexpr (kCluster > 1) {
        if (iteration.count < iterations()) {
          shared_sums().send(iteration, partial, at_);
          release_sums(iteration.count, iterations(), at_.shape);
        }
      }
      if (iteration.count < lag) continue;
      gather_sums(gathered, partial, states);
      if constexpr (kCluster == 1) release_sums(iteration.count, iterations(), at_.shape);
      advance(gathered);
      if (made.step >= 0) make();
    }
    at_.template for_each<kOwn>([&](int panel, int i) {
      at_.store_state(args_.dh0, panel, i, states.h(panel, i));
      if (kCell == Cell::lstm) at_.store_state(args_.dc0, panel, i, states.c(panel, i));
    });
  }

 private:
  // The slopes of this thread's two units of a sample at a timestep.
  struct Slopes {
    UnitSlopes<kCell, float> of[2];
    float2 dy;
  };

  __device__ int hidden() const { return at_.s.hidden; }
  __device__ int iterations() const {
    return at_.panels * (at_.s.steps - (args_.dh0 == nullptr ? 1 : 0));
  }
  __device__ Iteration first_iteration() const { return {exchange_, at_.s.steps - 1, 0, 0}; }
  __device__ void advance(Iteration& iteration) const {
    ++iteration.count;
    iteration.slot += at_.shape.panel_words;
    if (++iteration.panel < at_.panels) return;
    iteration.panel = 0;
    --iteration.step;
    iteration.slot += at_.shape.step_words - at_.panels * at_.shape.panel_words;
  }

  // Place k of the inner extent is gate k / (8 * unit_vec8s), unit k % (8 * unit_vec8s). There is
  // no branch, so that a thread can have many loads in flight.
  __device__ Vec8<T> weight_vec8(int row, int vec8) const {
    const int unit = at_.tile / kCluster * at_.shape.cluster_units + row;
    const int gate = vec8 / unit_vec8s_, from = vec8 % unit_vec8s_ * 8;
    const bool has = unit < hidden() && row < at_.shape.cluster_units && gate < kGates;
    const T* zero = reinterpret_cast<const T*>(kZeros);
    const T* w = has ? args_.w_hh + (int64_t(gate) * hidden() + from) * hidden() + unit : zero;
    const int there = has ? hidden() - from : 0;
    Vec8<T> values;
#pragma unroll
    for (int e = 0; e < 8; ++e) values.v[e] = *(e < there ? w + int64_t(e) * hidden() : zero);
    return values;
  }

  // Prefetches the forward values of an iteration, and advances the iteration.
  __device__ void fetch(Iteration& iteration, const States& states, const Inputs& inputs) const {
    const int step = iteration.step, panel = iteration.panel, H = hidden();
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int length = states.length(panel, i);
      if (step < 0 || step >= length) continue;
      const int at = at_.place(step, panel, i, length);
      const auto ask = [&](int value, const T* from) {
        inputs.ask(iteration.count, i, value, from + at_.unit, at_.even, at_.both);
      };
      ask(kLoads - 1, args_.dy + int64_t(at) * H);
      if constexpr (kSaved == 0) {
        ask(0, args_.y + int64_t(at) * H);
      } else {
        const T* reserve = args_.reserve + int64_t(at) * (kSaved * H);
#pragma unroll
        for (int v = 0; v < kSaved; ++v) ask(v, reserve + v * H);
        const T* before = state_before(step, panel, i, length);
        if (before != nullptr) {
          ask(kSaved, before);
        } else {
          inputs.set_zero(iteration.count, i, kSaved);
        }
      }
    }
    inputs.end_iteration();
    advance(iteration);
  }
  // c of the previous timestep for lstm, h for gru; null if it is zero.
  __device__ const T* state_before(int step, int panel, int i, int length) const {
    const int H = hidden();
    if (step > 0) {
      const int at = at_.place(step - 1, panel, i, length);
      return kCell == Cell::lstm ? args_.reserve + (int64_t(at) * kSaved + 4) * H
                                 : args_.y + int64_t(at) * H;
    }
    const T* first = kCell == Cell::lstm ? args_.c0 : args_.h0;
    return first != nullptr ? first + int64_t(at_.sample(panel, i)) * H : nullptr;
  }

  // Computes, sends and stores the gate gradients of an iteration. The state's dh becomes the part
  // that goes to the previous timestep directly. slopes_of(i) returns the slopes of this thread's
  // i-th sample.
  template <typename SlopesOf>
  __device__ void differentiate(const Iteration& iteration, const States& states,
                                const SlopesOf& slopes_of) const {
    float gradients[kOwn][2][4] = {};
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      if (!at_.has(iteration.panel, i)) continue;
      if (iteration.step < states.length(iteration.panel, i)) {
        unit_gradients(iteration, i, states, slopes_of(i), gradients[i]);
      }
#pragma unroll
      for (int gate = 0; gate < kGates; ++gate) {
        const int v = hidden_vector(kCell, gate);
        const int at = 8 * gate * unit_vec8s_ + at_.unit;
        hand_over<T>(iteration.slot, Slot::offset(Slot::begin(at), at, at_.in_panel(i)),
                     {gradients[i][0][v], gradients[i][1][v]});
      }
    }
    // No other block waits for the stores, so everything is sent first.
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      if (!at_.has(iteration.panel, i)) continue;
      const int place =
          at_.place(iteration.step, iteration.panel, i, states.length(iteration.panel, i));
      T* to = args_.gate_gradients + int64_t(place) * (kVectors * hidden()) + at_.unit;
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        store_two(to + v * hidden(), {gradients[i][0][v], gradients[i][1][v]}, at_.even, at_.both);
      }
    }
  }

  __device__ Slopes load_slopes(const Iteration& iteration, int i, const Inputs& inputs) const {
    float2 loads[kLoads];
#pragma unroll
    for (int v = 0; v < kLoads; ++v) loads[v] = inputs.get(iteration.count, i, v);
    Slopes slopes;
    slopes.dy = loads[kLoads - 1];
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const auto of_unit = [&](int v) { return k == 0 ? loads[v].x : loads[v].y; };
      UnitSaved<float> saved{};
      if constexpr (kSaved == 0) {
        saved.y = of_unit(0);
      } else {
#pragma unroll
        for (int v = 0; v < kSaved; ++v) saved.gates[v] = of_unit(v);
        saved.before = of_unit(kSaved);
      }
      slopes.of[k] = unit_slopes<kCell, Math>(saved);
    }
    return slopes;
  }
  __device__ void unit_gradients(const Iteration& iteration, int i, const States& states,
                                 const Slopes& slopes, float (&gradients)[2][4]) const {
    float2& state_dh = states.h(iteration.panel, i);
    float dh[2] = {state_dh.x + slopes.dy.x, state_dh.y + slopes.dy.y};
    float2 state_dc = {};
    if (kCell == Cell::lstm) state_dc = states.c(iteration.panel, i);
    float dc[2] = {state_dc.x, state_dc.y};
#pragma unroll
    for (int k = 0; k < 2; ++k) dh[k] = unit_grad(slopes.of[k], dh[k], dc[k], gradients[k]);
    if (!at_.both) {
#pragma unroll
      for (int v = 0; v < 4; ++v) gradients[1][v] = 0.0f;
    }
    state_dh = {dh[0], dh[1]};
    if (kCell == Cell::lstm) states.c(iteration.panel, i) = {dc[0], dc[1]};
  }

  // Adds the product's sums of this thread's samples to the state's dh.
  __device__ void gather_sums(const Iteration& iteration, const float* partial,
                              const States& states) const {
    float2 sums[kOwn];
    if constexpr (kCluster > 1) shared_sums().gather(iteration, at_, sums);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      if (!at_.has(iteration.panel, i)) continue;
      if constexpr (kCluster == 1) {
        sums[i] = add_parts<kWarps, kWarpFloats>(
            partial + at_.in_panel(i) * Product::kPitch + at_.unit_in_block, at_.shape);
      }
      float2& dh = states.h(iteration.panel, i);
      dh = {dh.x + sums[i].x, dh.y + sums[i].y};
    }
  }

  const PersistentBackward<T> args_;
  const PassPlace<kPanelSamples> at_;
  uint4* product_;  // the product's part of the block's memory
  float *partials_, *states_, *inputs_, *received_;
  uint4* exchange_;
  int rank_, unit_vec8s_;
};

template <typename T, Cell kCell, int kCluster, typename Product, int kOwn>
__global__ void __launch_bounds__(kBlockThreads, 1)
    rnn_backward_persistent_kernel(const __grid_constant__ PersistentBackwardParams<T> p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL  // the kernels refuse other GPUs
  extern __shared__ __align__(kPanelAlignment) float shared[];
  using Pass = BackwardPass<T, kCell, kCluster, Product, kOwn>;
  const Pass pass(p, held_address(shared));
  if (!pass.has_samples()) return;
  constexpr bool kSends = kCluster > 1 && !Pass::kThroughL2;
  if constexpr (kSends) pass.shared_sums().start();
  if (threadIdx.x < kThreads) {
    take_registers<Product::kProductRegisters>();
    pass.multiply();
  } else {
    give_registers<Product::kGateRegisters>();
    pass.apply();
  }
  if constexpr (kSends) cluster_sync();  // no block exits while others send to it
#endif
}

}  // namespace ridgeline::cuda::recurrent
