#include <cmath>

#include "ridgeline/cpu/simd/batch.h"
#include "ridgeline/cpu/simd/mlp_step.h"
#include "ridgeline/cpu/simd/mlp_step_team.h"
#include "ridgeline/cpu/simd/panel_norm.h"

namespace ridgeline::cpu::simd {

// Normalises the own outputs of a layer and applies its activation. The members of a team that
// divide the outputs exchange only what theirs contribute to each sample's moments.
template <typename T>
void MlpStep<T>::normalise(const Frame& f, const Member& m, const Chunk& c, size_t l) const {
  const PanelNormFunctions<T>& functions = panel_norm_functions<T>();
  const MlpLayer<T>& layer = layers_[l];
  const MlpNorm<T>& norm = layer.norm;
  const Offsets& o = offsets_[l];
  const Range rows = own(layer.out, m);
  T* const y = m.ours(o.y_panels);
  T* const z = layer.act.saves_input() ? m.ours(o.z_panels) : y;
  T *const mean = m.own(o.mean), *const rstd = m.own(o.rstd);
  PanelNormArgs<T> args{
      m.ours(o.norm_panels), z, norm.gamma, norm.beta, c.n, layer.out, mean, rstd};
  if (norm.over == MlpNorm<T>::Over::batch) {
    args.epsilon = norm.epsilon;
    args.momentum = norm.momentum;
    args.running_mean = norm.running_mean;
    args.running_var = norm.running_var;
    functions.batch(args, rows);
    if (m.index == 0) ++*norm.batches;
  } else {
    const int64_t samples = panels_of<T>(c.n) * kPanel<T>;
    auto* const parts = reinterpret_cast<double*>(m.shared + norm_parts_);  // [count, 2, samples]
    double* const mine = parts + 2 * m.index * samples;
    functions.moments(args, rows, {mine, mine + samples, norm.centred});
    m.barrier();
    const auto width = double(layer.out);
    for (int64_t r = 0; r < samples; ++r) {
      double middle = 0, squares = 0;
      for (int i = 0; norm.centred && i < m.count; ++i) {
        const Range part = own(layer.out, {nullptr, i, m.count, nullptr, nullptr});
        middle += double(part.end - part.begin) / width * parts[2 * i * samples + r];
      }
      for (int i = 0; i < m.count; ++i) {
        const Range part = own(layer.out, {nullptr, i, m.count, nullptr, nullptr});
        const double off = parts[2 * i * samples + r] - middle;
        squares += parts[(2 * i + 1) * samples + r] + double(part.end - part.begin) * off * off;
      }
      mean[r] = T(middle);
      rstd[r] = T(1 / std::sqrt(squares / width + norm.epsilon));
    }
    functions.forward(args, rows);
  }
  if (layer.act == ActivationKind::none) return;
  for (int64_t p = 0; p < panels_of<T>(c.n); ++p) {
    const int64_t at = (p * layer.out + rows.begin) * kPanel<T>;
    f.batch_kernels.activate(layer.act, z + at, y + at, (rows.end - rows.begin) * kPanel<T>);
  }
}

// Turns the gradient of a layer's normalised outputs into that of the linear layer's, and uses the
// gradients of gamma and beta.
template <typename T>
void MlpStep<T>::norm_grad(const Frame& f, const Member& m, const Chunk& c, size_t l) const {
  const PanelNormFunctions<T>& functions = panel_norm_functions<T>();
  const MlpLayer<T>& layer = layers_[l];
  const MlpNorm<T>& norm = layer.norm;
  const Offsets& o = offsets_[l];
  const Range rows = own(layer.out, m);
  PanelNormGradArgs<T> args{m.ours(o.norm_panels),
                            m.ours(o.dz_panels),
                            norm.gamma,
                            m.own(o.mean),
                            m.own(o.rstd),
                            c.n,
                            layer.out,
                            norm.gamma != nullptr ? m.ours(o.dgamma) : nullptr,
                            norm.beta != nullptr ? m.ours(o.dbeta) : nullptr,
                            !c.first};
  if (norm.over == MlpNorm<T>::Over::batch) {
    functions.batch_grad(args, rows);
  } else {
    const int64_t samples = panels_of<T>(c.n) * kPanel<T>;
    T* const parts = m.ours(norm_parts_);  // [count, 2, samples]
    T* const mine = parts + 2 * m.index * samples;
    functions.slopes(args, rows, {mine, mine + samples});
    m.barrier();
    T* const means = m.own(norm_means_);
    for (int64_t r = 0; r < 2 * samples; ++r) {
      T sum = 0;
      for (int i = 0; i < m.count; ++i) sum += parts[2 * i * samples + r];
      means[r] = r < samples && !norm.centred ? T(0) : sum / T(layer.out);
    }
    functions.grad(args, rows, {means, means + samples});
  }
  if (!c.last || late_) return;
  const auto use = [&](T* w, const T* dw, T* mw, T* vw) {
    if (w != nullptr) use_gradient(f, layer, {dw, 1, 0}, 0, w, mw, vw, rows, T(1));
  };
  use(norm.gamma, args.dgamma, norm.m_gamma, norm.v_gamma);
  use(norm.beta, args.dbeta, norm.m_beta, norm.v_beta);
}

template void MlpStep<float>::normalise(const Frame&, const Member&, const Chunk&, size_t) const;
template void MlpStep<float>::norm_grad(const Frame&, const Member&, const Chunk&, size_t) const;
template void MlpStep<double>::normalise(const Frame&, const Member&, const Chunk&, size_t) const;
template void MlpStep<double>::norm_grad(const Frame&, const Member&, const Chunk&, size_t) const;

}  // namespace ridgeline::cpu::simd
