#pragma once

#include <cstdint>

#include "ridgeline/data/sample_set.h"

namespace ridgeline::data {

// Scales each image to height x width by bilinear interpolation like PyTorch's with
// align_corners=False: output pixel i samples (i + 0.5) * from / to - 0.5, clamped to the image,
// without a filter when it shrinks. Rounded to the nearest byte, halves away from zero, in exact
// integer arithmetic: the same bytes on every machine. images: uint8 [n, h, w] or [n, c, h, w].
// Throws Error(data) for any other shape.
HostTensor resize(const Tensor& images, int64_t height, int64_t width);

// Scales each image by the mean of the area that an output pixel covers, with partially covered
// pixels counted in part. It suits reduction, where bilinear interpolation skips pixels. Exact, and
// rounded in the same way.
HostTensor resize_by_area(const Tensor& images, int64_t height, int64_t width);

// Resizes a set's images and updates its hash.
void resize(SampleSet& set, int64_t height, int64_t width);

}  // namespace ridgeline::data
