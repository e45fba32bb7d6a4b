#pragma once

#include <string>
#include <vector>

#include "ridgeline/cpu/simd/nhwc_conv.h"
#include "ridgeline/cpu/simd/winograd1d_conv.h"
#include "ridgeline/plan/kernel.h"

namespace ridgeline::cpu::simd {

// A convolution or a pool with what is fused into it.
struct ConvNetLayer {
  const Conv2d* conv = nullptr;  // or
  const MaxPool* max = nullptr;  // or
  const AvgPool* average = nullptr;
  SimdActivation act{}, after{};
  Value x{}, residual{}, y{};

  Image in() const {
    return conv != nullptr ? conv->shape.in : max != nullptr ? max->shape.in : average->shape.in;
  }
  Image out() const {
    return conv != nullptr  ? conv->shape.out()
           : max != nullptr ? max->shape.out()
                            : average->shape.out();
  }
  // Whether winograd1d_conv.h computes it: a convolution of a signal over many channels.
  bool winograd1d() const {
    if (conv == nullptr || residual || after != ActivationKind::none) return false;
    if (act != ActivationKind::none && act != ActivationKind::relu) return false;
    const Conv2dShape& s = conv->shape;
    const Slide& right = s.window.w;
    constexpr int64_t kFewest = 32;  // with fewer the bound of a direct sum is too tight
    return s.in.h == 1 && s.window.h == Slide{} && s.groups == 1 && right.kernel >= 3 &&
           right.kernel <= 7 && right == Slide{right.kernel} && s.in.c >= kFewest &&
           s.k % kWinograd1dPanel == 0;
  }
  Winograd1dShape winograd1d_shape(int64_t images) const {
    const Conv2dShape& s = conv->shape;
    return {images, s.in.w, nhwc_pixel(s.in.c), s.k, s.window.w.kernel, act == ActivationKind::relu,
            false};
  }
};

// The layers of the longest stretch of ops, from the next one on, whose values but the last stay
// inside it.
struct ConvNetLayers {
  // Takes at most `most` ops.
  ConvNetLayers(const RemainingOps& rest, size_t most);

  std::vector<ConvNetLayer> layers;
  std::vector<ValueId> inner;  // the values that stay inside
  size_t ops = 0;              // 0: there is no convolution
  std::string why;             // the stretch ends where it does; empty at the end of the program

  int64_t n() const { return layers.front().x.shape[0]; }
};

}  // namespace ridgeline::cpu::simd
