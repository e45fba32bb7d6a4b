#pragma once

#include <cstdint>

#include "ridgeline/data/sample_set.h"

namespace ridgeline::data {

// Each image scaled to height x width by bilinear interpolation, PyTorch's with
// align_corners=False: output pixel i looks at (i + 0.5) * from / to - 0.5, clamped to the image,
// without a filter when it shrinks. Rounded to the nearest byte, halves away from zero, in exact
// integer arithmetic: the same bytes on every machine. images: uint8 [n, h, w] or [n, c, h, w].
// Throws data for any other shape.
HostTensor resize(const Tensor& images, int64_t height, int64_t width);

// Each image scaled by the mean of the area that an output pixel covers, pixels that it covers in
// part counted in part: what a shrunk image should be, since bilinear interpolation skips pixels
// then. Exact and rounded likewise.
HostTensor resize_by_area(const Tensor& images, int64_t height, int64_t width);

// The same of a set's images; its hash follows.
void resize(SampleSet& set, int64_t height, int64_t width);

}  // namespace ridgeline::data
