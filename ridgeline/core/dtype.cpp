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

DType parse_dtype(std::string_view text) {
  for (const DType dtype : {DType::fp64, DType::fp32, DType::bf16, DType::fp16, DType::int32,
                            DType::int64, DType::uint8}) {
    if (text == name(dtype)) return dtype;
  }
  throw_error(ErrorKind::usage,
              "'{}' is not a data type; use fp64, fp32, bf16, fp16, int32, int64 or uint8", text);
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
