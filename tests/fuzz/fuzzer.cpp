// libFuzzer's entry point: runs the one target that is linked with it.
#include "tests/fuzz/target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t count) {
  static const ridgeline::fuzz::Run run = ridgeline::fuzz::targets().begin()->second;
  run({bytes, count});
  return 0;
}
