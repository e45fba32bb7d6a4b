#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "ridgeline/data/field_set.h"
#include "ridgeline/data/moments.h"
#include "ridgeline/data/prepare/rules.h"

namespace ridgeline::data {

// Calls f(samples, values) with the values of the samples `train`, ascending, of a field without
// lengths, as doubles [samples][elements]; without `train`, of all samples. Blocks have 4096
// samples, so that the fit depends only on the samples, and not on memory or threads.
using BlockFunction = std::function<void(std::span<const int64_t>, std::span<const double>)>;
void training_blocks(const Field& field, std::span<const int64_t> train, const BlockFunction& f);

// Returns the moments of each element over the training samples, after `transform`, if given.
// Missing values are skipped; `refuse_missing` throws Error(data) for the first one. Throws
// Error(data) for an infinite value. Fields of many values are divided among threads, with the same
// result.
using Transform = std::function<double(double)>;
Moments training_moments(const Field& field, std::span<const int64_t> train, bool refuse_missing,
                         const Transform& transform = nullptr);

// Sets shift and scale, one per element, from the moments of the training samples. Throws
// Error(data) for an element without any value if there is a scale.
void set_scale(const Field& field, const Moments& moments, NumberScale scale,
               std::span<double> shift, std::span<double> factor);

}  // namespace ridgeline::data
