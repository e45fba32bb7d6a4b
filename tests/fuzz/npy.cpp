#include "ridgeline/data/source/npy.h"

#include "tests/fuzz/arrays.h"
#include "tests/fuzz/target.h"

using namespace ridgeline;

FUZZ_TARGET(npy) {
  const std::filesystem::path file = fuzz::as_file(input);
  fuzz::refused_or_read([&] { fuzz::read_all(data::read_npy(file, "x")); });
}
