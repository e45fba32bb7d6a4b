// Measures how fast a table of separated values becomes columns, in MB of text per second of one
// core.
//   table_read [FILE.csv] [REPEATS=5]      without a file: a generated table of 28 columns
// CPU time is counted, not wall time, so that other load on the machine matters less.
#include <fmt/core.h>

#include <cmath>
#include <ctime>
#include <string>

#include "ridgeline/core/philox.h"
#include "ridgeline/data/source/table.h"

namespace {

using namespace ridgeline;

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
}

// `digits` after the point, or all that a double has.
std::string table(int64_t records, int digits) {
  const Philox random{1, 0};
  std::string text;
  for (int64_t i = 0; i < records; ++i) {
    for (uint64_t c = 0; c < 27; ++c) {
      const double value = random.normal(uint64_t(i) * 27 + c);
      text += digits > 0 ? fmt::format("{:.{}f},", value, digits) : fmt::format("{},", value);
    }
    text += fmt::format("{}\n", i % 2);
  }
  return text;
}

void measure(const char* what, const std::function<std::unique_ptr<data::ByteStream>()>& open,
             double bytes, int repeats) {
  double best = INFINITY;
  int64_t records = 0;
  for (int i = 0; i < repeats; ++i) {
    const double begin = cpu_seconds();
    records = data::read_table(open, {}).size();
    best = std::min(best, cpu_seconds() - begin);
  }
  fmt::print("{}: {:.0f} MB/s ({} records of {:.0f} bytes)\n", what, 1e-6 * bytes / best, records,
             bytes / double(records));
}

}  // namespace

int main(int argc, char** argv) {
  const int repeats = argc > 2 ? std::stoi(argv[2]) : 5;
  if (argc > 1) {
    const auto size = double(std::filesystem::file_size(argv[1]));
    measure(
        argv[1], [&] { return data::open_bytes(argv[1]); }, size, repeats);
    return 0;
  }
  for (const int digits : {3, 6, 0}) {
    const std::string text = table(100000, digits);
    const auto open = [&]() -> std::unique_ptr<data::ByteStream> {
      return std::make_unique<data::MemoryStream>(std::as_bytes(std::span(text)), "table");
    };
    const std::string what =
        digits > 0 ? fmt::format("{} digits after the point", digits) : "all digits of a double";
    measure(what.c_str(), open, double(text.size()), repeats);
  }
}
