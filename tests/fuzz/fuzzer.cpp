// libFuzzer's entry point: runs the target that RIDGELINE_FUZZ_TARGET names.
#include <cstdlib>

#include "tests/fuzz/target.h"

namespace {

ridgeline::fuzz::Run named_target() {
  const char* const name = std::getenv("RIDGELINE_FUZZ_TARGET");
  const auto found = ridgeline::fuzz::targets().find(name == nullptr ? "" : name);
  ridgeline::fuzz::expect(found != ridgeline::fuzz::targets().end(),
                          "the name of a target in RIDGELINE_FUZZ_TARGET");
  return found->second;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t count) {
  static const ridgeline::fuzz::Run run = named_target();
  run({bytes, count});
  return 0;
}
