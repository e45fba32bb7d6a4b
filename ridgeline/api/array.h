#pragma once

#include "ridgeline/core/tensor.h"
#include "ridgeline/ridgeline.h"

// Converts callers' arrays to the library's own tensors.
namespace ridgeline::api {

DType dtype_of(ArrayType type);

// Returns a tensor over the caller's memory. Throws Error(usage), naming `what`, for an array
// without samples or of more than six dimensions.
Tensor tensor_of(const Array& array, const char* what);

}  // namespace ridgeline::api
