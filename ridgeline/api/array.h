#pragma once

#include "ridgeline/core/tensor.h"
#include "ridgeline/ridgeline.h"

// Arrays of callers as the library's own tensors.
namespace ridgeline::api {

DType dtype_of(ArrayType type);

// A tensor over the caller's memory. Throws usage, with `what` it is, for an array without samples
// or of more than six dimensions.
Tensor tensor_of(const Array& array, const char* what);

}  // namespace ridgeline::api
