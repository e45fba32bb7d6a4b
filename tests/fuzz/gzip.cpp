#include <array>

#include "ridgeline/data/input_file.h"
#include "tests/fuzz/target.h"

using namespace ridgeline;

FUZZ_TARGET(gzip) {
  const std::filesystem::path file = fuzz::as_file(input);
  fuzz::refused_or_read([&] {
    const auto bytes = data::open_bytes(file);
    std::array<std::byte, 4096> out;
    size_t read = 0;
    while (read < size_t{1} << 20) {
      const size_t got = bytes->read(out);
      read += got;
      if (got < out.size()) break;
    }
  });
}
