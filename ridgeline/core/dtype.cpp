#include "ridgeline/core/dtype.h"

namespace ridgeline {

std::string_view name(DType dtype) {
  switch (dtype) {
    case DType::fp64:
      return "fp64";
    case DType::fp32:
      return "fp32";
    case DType::bf16:
      return "bf16";
    case DType::fp16:
      return "fp16";
    case DType::int32:
      return "int32";
    case DType::int64:
      return "int64";
    case DType::uint8:
      return "uint8";
  }
  return "unknown";
}

double unit_roundoff(DType dtype) {
  switch (dtype) {
    case DType::fp64:
      return 0x1p-53;
    case DType::fp32:
      return 0x1p-24;
    case DType::fp16:
      return 0x1p-11;
    case DType::bf16:
      return 0x1p-8;
    default:
      return 0.0;
  }
}

}  // namespace ridgeline
