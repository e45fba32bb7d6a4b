#include <algorithm>
#include <array>

#include "ridgeline/data/csv.h"
#include "ridgeline/data/csv_columns.h"
#include "ridgeline/engine/stream/sample_sources.h"

namespace ridgeline::engine {
namespace {

// A range of a file's bytes; it keeps the file open.
class ShardBytes final : public data::ByteStream {
 public:
  ShardBytes(const std::filesystem::path& path, Range bytes)
      : file_(path), part_(file_, bytes.begin, bytes.end) {}
  size_t read(std::span<std::byte> out) override { return part_.read(out); }
  const std::string& name() const override { return file_.name(); }

 private:
  data::InputFile file_;
  data::FilePart part_;
};

// Calls use(bytes) on the bytes of a range, block by block, until it returns false.
template <typename F>
void for_blocks(data::InputFile& file, Range range, F use) {
  std::vector<char> block(size_t{1} << 20);
  data::FilePart part(file, range.begin, range.end);
  for (;;) {
    const size_t got = part.read(std::as_writable_bytes(std::span(block)));
    if (got == 0 || !use(std::string_view(block.data(), got))) return;
  }
}

int64_t count(data::InputFile& file, Range range, char wanted) {
  int64_t found = 0;
  for_blocks(file, range, [&](std::string_view bytes) {
    found += std::count(bytes.begin(), bytes.end(), wanted);
    return true;
  });
  return found;
}

// Returns the position after the first line end from `at` on that is outside quotes.
int64_t next_record(data::InputFile& file, int64_t at, bool quoted, bool csv) {
  int64_t place = at, found = -1;
  for_blocks(file, {at, file.size()}, [&](std::string_view bytes) {
    for (size_t i = 0; i < bytes.size(); ++i) {
      if (csv && bytes[i] == '"') quoted = !quoted;
      if (bytes[i] != '\n' || quoted) continue;
      found = place + int64_t(i) + 1;
      return false;
    }
    place += int64_t(bytes.size());
    return true;
  });
  return found < 0 ? file.size() : found;
}

struct Head {
  int64_t bytes = 0, lines = 0;  // before the first record
  data::TextPlace place;
  data::TextColumns columns;  // as numbers
};

Head read_head(const std::filesystem::path& path, const data::TextColumns& columns) {
  data::InputFile file(path);
  std::array<std::byte, 3> first{};
  const bool mark = file.peek(first) == 3 && first[0] == std::byte{0xef} &&
                    first[1] == std::byte{0xbb} && first[2] == std::byte{0xbf};
  Head head{mark ? 3 : 0, 0, {}, columns};
  if (columns.format != data::TextFormat::csv) return head;
  {
    data::TextSplitter splitter(std::make_unique<ShardBytes>(path, Range{0, file.size()}), columns);
    head.columns = splitter.columns();
  }
  data::FilePart part(file, 0, file.size());
  data::CsvReader reader(part);
  std::string_view text;
  bool header = head.columns.text != columns.text;
  for (;;) {
    const auto found = reader.next_raw(text);
    if (found == data::CsvReader::Raw::end) return head;
    if (found == data::CsvReader::Raw::record && !header) break;
    if (found == data::CsvReader::Raw::record) header = false;
    head.bytes += int64_t(text.size());
    head.lines += std::count(text.begin(), text.end(), '\n');
  }
  head.place.columns = reader.columns();
  return head;
}

// Returns the sum of the values of the ranks before this one. Collective.
int64_t sum_before(Communicator& ranks, int64_t mine) {
  std::vector<int64_t> all(size_t(ranks.size()));
  ranks.all_gather(&mine, all.data(), sizeof(mine));
  int64_t sum = 0;
  for (int r = 0; r < ranks.rank(); ++r) sum += all[size_t(r)];
  return sum;
}

std::unique_ptr<SampleSource> open_text_part(const std::filesystem::path& path,
                                             const data::TextColumns& columns,
                                             Communicator& ranks) {
  data::InputFile file(path);
  if (data::ByteSource(file).compressed()) {
    throw_error(
        ErrorKind::usage,
        "{}: ranks cannot each read a part of a gzip file; unpack it, or leave --sharded-input "
        "out",
        file.name());
  }
  const Head head = read_head(path, columns);
  const bool csv = columns.format == data::TextFormat::csv;
  const Range share = split(file.size() - head.bytes, ranks.rank(), ranks.size());
  const int64_t begin = head.bytes + share.begin;
  // Whether a share begins inside a quoted field is known once the quotes before it are counted.
  const Range own{begin, head.bytes + share.end};
  const int64_t quotes = csv ? sum_before(ranks, count(file, own, '"')) : 0;
  int64_t start = head.bytes;
  if (begin > head.bytes) {  // else the share begins where the records do
    std::array<std::byte, 1> last{};
    file.peek(last, begin - 1);
    const bool closes = csv && last[0] == std::byte{'"'};
    start = next_record(file, begin - 1, (quotes - closes) % 2 != 0, csv);
  }
  std::vector<int64_t> starts(size_t(ranks.size()));
  ranks.all_gather(&start, starts.data(), sizeof(start));
  const bool is_last = ranks.rank() + 1 == ranks.size();
  const Range part{start, is_last ? file.size() : starts[size_t(ranks.rank()) + 1]};

  data::TextPlace place = head.place;
  place.begins_file = false;  // the byte order mark is in no part
  place.line = 1 + head.lines + sum_before(ranks, count(file, part, '\n'));
  int64_t records = 0;
  data::TextSplitter counter(std::make_unique<ShardBytes>(path, part), head.columns, place);
  for (std::vector<uint8_t> bytes;; bytes.clear()) {
    const int64_t found = counter.next(4096, bytes).records;
    if (found == 0) break;
    records += found;
  }
  auto source = make_text_source(std::make_unique<ShardBytes>(path, part), head.columns, place);
  source->count_from(0, sum_before(ranks, records));
  return source;
}

}  // namespace

std::unique_ptr<SampleSource> open_shard(const std::filesystem::path& file,
                                         const LoadedModel& model, const InputOptions& options,
                                         Communicator& ranks) {
  if (model.preparation) {
    throw_error(
        ErrorKind::usage,
        "{}: tables, arrays and folders are read by the first rank; leave --sharded-input out",
        file.string());
  }
  if (const auto columns = text_columns(file, model, options)) {
    return open_text_part(file, *columns, ranks);
  }
  int64_t first = 0;
  auto source = make_image_source(file, model, options, [&](int64_t samples) {
    const Range part = split(samples, ranks.rank(), ranks.size());
    first = part.begin;
    return part;
  });
  source->count_from(0, first);
  return source;
}

}  // namespace ridgeline::engine
