#include "ridgeline/engine/config.h"

#include "tests/fuzz/target.h"

using namespace ridgeline;

// A config that is accepted is written as one that reads back to the same config.
FUZZ_TARGET(config) {
  fuzz::refused_or_read([&] {
    const engine::Config config = engine::parse_config(std::string(fuzz::as_text(input)), "config");
    const std::string written = engine::to_toml(config);
    const std::string again = engine::to_toml(engine::parse_config(written, "written"));
    fuzz::expect(again == written, written);
  });
}
