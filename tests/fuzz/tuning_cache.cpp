#include "ridgeline/plan/cache.h"
#include "tests/fuzz/target.h"

using namespace ridgeline;

// Any file content is read as some cache, and written as one that reads back.
FUZZ_TARGET(tuning_cache) {
  const std::filesystem::path file = fuzz::as_file(input, "tuning.json");
  TuningCache cache(file, "environment");
  cache.set_kernel_seconds("kernel", 2.0);
  cache.set_plan("program", {{"a", "b"}, 1.0});
  cache.save();
  const TuningCache again(file, "environment");
  fuzz::expect(again.kernel_seconds("kernel") == 2.0, "the seconds that were kept");
  fuzz::expect(again.plan("program").has_value(), "the plan that was kept");
}
