// Measures how fast texts become codes: cutting a CSV file into chunks of whole records (one
// thread), and parsing and encoding the chunks (several).
//   text_decode FILE.csv [COLUMNS=2,3] [RECORDS A CHUNK=4096] [THREADS=1,2,4]
#include <fmt/core.h>

#include <atomic>
#include <chrono>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "ridgeline/data/text_set.h"
#include "ridgeline/data/text_splitter.h"

namespace {

using namespace ridgeline;
using Clock = std::chrono::steady_clock;

struct Chunk {
  std::vector<uint8_t> bytes;
  int64_t records;
  data::TextPlace place;
};

double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) parts.push_back(part);
  return parts;
}

uint64_t decode(const Chunk& chunk, const data::TextColumns& columns,
                const data::TextCoding& coding, std::vector<uint8_t>& codes) {
  const auto length = size_t(coding.length);
  codes.resize(size_t(chunk.records) * length);
  const auto reader = data::open_text(
      std::make_unique<data::MemoryStream>(std::as_bytes(std::span(chunk.bytes)), "chunk"), columns,
      chunk.place);
  size_t sample = 0;
  for (data::TextRecord record; reader->next(record); ++sample) {
    coding.vocabulary.encode(record.text, coding.backward,
                             std::span(codes).subspan(sample * length, length));
  }
  return codes.back();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  data::TextColumns columns;
  columns.format = data::TextFormat::csv;
  columns.text = split(argc > 2 ? argv[2] : "2,3");
  const int64_t records = argc > 3 ? std::stoll(argv[3]) : 4096;
  const data::TextCoding coding;

  const auto begin = Clock::now();
  data::TextSplitter splitter(data::open_bytes(argv[1]), columns);
  std::vector<Chunk> chunks;
  int64_t samples = 0;
  double bytes = 0;
  for (;;) {
    Chunk chunk;
    const auto found = splitter.next(records, chunk.bytes);
    if (found.records == 0) break;
    chunk.records = found.records;
    chunk.place = found.place;
    samples += found.records;
    bytes += double(chunk.bytes.size());
    chunks.push_back(std::move(chunk));
  }
  const double splitting = since(begin);
  fmt::print("split, 1 thread: {:.0f} samples/s, {:.0f} MB/s ({} samples of {:.0f} bytes)\n",
             double(samples) / splitting, 1e-6 * bytes / splitting, samples,
             bytes / double(samples));
  for (const std::string& text : split(argc > 4 ? argv[4] : "1,2,4")) {
    const int threads = std::stoi(text);
    std::atomic<size_t> next{0};
    std::atomic<uint64_t> used{0};
    const auto start = Clock::now();
    {
      std::vector<std::jthread> team;
      for (int i = 0; i < threads; ++i) {
        team.emplace_back([&] {
          std::vector<uint8_t> codes;
          for (size_t at = next++; at < chunks.size(); at = next++) {
            used += decode(chunks[at], splitter.columns(), coding, codes);
          }
        });
      }
    }
    const double seconds = since(start);
    fmt::print("parse and encode, {} thread{}: {:.0f} samples/s\n", threads,
               threads == 1 ? "" : "s", double(samples) / seconds);
  }
}
