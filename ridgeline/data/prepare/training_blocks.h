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

// Learns shift and scale, one an element, from the training samples; `transform`, if there is one,
// comes before them. Missing values are left out. Throws data for an infinite value, and for an
// element without any value where a scale is to be learnt.
void fit_scale(const Field& field, std::span<const int64_t> train, NumberScale scale,
               const std::function<double(double)>& transform, std::span<double> shift,
               std::span<double> factor);

}  // namespace ridgeline::data
