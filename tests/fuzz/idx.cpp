#include "ridgeline/data/idx.h"

#include "tests/fuzz/target.h"

using namespace ridgeline;

FUZZ_TARGET(idx) {
  const std::filesystem::path file = fuzz::as_file(input);
  fuzz::refused_or_read([&] { data::read_idx(file); });
  for (const bool header : {true, false}) {
    fuzz::refused_or_read([&] {
      data::SampleStream samples(file, Shape{3, 2}, header);
      std::vector<uint8_t> out;
      while (samples.read(2, out) == 2) out.clear();
    });
  }
}
