#pragma once

#include "ridgeline/cuda/recurrent/batch_parallel_pass.cuh"

// The products for which GPU functions are built.
namespace ridgeline::cuda::recurrent {

// Calls f<Product> with the forward product of a layout.
template <typename T, Cell kCell, typename F>
auto with_forward_product(const BatchParallelLayout& layout, const F& f) {
  if constexpr (sizeof(T) == 4) {
    if (layout.places == 64) {
      return f.template operator()<FmaForwardProduct<kCell, 64, 64, 1>>();
    }
    if (layout.places == 128) {
      constexpr int kUnits = fma_units(kCell, 128);
      return f.template operator()<FmaForwardProduct<kCell, kUnits, 128, 128 / kUnits>>();
    }
    return f.template operator()<FmaForwardProduct<kCell, fma_units(kCell, 256), 256, 2>>();
  } else {
    const auto with_inputs = [&]<int kChunks>() {
      if (layout.takes_x) return f.template operator()<MmaForwardProduct<T, kCell, kChunks, 1>>();
      return f.template operator()<MmaForwardProduct<T, kCell, kChunks, 0>>();
    };
    if constexpr (cell_gates(kCell) == 1) {
      if (layout.places == 256) return with_inputs.template operator()<8>();
    } else {
      if (layout.places == 64) return with_inputs.template operator()<2>();
      if (layout.places == 256) return f.template operator()<ClusterMmaForwardProduct<T, kCell>>();
    }
    return with_inputs.template operator()<4>();
  }
}

// Calls f<Product> with the backward product of a layout.
template <typename T, Cell kCell, typename F>
auto with_backward_product(const BatchParallelLayout& layout, const F& f) {
  if constexpr (sizeof(T) == 4) {
    if (layout.places == 64) {
      return f.template operator()<FmaBackwardProduct<kCell, 64, 64, 1>>();
    }
    if (layout.places == 128) {
      constexpr int kUnits = fma_units(kCell, 128);
      return f.template operator()<FmaBackwardProduct<kCell, kUnits, 128, 128 / kUnits>>();
    }
    return f.template operator()<FmaBackwardProduct<kCell, fma_units(kCell, 256), 256, 2>>();
  } else {
    if constexpr (cell_gates(kCell) == 1) {
      if (layout.places == 256) return f.template operator()<MmaBackwardProduct<T, kCell, 8>>();
    } else {
      if (layout.places == 64) return f.template operator()<MmaBackwardProduct<T, kCell, 2>>();
      if (layout.places == 256) return f.template operator()<ClusterMmaBackwardProduct<T, kCell>>();
    }
    return f.template operator()<MmaBackwardProduct<T, kCell, 4>>();
  }
}

}  // namespace ridgeline::cuda::recurrent
