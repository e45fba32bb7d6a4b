#include "ridgeline/data/csv.h"
#include "ridgeline/data/text_splitter.h"
#include "tests/fuzz/target.h"

using namespace ridgeline;

namespace {

std::unique_ptr<data::ByteStream> stream(fuzz::Input input) {
  return std::make_unique<data::MemoryStream>(fuzz::as_bytes(input), "texts");
}

struct Read {
  std::vector<std::string> texts;
  bool good = false;  // to the end
};

Read read_texts(data::TextReader& reader) {
  Read read;
  fuzz::refused_or_read([&] {
    data::TextRecord record;
    while (reader.next(record)) read.texts.emplace_back(record.text);
    read.good = true;
  });
  return read;
}

}  // namespace

// Labelled texts of a CSV file. Read as a whole or in blocks, with any buffer size, they are the
// same.
FUZZ_TARGET(text_csv) {
  const data::TextColumns columns{
      .format = data::TextFormat::csv, .text = {"2", "3"}, .label = "1"};
  Read whole;
  fuzz::refused_or_read([&] { whole = read_texts(*data::open_text(stream(input), columns, {})); });
  fuzz::refused_or_read([&] {
    data::MemoryStream bytes(fuzz::as_bytes(input), "texts");
    data::CsvReader small(bytes, ',', /*chunk=*/3);
    std::vector<std::string_view> fields;
    size_t records = 0;
    while (small.next(fields)) ++records;
    if (whole.good) fuzz::expect(records == whole.texts.size(), "as many records in small chunks");
  });
  if (!whole.good) return;
  fuzz::refused_or_read([&] {
    data::TextSplitter splitter(stream(input), columns);
    std::vector<std::string> texts;
    while (splitter.more()) {
      std::vector<uint8_t> out;
      const data::TextSplitter::Block block = splitter.next(2, out);
      const Read part = read_texts(*data::open_text(stream(out), splitter.columns(), block.place));
      fuzz::expect(int64_t(part.texts.size()) == block.records,
                   "as many records as the block says");
      texts.insert(texts.end(), part.texts.begin(), part.texts.end());
    }
    fuzz::expect(texts == whole.texts, "the same texts in blocks");
  });
}
