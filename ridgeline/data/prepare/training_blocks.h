#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "ridgeline/data/field_set.h"
#include "ridgeline/data/moments.h"
#include "ridgeline/data/prepare/rules.h"

namespace ridgeline::data {

// Calls f(samples, values) with the values of the samples `train`, ascending, of a field without
// lengths, as doubles [samples][elements]; no `train`: of all samples. Blocks are of 4096 samples,
// so that what is learnt depends on the samples alone, and not on memory or threads.
using BlockFunction = std::function<void(std::span<const int64_t>, std::span<const double>)>;
void training_blocks(const Field& field, std::span<const int64_t> train, const BlockFunction& f);

// The moments of each element over the training samples; `transform`, if there is one, comes before
// them. Missing values are left out; `refuse_missing` throws data for the first one. Throws data
// for an infinite value. Fields of many values are shared out among threads, with the same result.
using Transform = std::function<double(double)>;
Moments training_moments(const Field& field, std::span<const int64_t> train, bool refuse_missing,
                         const Transform& transform = nullptr);

// Shift and scale, one an element, from what was learnt of the training samples. Throws data for an
// element without any value where there is a scale.
void set_scale(const Field& field, const Moments& moments, NumberScale scale,
               std::span<double> shift, std::span<double> factor);

}  // namespace ridgeline::data
