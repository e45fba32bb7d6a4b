#pragma once

#include <string>
#include <vector>

#include "ridgeline/cuda/generate/net.h"

namespace ridgeline::cuda::generate {

// How a convolution is computed, with the names of device/conv.cuh. A block keeps the images of its
// samples in shared memory for the whole step. The first convolution's input is unfolded.
struct ConvPlan {
  Image in, out;  // of the convolution; `in` has the unfolded channels if it is the first one
  Window window;  // likewise: of single pixels
  bool back = false;
  int64_t group = 8;           // of which channels are padded to a multiple
  int64_t x_ld = 0, z_ld = 0;  // values per pixel of the images of inputs and outputs

  struct Product {
    int mt = 1, nt = 1, ring = 1;
  };
  Product forward, backward;
  struct Gradient {
    int mt = 1, nt = 1, split = 1;
  };
  Gradient gradient;
  bool staged = false;  // products read weights from shared memory

  int64_t taps() const { return window.h.kernel * window.w.kernel; }
  int64_t in_channels() const { return up_to(in.c, group); }  // with padding
  int64_t out_channels() const { return up_to(out.c, group); }
  int64_t weights() const { return taps() * in_channels(); }  // per output
  int64_t forward_ld(Math math) const;
  // The operand for gradients of inputs has `classes`; see device/conv.cuh.
  int64_t classes() const;
  int64_t backward_ld(int64_t k, Math math) const;
  int64_t backward_values(Math math) const;
  int64_t weight_bytes(Math math) const;  // of both operands of weights
  int64_t x_size() const;                 // values of a sample's image of inputs
  int64_t z_size() const;
  // Values of a block's part of the gradients of weights and bias.
  int64_t part() const { return up_to(out.c * weights() + out_channels(), kTask); }

  static constexpr int64_t kTask = 256;  // weights that a block updates at a time
  static int64_t up_to(int64_t extent, int64_t group) {
    return (extent + group - 1) / group * group;
  }
};

// The image that the linear layers read.
struct FlatImage {
  Image image;
  int64_t ld = 0;

  int64_t size() const { return image.pixels() * ld; }
};
FlatImage flat_image(const NetStep& net);

// Bytes for the places of a sample's maxima.
int64_t place_bytes(const MlpStepOps::Convolution& layer);

// Plans for a net's convolutions, from the input up. As much as fits into `bytes` of shared memory
// is spread over its banks there.
std::vector<ConvPlan> conv_plans(const NetStep& net, int blocks, int64_t bytes);

// Why convolutions are not covered; empty if they are.
std::string refuse_convolutions(const NetStep& net);

// Bytes of shared memory for what convolutions keep there, and for their sums.
int64_t conv_shared_bytes(const NetStep& net, const std::vector<ConvPlan>& plans, int blocks);
int64_t conv_scratch_bytes(const NetStep& net, const std::vector<ConvPlan>& plans);

}  // namespace ridgeline::cuda::generate
