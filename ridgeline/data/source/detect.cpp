#include "ridgeline/data/source/detect.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "ridgeline/core/error.h"
#include "ridgeline/core/text_format.h"
#include "ridgeline/data/idx_header.h"
#include "ridgeline/data/input_file.h"
#include "ridgeline/data/record_buffer.h"
#include "ridgeline/data/source/number.h"
#include "ridgeline/data/source/table_format.h"

namespace ridgeline::data {
namespace {

constexpr size_t kSample = size_t{64} << 10;

struct Magic {
  std::string_view bytes;
  Content content;
};
using namespace std::string_view_literals;
constexpr std::array<Magic, 16> kMagics{{
    {"\x93NUMPY"sv, Content::npy},
    {"\x89PNG\r\n\x1a\n"sv, Content::png},
    {"\xff\xd8\xff"sv, Content::jpeg},
    {"GIF8"sv, Content::gif},
    {"II*\0"sv, Content::tiff},
    {"MM\0*"sv, Content::tiff},
    {"\x89HDF\r\n\x1a\n"sv, Content::hdf5},
    {"PAR1"sv, Content::parquet},
    {"%PDF-"sv, Content::pdf},
    {"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"sv, Content::excel},  // before 2007
    {"\xfd"
     "7zXZ\0"sv,
     Content::packed},
    {"\x28\xb5\x2f\xfd"sv, Content::packed},  // zstd
    {"7z\xbc\xaf\x27\x1c"sv, Content::packed},
    {"ARROW1"sv, Content::arrow},
    {"FEA1"sv, Content::arrow},
    {"SQLite format 3\0"sv, Content::sqlite},
}};

struct Kind {
  Content content;
  std::string_view title, remedy;
};
constexpr std::string_view kRunsCode =
    "a pickle can run code when it is read, and is never read here; save arrays instead: "
    "np.save(\"x.npy\", x)";
constexpr std::string_view kConvertImage = "convert it to PNG or JPEG";
constexpr std::array<Kind, 27> kKinds{{
    {Content::empty, "empty", "get it again"},
    {Content::npy, "a NumPy array (.npy)", ""},
    {Content::npz, "an archive of NumPy arrays (.npz)", ""},
    {Content::torch, "a PyTorch file (a pickle in a zip archive)", kRunsCode},
    {Content::excel, "a spreadsheet or document of an office program", "export the table as CSV"},
    {Content::zip, "a zip archive", "unpack it and give the files in it"},
    {Content::pickle, "a Python pickle", kRunsCode},
    {Content::png, "a PNG image", ""},
    {Content::jpeg, "a JPEG image", ""},
    {Content::gif, "a GIF image", kConvertImage},
    {Content::bmp, "a BMP image", kConvertImage},
    {Content::webp, "a WebP image", kConvertImage},
    {Content::tiff, "a TIFF image", kConvertImage},
    {Content::hdf5, "an HDF5 file", "save its arrays with NumPy: np.savez(\"x.npz\", x=x, y=y)"},
    {Content::parquet, "a Parquet table",
     "save it as CSV: pandas.read_parquet(file).to_csv(\"table.csv\", index=False)"},
    {Content::arrow, "an Arrow or Feather table",
     "save it as CSV: pandas.read_feather(file).to_csv(\"table.csv\", index=False)"},
    {Content::sqlite, "an SQLite database",
     "export the table: sqlite3 -header -csv FILE \"select * from TABLE\" > table.csv"},
    {Content::packed, "a file packed by bzip2, xz, zstd or 7-Zip",
     "unpack it, or pack it by gzip, which is read"},
    {Content::pdf, "a PDF document", "give a table, arrays or images"},
    {Content::safetensors, "a safetensors file", ""},
    {Content::idx, "an IDX file", ""},
    {Content::table, "a table of separated values", ""},
    {Content::json_lines, "a file of JSON lines", ""},
    {Content::json, "a JSON document",
     "write one object a line (JSON lines), as `jq -c '.[]' FILE > NEW.jsonl` does with a list and "
     "pandas with to_json(FILE, orient=\"records\", lines=True)"},
    {Content::text, "a text", ""},
    {Content::utf16, "a text in UTF-16",
     "save it as UTF-8, or convert it: iconv -f UTF-16 -t UTF-8 FILE > NEW"},
    {Content::binary, "a binary file of no kind that is known",
     "if it holds nothing but numbers, say their type and the shape of a sample (--dtype, "
     "--shape)"},
}};

const Kind& kind_of(Content content) { return *std::ranges::find(kKinds, content, &Kind::content); }

std::string_view as_text(std::span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Detects by the name of the first entry, which is in the first record.
Content detect_zip(std::string_view bytes) {
  constexpr size_t kHeader = 30;
  if (!bytes.starts_with("PK\x03\x04") || bytes.size() < kHeader) return Content::zip;
  const size_t length = uint8_t(bytes[26]) | size_t{uint8_t(bytes[27])} << 8;
  const std::string_view name = bytes.substr(kHeader, length);
  if (name.ends_with(".npy")) return Content::npz;
  if (name.ends_with("data.pkl") || name.ends_with(".pt")) return Content::torch;
  const bool office =
      name == "[Content_Types].xml" || name == "mimetype" ||
      std::ranges::any_of(std::array{"xl/", "docProps/", "_rels/", "word/"},
                          [&](const char* begin) { return name.starts_with(begin); });
  return office ? Content::excel : Content::zip;
}

bool is_safetensors(std::span<const uint8_t> first, int64_t size) {
  if (first.size() < 10 || first[8] != '{') return false;
  uint64_t length = 0;
  for (size_t i = 0; i < 8; ++i) length |= uint64_t{first[i]} << (8 * i);
  return length >= 2 && length <= 100'000'000 && (size < 0 || int64_t(length) <= size - 8);
}

// A byte order mark, and of what is mostly ASCII every other byte is zero.
bool is_utf16(std::string_view bytes) {
  const bool little = bytes.starts_with("\xff\xfe");
  if (!little && !bytes.starts_with("\xfe\xff")) return false;
  size_t zeros = 0, pairs = 0;
  for (size_t i = 2; i + 1 < bytes.size(); i += 2, ++pairs) {
    zeros += bytes[i + (little ? 1 : 0)] == '\0' && bytes[i + (little ? 0 : 1)] != '\0';
  }
  return pairs > 0 && zeros * 2 > pairs;
}

std::optional<Content> detect_binary(std::span<const uint8_t> first, int64_t size) {
  const std::string_view bytes = as_text(first);
  for (const Magic& magic : kMagics) {
    if (bytes.starts_with(magic.bytes)) return magic.content;
  }
  if (bytes.starts_with("PK\x03\x04") || bytes.starts_with("PK\x05\x06")) return detect_zip(bytes);
  if (bytes.starts_with("RIFF") && bytes.size() >= 12 && bytes.substr(8, 4) == "WEBP") {
    return Content::webp;
  }
  if (bytes.starts_with("BZh") && bytes.size() >= 10 && bytes.substr(4, 6) == "1AY&SY") {
    return Content::packed;  // bzip2
  }
  // A bitmap states its size, followed by four zeros.
  if (bytes.starts_with("BM") && bytes.size() >= 14 && bytes.substr(6, 4) == "\0\0\0\0"sv) {
    return Content::bmp;
  }
  if (is_utf16(bytes)) return Content::utf16;
  if (is_safetensors(first, size)) return Content::safetensors;
  if (first.size() >= 2 && first[0] == 0x80 && first[1] >= 2 && first[1] <= 5) {
    return Content::pickle;
  }
  if (idx_type(first)) return Content::idx;
  return std::nullopt;
}

bool is_text(std::string_view text, bool whole) {
  // The last character may be truncated.
  for (int cut = 0; cut < 4; ++cut) {
    try {
      check_text(text.substr(0, text.size() - std::min(text.size(), size_t(cut))), "", 1);
      return true;
    } catch (const Error&) {
      if (whole) return false;
    }
  }
  return false;
}

// Text in an older encoding, such as Latin-1, is mostly ASCII and has no control codes. It is
// recognised by its ASCII characters, and its reader then says where it is not UTF-8 and what to
// do.
std::optional<std::string> ascii_of_older_text(std::string_view text) {
  constexpr size_t kMostPart = 4;  // one in this many characters may be beyond ASCII
  std::string ascii(text);
  size_t beyond = 0;
  for (char& c : ascii) {
    if (uint8_t(c) >= 0x80) {
      ++beyond;
      c = '?';
    } else if (uint8_t(c) < ' ' && c != '\n' && c != '\r' && c != '\t') {
      return std::nullopt;
    }
  }
  return beyond <= text.size() / kMostPart ? std::optional(ascii) : std::nullopt;
}

// A table has lines with the same number of cells, at least two, and a column of numbers, or at
// least three lines of three cells; or each of its lines is a number.
bool looks_like_table(std::string_view text, bool whole) {
  TableFormat format;
  try {
    format = find_table_format(text, whole, {}, "");
  } catch (const Error&) {
    return false;
  }
  if (format.header && format.records == 1) return false;
  const auto number = [](const TableColumn& column) {
    return column.kind() == TableColumn::Kind::number;
  };
  const bool numbers = std::ranges::any_of(format.columns, number);
  if (format.columns.size() == 1) return numbers;
  const bool words = format.columns.size() > 2 && std::ranges::count(text, '\n') > 2;
  return alike_lines(text, whole, format.separator) && (numbers || words);
}

// Whether a line begins a whole table rather than a sample: pandas writes {"a":{"0":1,"1":2},...}
// unless it is told otherwise.
bool begins_column(std::string_view line) {
  constexpr std::string_view kAfterName = "\":";
  const size_t name = line.find(kAfterName);
  return name != std::string_view::npos &&
         line.substr(name + kAfterName.size()).starts_with("{\"0\":");
}

Content detect_text(std::string_view text, bool whole) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return Content::text;
  if (text[begin] == '{') {
    const std::string_view line = text.substr(begin, text.find('\n', begin) - begin);
    const bool cut = line.size() == text.size() - begin && !whole;
    const bool alone =
        text.find_first_not_of(" \t\r\n", begin + line.size()) == std::string_view::npos;
    if (alone && begins_column(line)) return Content::json;
    if (cut || nlohmann::json::accept(line)) return Content::json_lines;
    return whole && nlohmann::json::accept(text.substr(begin)) ? Content::json : Content::text;
  }
  if (text[begin] == '[' && whole && nlohmann::json::accept(text.substr(begin))) {
    return Content::json;
  }
  return looks_like_table(text, whole) ? Content::table : Content::text;
}

}  // namespace

Content detect(std::span<const uint8_t> first, int64_t size) {
  if (first.empty()) return Content::empty;
  if (const auto binary = detect_binary(first, size)) return *binary;
  const bool whole = first.size() < kSample;
  const std::string_view text = as_text(first);
  if (is_text(text, whole)) return detect_text(text, whole);
  const std::optional<std::string> ascii = ascii_of_older_text(text);
  return ascii ? detect_text(*ascii, whole) : Content::binary;
}

Detected detect(const std::filesystem::path& path) {
  InputFile file(path);
  ByteSource in(file);
  std::vector<uint8_t> first(kSample);
  first.resize(in.read(std::as_writable_bytes(std::span(first))));
  Detected found{detect(first, in.compressed() ? -1 : file.size()), in.compressed()};
  std::filesystem::path ending = path.extension();
  if (ending == ".gz") ending = path.stem().extension();
  if (found.content == Content::text && (ending == ".csv" || ending == ".tsv")) {
    found.content = Content::table;
  }
  return found;
}

std::string_view title(Content content) { return kind_of(content).title; }

std::string_view remedy(Content content) { return kind_of(content).remedy; }

void refuse_content(const std::filesystem::path& path, const Detected& found,
                    std::string_view wanted) {
  const std::string_view help = remedy(found.content);
  throw_error(ErrorKind::data, "{}: is {}{}, but {} is wanted; {}", path.string(),
              title(found.content), found.gzip ? " packed by gzip" : "", wanted,
              help.empty()
                  ? fmt::format("ridgeline data describe {} says what is in it", path.string())
                  : std::string(help));
}

void refuse_known(const std::filesystem::path& path, std::string_view wanted) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return;
  const Detected found = detect(path);
  switch (found.content) {
    case Content::npy:
    case Content::npz:
    case Content::png:
    case Content::jpeg:
    case Content::safetensors:
      break;
    case Content::table: {
      const std::filesystem::path name = path.extension() == ".gz" ? path.stem() : path;
      if (name.extension() == ".csv" || name.extension() == ".tsv") break;
      return;
    }
    case Content::torch:
    case Content::excel:
    case Content::zip:
    case Content::gif:
    case Content::webp:
    case Content::tiff:
    case Content::hdf5:
    case Content::parquet:
    case Content::arrow:
    case Content::sqlite:
    case Content::packed:
    case Content::pdf:
    case Content::utf16:
      refuse_content(path, found, wanted);
    default:
      return;
  }
  throw_error(
      ErrorKind::data,
      "{}: is {}, but {} {} wanted; train on it by data.train = {} (`ridgeline data describe` "
      "shows what it holds)",
      path.string(), title(found.content), wanted, wanted.starts_with("IDX") ? "are" : "is",
      quote(path.string()));
}

}  // namespace ridgeline::data
