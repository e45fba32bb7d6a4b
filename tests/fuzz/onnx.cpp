#include "ridgeline/onnx/onnx.h"

#include "tests/fuzz/target.h"

using namespace ridgeline;

FUZZ_TARGET(onnx) {
  if (!onnx::available()) return;
  const std::filesystem::path file = fuzz::as_file(input, "input.onnx");
  fuzz::refused_or_read([&] { onnx::import_model(file); });
}
