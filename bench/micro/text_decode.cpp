// How fast texts become codes: cutting a CSV file into pieces of whole records (one thread), and
// parsing and encoding the pieces (several).
//   text_decode FILE.csv [COLUMNS=2,3] [RECORDS A PIECE=4096] [THREADS=1,2,4]
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

struct Piece {
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

uint64_t decode(const Piece& piece, const data::TextColumns& columns,
                const data::TextCoding& coding, std::vector<uint8_t>& items) {
  const auto length = size_t(coding.length);
  items.resize(size_t(piece.records) * length);
  const auto reader = data::open_text(
      std::make_unique<data::MemoryStream>(std::as_bytes(std::span(piece.bytes)), "piece"), columns,
      piece.place);
  size_t row = 0;
  for (data::TextRecord record; reader->next(record); ++row) {
    coding.vocabulary.encode(record.text, coding.backward,
                             std::span(items).subspan(row * length, length));
  }
  return items.back();
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
  std::vector<Piece> pieces;
  int64_t rows = 0;
  double bytes = 0;
  for (;;) {
    Piece piece;
    const auto found = splitter.next(records, piece.bytes);
    if (found.records == 0) break;
    piece.records = found.records;
    piece.place = found.place;
    rows += found.records;
    bytes += double(piece.bytes.size());
    pieces.push_back(std::move(piece));
  }
  const double splitting = since(begin);
  fmt::print("split, 1 thread: {:.0f} rows/s, {:.0f} MB/s ({} rows of {:.0f} bytes)\n",
             double(rows) / splitting, 1e-6 * bytes / splitting, rows, bytes / double(rows));
  for (const std::string& text : split(argc > 4 ? argv[4] : "1,2,4")) {
    const int threads = std::stoi(text);
    std::atomic<size_t> next{0};
    std::atomic<uint64_t> used{0};
    const auto start = Clock::now();
    {
      std::vector<std::jthread> team;
      for (int i = 0; i < threads; ++i) {
        team.emplace_back([&] {
          std::vector<uint8_t> items;
          for (size_t at = next++; at < pieces.size(); at = next++) {
            used += decode(pieces[at], splitter.columns(), coding, items);
          }
        });
      }
    }
    const double seconds = since(start);
    fmt::print("parse and encode, {} thread{}: {:.0f} rows/s\n", threads, threads == 1 ? "" : "s",
               double(rows) / seconds);
  }
}
