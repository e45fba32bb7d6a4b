#pragma once

#include "ridgeline/cuda/recurrent/batch_parallel_pass.cuh"
#include "ridgeline/cuda/recurrent/persistent_launch.cuh"

namespace ridgeline::cuda::recurrent {

// With kOneDy a single step has a gradient of y, which one() sets; otherwise args.dy has those of
// all timesteps.
template <typename T, Cell kCell, typename Product, bool kOneDy = false>
class BatchBackward : public BatchPass<T, Product> {
 public:
  using Math = typename Handed<T>::Math;
  static constexpr int kGates = cell_gates(kCell), kSaved = cell_saved(kCell);
  static constexpr int kVectors = cell_vectors(kCell);

  __device__ BatchBackward(const PersistentBackward<T>& args, void* shared)
      : BatchPass<T, Product>(args.sequence, shared), args_(args) {}

  // Called by all threads, before run().
  __device__ void prepare() {
    const int last = this->s.steps - 1;
    this->clear();
    load(last, loads_);
    this->product.load_weights(args_.w_hh, this->s.hidden, this->first_unit);
    if constexpr (kAhead) {
      slopes_ = slopes_of(loads_);
      load(last - 1, loads_);
    }
    this->sync();
  }
  __device__ void one(int step, float dy) {
    dy_step_ = step;
    dy_ = dy;
  }
  __device__ void run() {
    float dh = this->state_of(args_.dhT), dc = this->state_of(args_.dcT);
    for (int step = this->s.steps; step-- > 0;) {
      float gradients[4] = {};
      const bool live = this->live(step);
      if constexpr (!kAhead) slopes_ = slopes_of(loads_);
      if (live) {
        const float dy = !kOneDy ? slopes_.dy : step == dy_step_ ? dy_ : 0.0f;
        dh = unit_grad(slopes_.unit, dh + dy, dc, gradients);
      }
#pragma unroll
      for (int gate = 0; gate < kGates; ++gate) {
        leave(this->buffer(step), this->product.place(gate, this->unit),
              gradients[hidden_vector(kCell, gate)]);
      }
      if constexpr (Product::kSendsSums) {
        __syncthreads();
      } else {
        this->sync();
      }
      const bool wanted = step > 0 || args_.dh0 != nullptr;
      if (wanted) this->product.begin(this->buffer(step), this->partials);
      // Tensor cores multiply meanwhile.
      if (this->has) store(step, gradients);
      if constexpr (kAhead) slopes_ = slopes_of(loads_);
      load(step - (kAhead ? 2 : 1), loads_);
      if (!wanted) break;
      const float sum = this->product.end(this->partials, step);
      if (live) dh += sum;
    }
    this->store_state(args_.dh0, dh);
    if (kCell == Cell::lstm) this->store_state(args_.dc0, dc);
  }

 private:
  using State = typename Product::State;
  // Loads are two timesteps ahead, and slopes are computed during the product before; in fp32 no
  // register is left for that.
  static constexpr bool kAhead = sizeof(T) == 2;

  // Writes a gate gradient of this thread's sample for the product, of this block only if its sums
  // are sent.
  __device__ void leave(State* to, int place, float v) const {
    if constexpr (Product::kSendsSums) {
      if (this->has) to[this->local * Product::kPitch + place] = State(v);
    } else {
      this->publish(to, place, v, this->has);
    }
  }

  // The forward values of a timestep, as they are stored.
  struct Loads {
    T gates[kSaved > 0 ? kSaved : 1], before, dy;

    __device__ UnitSaved<float> saved() const {
      UnitSaved<float> of{};
      if constexpr (kSaved == 0) {
        of.y = float(gates[0]);
      } else {
#pragma unroll
        for (int v = 0; v < kSaved; ++v) of.gates[v] = float(gates[v]);
        of.before = float(before);
      }
      return of;
    }
  };

  struct Slopes {
    UnitSlopes<kCell, float> unit;
    float dy;
  };
  static __device__ Slopes slopes_of(const Loads& loads) {
    return {unit_slopes<kCell, Math>(loads.saved()), float(loads.dy)};
  }

  __device__ void load(int step, Loads& to) const {
    if (step < 0 || !this->live(step)) return;
    const int H = this->s.hidden;
    const int64_t at = this->place(step);
    if (!kOneDy) to.dy = args_.dy[at * H + this->unit];
    if constexpr (kSaved == 0) {
      to.gates[0] = args_.y[at * H + this->unit];
    } else {
#pragma unroll
      for (int v = 0; v < kSaved; ++v) {
        to.gates[v] = args_.reserve[(at * kSaved + v) * H + this->unit];
      }
      to.before = state_before(step);
    }
  }
  // c of the previous timestep for lstm, h for gru.
  __device__ T state_before(int step) const {
    const int H = this->s.hidden;
    if (step > 0) {
      const int64_t at = this->place(step - 1);
      return kCell == Cell::lstm ? args_.reserve[(at * kSaved + 4) * H + this->unit]
                                 : args_.y[at * H + this->unit];
    }
    const T* first = kCell == Cell::lstm ? args_.c0 : args_.h0;
    return first != nullptr ? first[int64_t(this->sample) * H + this->unit] : T(0.0f);
  }
  __device__ void store(int step, const float (&gradients)[4]) const {
    T* to = args_.gate_gradients + int64_t(this->place(step)) * (kVectors * this->s.hidden) +
            this->unit;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) to[v * this->s.hidden] = T(gradients[v]);
  }

  const PersistentBackward<T>& args_;
  Loads loads_{};
  Slopes slopes_{};
  int dy_step_ = -1;
  float dy_ = 0.0f;
};

template <typename T, Cell kCell, typename Product>
__global__ void __launch_bounds__(Product::kThreads, 1)
    rnn_backward_batch_parallel_kernel(const __grid_constant__ PersistentBackward<T> args) {
#if __CUDA_ARCH__ >= 900  // the kernels refuse other GPUs
  extern __shared__ __align__(16) float shared[];
  BatchBackward<T, kCell, Product> pass(args, shared);
  pass.prepare();
  pass.run();
  pass.sync();  // no block of a cluster exits while others write to it
#endif
}

}  // namespace ridgeline::cuda::recurrent
