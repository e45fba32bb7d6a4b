#pragma once

#include "ridgeline/cuda/recurrent/batch_parallel_pass.cuh"
#include "ridgeline/cuda/recurrent/persistent_launch.cuh"

namespace ridgeline::cuda::recurrent {

template <typename T, Cell kCell, typename Product>
class BatchForward : public BatchPass<T, Product> {
 public:
  using Math = typename Handed<T>::Math;
  static constexpr int kGates = cell_gates(kCell), kSaved = cell_saved(kCell);
  static constexpr bool kTakesX = Product::kInputPlaces > 0;
  // Stores a timestep's values during the product of the next; in fp32 no register is left for
  // that.
  static constexpr bool kStoresLate = sizeof(T) == 2;

  __device__ BatchForward(const BatchParallelForward<T>& args, void* shared)
      : BatchPass<T, Product>(args.pass.sequence, shared),
        args_(args.pass),
        x_(args.x),
        in_(args.in) {}

  // Returns this thread's h after the selected step.
  __device__ float run(int selected_step = -1) {
    float selected = 0.0f;
    this->clear();
    if constexpr (kTakesX) stage_inputs();
    this->product.load_weights(args_.w_hh, this->s.hidden, this->first_unit);
    if constexpr (kTakesX) this->product.load_input_weights(args_.w_ih, in_, this->s.hidden);
    load_biases();
    float h = this->state_of(args_.h0), c = this->state_of(args_.c0);
    this->sync();
    this->publish(this->buffer(0), this->unit, h, this->has);
    float from_x[kGates] = {}, gates[4] = {};
    if constexpr (!kTakesX) take_sums(0, from_x);
    fetch_inputs(0);
    this->sync();
    const int steps = this->s.steps;
    for (int step = 0; step < steps; ++step) {
      this->product.begin(this->buffer(step), this->partials);
      // Tensor cores multiply meanwhile.
      if (kStoresLate && step > 0 && this->has) store(step - 1, gates, h, c);
      float sums[kGates], of_x[kGates];
#pragma unroll
      for (int gate = 0; gate < kGates; ++gate) of_x[gate] = from_x[gate];
      if constexpr (!kTakesX) take_sums(step + 1, from_x);
      this->product.end(this->partials, sums, of_x);
      const bool live = this->live(step);
      if (live) {
        const float last_sum = sums[kGates - 1] + of_last_;
#pragma unroll
        for (int gate = 0; gate < kGates; ++gate) {
          gates[gate] = gate_value<kCell, Math>(gate, of_x[gate] + of_x_[gate],
                                                gate == kGates - 1 ? last_sum : sums[gate], gates);
        }
        if (kCell == Cell::gru) gates[3] = last_sum;
        h = Handed<T>::rounded({next_state<kCell, Math>(gates, h, c), 0.0f}).x;
        if (step == selected_step) selected = h;
      }
      this->publish(this->buffer(step + 1), this->unit, h, live);
      fetch_inputs(step + 1);
      this->sync();
      if (!kStoresLate && this->has) store(step, gates, h, c);
    }
    if (kStoresLate && this->has) store(steps - 1, gates, h, c);
    this->store_state(args_.hT, h);
    if (kCell == Cell::lstm) this->store_state(args_.cT, c);
    return selected;
  }

 private:
  // The biases of this thread's unit: of the sums with x, and of a GRU's last sum with h, which
  // stays separate.
  __device__ void load_biases() {
#pragma unroll
    for (int gate = 0; gate < kGates; ++gate) {
      of_x_[gate] = 0.0f;
      if (!this->has) continue;
      const int at = gate * this->s.hidden + this->unit;
      if (args_.b_ih) of_x_[gate] = args_.b_ih[at];
      const float of_h = args_.b_hh ? args_.b_hh[at] : 0.0f;
      if (kCell == Cell::gru && gate == kGates - 1) {
        of_last_ = of_h;
      } else {
        of_x_[gate] += of_h;
      }
    }
  }

  // Copies x of the block's samples, [timestep][sample][place], with zeros in the padding.
  __device__ void stage_inputs() const {
    constexpr int kPlaces = Product::kInputPlaces, kSamples = Product::kSamples;
    constexpr int kTogether = 8;  // loads of a thread in flight
    const int count = this->s.steps * kSamples * kPlaces;
    for (int first = int(threadIdx.x); first < count; first += kTogether * Product::kThreads) {
      T values[kTogether];
#pragma unroll
      for (int k = 0; k < kTogether; ++k) {
        const int i = first + k * Product::kThreads;
        const int at = i % kPlaces, local = i / kPlaces % kSamples, step = i / (kPlaces * kSamples);
        const int sample = this->first_sample + local;
        const int length = sample < this->s.batch ? this->s.length(sample) : 0;
        values[k] = T(0.0f);
        if (step < length && at < in_) {
          values[k] = x_[this->s.row(sample, this->s.time(step, length)) * in_ + at];
        }
      }
#pragma unroll
      for (int k = 0; k < kTogether; ++k) {
        const int i = first + k * Product::kThreads;
        if (i < count) this->inputs[i] = values[k];
      }
    }
  }

  // Fetches x of a timestep if the product takes x.
  __device__ void fetch_inputs(int step) {
    if constexpr (kTakesX) {
      const int at = step < this->s.steps ? step : 0;
      this->product.fetch_inputs(this->inputs + at * Product::kSamples * Product::kInputPlaces);
    }
  }
  // Loads the sums with x of a timestep otherwise.
  __device__ void take_sums(int step, float (&from_x)[kGates]) const {
    if (!this->live(step)) return;
    const int H = this->s.hidden;
    const float* from = args_.from_x + int64_t(this->row(step)) * (kGates * H) + this->unit;
#pragma unroll
    for (int gate = 0; gate < kGates; ++gate) from_x[gate] = from[gate * H];
  }

  __device__ void store(int step, const float (&gates)[4], float h, float c) const {
    const int H = this->s.hidden;
    const bool live = this->live(step);
    const int64_t place = this->place(step);
    args_.y[place * H + this->unit] = T(live ? h : 0.0f);
    if (kSaved == 0 || args_.reserve == nullptr) return;
    T* reserve = args_.reserve + place * (kSaved * H) + this->unit;
#pragma unroll
    for (int v = 0; v < (kSaved < 4 ? kSaved : 4); ++v) reserve[v * H] = T(live ? gates[v] : 0.0f);
    if constexpr (kCell == Cell::lstm) reserve[4 * H] = T(live ? c : 0.0f);
  }

  const PersistentForward<T>& args_;
  const T* x_;
  int in_;
  float of_x_[kGates], of_last_ = 0.0f;
};

template <typename T, Cell kCell, typename Product>
__global__ void __launch_bounds__(Product::kThreads, 1)
    rnn_forward_batch_parallel_kernel(const __grid_constant__ BatchParallelForward<T> args) {
#if __CUDA_ARCH__ >= 900  // the kernels refuse other GPUs
  extern __shared__ __align__(16) float shared[];
  BatchForward<T, kCell, Product> pass(args, shared);
  pass.run();
  pass.sync();  // no block of a cluster exits while others write to it
#endif
}

}  // namespace ridgeline::cuda::recurrent
