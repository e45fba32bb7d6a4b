#include "ridgeline/data/source/npz.h"

#include "tests/fuzz/arrays.h"
#include "tests/fuzz/target.h"

using namespace ridgeline;

FUZZ_TARGET(npz) {
  const std::filesystem::path file = fuzz::as_file(input);
  fuzz::refused_or_read([&] {
    for (const data::Field& field : data::read_npz(file)) fuzz::read_all(field);
  });
}
