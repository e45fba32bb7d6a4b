#include "ridgeline/core/precision.h"

namespace ridgeline {

std::string_view name(Precision precision) {
  switch (precision) {
    case Precision::fp64:
      return "fp64";
    case Precision::fp32:
      return "fp32";
    case Precision::fp32x3:
      return "fp32x3";
    case Precision::tf32:
      return "tf32";
    case Precision::bf16:
      return "bf16";
    case Precision::fp16:
      return "fp16";
  }
  return "unknown";
}

Precision parse_precision(std::string_view text) {
  for (const Precision precision : kPrecisions) {
    if (text == name(precision)) return precision;
  }
  throw_error(ErrorKind::usage,
              "'{}' is not a precision; use fp64, fp32, fp32x3, tf32, bf16 or fp16", text);
}

std::string to_string(Precisions precisions) {
  if (precisions == kEveryPrecision) return "every";
  std::string text;
  for (const Precision precision : kPrecisions) {
    if (!precisions.has(precision)) continue;
    if (!text.empty()) text += ", ";
    text += name(precision);
  }
  return text;
}

}  // namespace ridgeline
