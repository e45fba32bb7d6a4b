#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ridgeline/core/thread_pool.h"
#include "ridgeline/cpu/simd/gemm.h"
#include "ridgeline/cpu/simd/mlp_loss.h"
#include "ridgeline/cpu/simd/split_layer.h"
#include "ridgeline/cpu/simd/update.h"
#include "ridgeline/ops/dropout.h"

namespace ridgeline::cpu::simd {

// Samples that pass through the net together: enough that w and dw, read once a chunk, cost
// little, few enough that activations stay in cache.
inline constexpr int64_t kChunk = 128;

// How a layer's gradients are used.
enum class GradientUse : uint8_t {
  sgd,
  adam,
  // mw and mb receive them, and w and b do not change. If threads divide the batch, mw and mb must
  // be zero before and the step's rate and momentum must be 0.
  stored,
};

// A normalisation of a layer's outputs before the activation, over the outputs of a sample or over
// the batch, with its weights and their optimizer's state.
template <typename T>
struct MlpNorm {
  enum class Over : uint8_t { none, sample, batch };
  Over over = Over::none;
  bool centred = true;
  double epsilon = 0;
  T *gamma = nullptr, *beta = nullptr;  // [out], each may be null
  T *m_gamma = nullptr, *m_beta = nullptr, *v_gamma = nullptr, *v_beta = nullptr;
  // The following are for the batch.
  double momentum = 0;
  T *running_mean = nullptr, *running_var = nullptr;  // [out]
  int64_t* batches = nullptr;

  explicit operator bool() const { return over != Over::none; }
};

template <typename T>
struct MlpLayer {
  int64_t in, out;
  SimdActivation act;  // none for the last
  T* w;                // [out, in]
  T* b;                // [out], may be null
  T* mw = nullptr;     // momentum, like w and b; null without
  T* mb = nullptr;
  GradientUse use = GradientUse::sgd;
  T* vw = nullptr;  // Adam's second momentum
  T* vb = nullptr;
  DropoutMask dropout{.p = 0};  // of the activation's output
  MlpNorm<T> norm{};            // not of the last

  bool drops() const { return dropout.p > 0; }
};

template <typename T>
struct MlpBatch {
  const uint8_t* set;     // [N, layers[0].in]; null with floats
  const int32_t* labels;  // [N]; null with targets
  const int32_t* order;   // [n] indices of samples in the set
  T scale = 1, shift = 0;
  const float* floats = nullptr;   // [N, layers[0].in]
  const float* targets = nullptr;  // [N, columns of the loss]
};

// The parameters that differ between training steps.
template <typename T>
struct MlpIteration {
  Sgd<T> sgd{};  // either this
  Adam<T> adam{};
  uint64_t step = 0;  // for dropout's masks
};

struct MlpScore {
  double loss;         // sum over the batch, not scaled
  int32_t correct;     // samples whose largest logit is first reached at the label
  double squares = 0;  // with a max_norm: the sum of the squares of all gradients
};

// One step of a multilayer perceptron, by SGD or Adam, as one parallel region: gather, forward,
// loss, backward and update. It is bitwise repeatable for a number of threads: every sum has one
// owner and one order.
//
// The cost of threads is in cache lines that one writes and another has read: moving one back took
// 8 to 30 ns on the machines we measured, 50 us for the batch of a 100 us step. So they share
// little.
//   Small batches: a thread owns rows of each weight matrix (and alone accesses them, in all three
//   products and the update). Outputs are exchanged forward, and backward the partial sums of dx of
//   each thread's rows; one barrier per layer each way.
//   Large batches: a thread takes its own samples through the whole net; only the
//   gradients of the weights are added up at the end.
// In both cases a long batch passes through in chunks whose activations stay in cache, so scratch
// does not grow with it. Only with a normalisation over the batch it is a single chunk, whose
// weights the threads divide.
template <typename T>
class MlpStep {
 public:
  // Takes batches of up to `n_max` samples, on `threads` threads. Layer l's `in` is layer l-1's
  // `out`. With an engine (fp32; no norms, no GradientUse::stored), split_product.h computes the
  // products of wide layers. `input_scale` is that of samples that are bytes with a shift of 0;
  // else 0. `max_norm` clips the gradients by the norm over all of them (GlobalNorm; neither with
  // an engine nor with GradientUse::stored); 0: it does not.
  MlpStep(std::vector<MlpLayer<T>> layers, int64_t n_max, int threads, const MlpLoss& loss = {},
          const SplitEngine* engine = nullptr, T input_scale = 0, double max_norm = 0);

  // Whether the engine computes the products of any layer.
  bool splits() const;
  bool shares_batch() const { return by_batch_; }  // else threads divide the weights
  size_t workspace_bytes() const { return workspace_bytes_; }
  void bind(std::byte* workspace) { workspace_ = workspace; }  // 64-byte aligned

  // `scale` multiplies the loss in the gradient: 1 / batch for the mean. 0 < n <= n_max; the pool
  // has `threads` threads. Neither allocates nor throws.
  MlpScore run(ThreadPool& pool, const MlpBatch<T>& batch, int64_t n, double scale,
               const MlpIteration<T>& iteration);

 private:
  struct Frame;   // one run's arguments
  struct Member;  // a thread's position in the team that takes a chunk through the net
  struct Chunk;   // a part of the batch

  struct Offsets {                         // of one layer, in bytes
    size_t y_panels, z_panels, dz_panels;  // shared by the team
    size_t dropped_panels, keep_panels;    // y after dropout; 0 or the factor of each
    size_t x, dw, db;                      // x: batch-major input, one copy per thread or shared
    size_t blocks;                         // for SplitLayer
    // A norm has its input, the gradients of its weights, and the moments of the samples or of the
    // outputs of its thread.
    size_t norm_panels, dgamma, dbeta, mean, rstd;
  };

  struct GradientParts {  // as in SgdArgs
    const T* first;
    int64_t count, stride;
  };

  void lay_out(int64_t n_max);
  Range own(int64_t count, const Member& m) const;
  const T* input_panels(const Member& m, size_t l) const;
  const T* saved_panels(const Member& m, size_t l) const;
  bool whole_sums(const Member& m, size_t l) const;
  int team() const { return by_batch_ ? 1 : threads_; }
  bool splits(size_t l) const;
  SplitLayer split_layer(const Member& m, int64_t n, size_t l) const;
  void split_forward(const Frame& f, const Member& m, const Chunk& c, size_t l, T* z) const;
  void use_gradient(const Frame& f, const MlpLayer<T>& layer, const GradientParts& g, int64_t at,
                    T* w, T* mw, T* vw, Range elements, T scale) const;
  void split_weight_grad(const Frame& f, const Member& m, const Chunk& c, size_t l) const;

  void gather(const Frame& f, const Member& m, const Chunk& c) const;
  void forward(const Frame& f, const Member& m, const Chunk& c, size_t l) const;
  void drop(const Frame& f, const Member& m, const Chunk& c, size_t l, Range rows) const;
  void normalise(const Frame& f, const Member& m, const Chunk& c, size_t l) const;
  void norm_grad(const Frame& f, const Member& m, const Chunk& c, size_t l) const;
  void loss(const Frame& f, const Member& m, const Chunk& c) const;
  void input_grad(const Frame& f, const Member& m, const Chunk& c, size_t l) const;
  void combine(const Frame& f, const Member& m, const Chunk& c, size_t l) const;
  void weight_grad(const Frame& f, const Member& m, const Chunk& c, size_t l) const;
  void adam(const Frame& f, const WeightGradArgs<T>& grads, size_t l, Range rows,
            Range columns) const;
  void run_chunk(const Frame& f, const Member& m, const Chunk& c) const;
  void clear_gradients(const Member& m) const;
  void update(const Frame& f, int thread) const;
  template <typename F>
  void each_tensor(F f) const;
  T clip(const Frame& f, int thread) const;

  std::vector<MlpLayer<T>> layers_;
  MlpLoss loss_;
  int threads_;
  const SplitEngine* engine_;
  T input_scale_;     // of samples that are bytes with a shift of 0; else 0
  bool by_batch_;     // threads divide the batch, not the weights
  double max_norm_;   // 0: gradients are not clipped
  bool late_;         // weights are updated when all gradients are complete
  int64_t chunk_;     // the most samples of a chunk
  bool few_classes_;  // threads divide the last layer by samples, not by rows of w
  bool copies_;       // each thread keeps its own batch-major inputs
  std::vector<Offsets> offsets_;
  size_t x_panels_ = 0, parts_ = 0, part_elements_ = 0, labels_ = 0, sparse_ = 0;
  size_t norm_parts_ = 0, norm_means_ = 0;
  size_t targets_ = 0, loss_rows_ = 0, loss_weights_ = 0;
  size_t shared_bytes_ = 0, private_bytes_ = 0;  // of a team, of each of its members
  size_t losses_ = 0, corrects_ = 0, squares_ = 0, teams_ = 0, workspace_bytes_ = 0;
  std::byte* workspace_ = nullptr;
};

}  // namespace ridgeline::cpu::simd
