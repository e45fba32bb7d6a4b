#include "ridgeline/data/character_text.h"

#include <algorithm>
#include <array>
#include <utility>

#include "ridgeline/core/error.h"
#include "ridgeline/core/host_memory.h"
#include "ridgeline/data/input_file.h"

namespace ridgeline::data {
namespace {

constexpr size_t kMostBytes = size_t{1} << 30;
// Texts compress to about a tenth: a gzip file that expands far more was made to fill memory.
constexpr size_t kMostRatio = 100, kAlwaysFine = size_t{64} << 20;

}  // namespace

Alphabet::Alphabet(std::string symbols) : symbols_(std::move(symbols)), codes_(256, -1) {
  const auto after = [](char a, char b) { return uint8_t(a) >= uint8_t(b); };
  if (symbols_.empty() || std::ranges::adjacent_find(symbols_, after) != symbols_.end()) {
    throw_error(ErrorKind::data, "the symbols of a text must be distinct bytes in ascending order");
  }
  for (size_t i = 0; i < symbols_.size(); ++i) codes_[uint8_t(symbols_[i])] = int(i);
}

Alphabet Alphabet::of(std::string_view text) {
  std::array<bool, 256> seen{};
  for (const char c : text) seen[uint8_t(c)] = true;
  std::string symbols;
  for (int c = 0; c < 256; ++c) {
    if (seen[size_t(c)]) symbols += char(c);
  }
  return Alphabet(std::move(symbols));
}

std::vector<uint8_t> Alphabet::encode(std::string_view text, const std::string& what) const {
  std::vector<uint8_t> codes(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const int code = this->code(text[i]);
    if (code < 0) {
      const bool printable = text[i] > 0x20 && text[i] < 0x7f;
      throw_error(ErrorKind::data,
                  "{}: character {}: {} is not one of the {} symbols of the model's "
                  "text",
                  what, i + 1,
                  printable ? fmt::format("'{}'", text[i])
                            : fmt::format("byte 0x{:02x}", unsigned(uint8_t(text[i]))),
                  size());
    }
    codes[i] = uint8_t(code);
  }
  return codes;
}

std::string read_text(const std::filesystem::path& path) {
  InputFile file(path);
  ByteSource source(file);
  std::string text;
  constexpr size_t kBlock = size_t{1} << 20;
  for (;;) {
    const size_t before = text.size();
    if (before + kBlock > text.capacity()) require_host_memory(2 * text.capacity());
    text.resize(before + kBlock);
    const size_t got = source.read(std::as_writable_bytes(std::span(text).subspan(before)));
    text.resize(before + got);
    if (got < kBlock) break;
    if (source.compressed() &&
        text.size() > std::max(kAlwaysFine, kMostRatio * size_t(file.size()))) {
      throw_error(ErrorKind::data, "{}: unpacks to more than {} times its size; unpack it first",
                  path.string(), kMostRatio);
    }
    if (text.size() > kMostBytes) {
      throw_error(ErrorKind::data, "{}: more than 1 GiB of text; cut it into smaller files",
                  path.string());
    }
  }
  if (text.empty()) throw_error(ErrorKind::data, "{}: is empty; a text is wanted", path.string());
  return text;
}

SampleSet make_streams(std::string_view text, const Alphabet& alphabet, int64_t streams,
                       int64_t steps, std::string name) {
  const int64_t available = int64_t(text.size()) - 1;  // the last character has no successor
  streams = std::min(streams, available / std::max<int64_t>(1, steps));
  if (streams < 1) {
    throw_error(ErrorKind::data, "{}: a part of {} characters is too short for sequences of {}",
                name, text.size(), steps);
  }
  // One byte each for codes and samples, four for labels.
  require_host_memory(6 * text.size(), "use a shorter text");
  const std::vector<uint8_t> codes = alphabet.encode(text, name);
  const int64_t chunks = available / (streams * steps);
  SampleSet set;
  set.inputs = HostTensor(DType::uint8, {chunks * streams, steps});
  set.targets = HostTensor(DType::int32, {chunks * streams, steps});
  auto* sample = set.inputs.span<uint8_t>().data();
  auto* label = set.targets.span<int32_t>().data();
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    for (int64_t stream = 0; stream < streams; ++stream) {
      const uint8_t* from = codes.data() + (stream * chunks + chunk) * steps;
      sample = std::copy_n(from, steps, sample);
      label = std::copy_n(from + 1, steps, label);
    }
  }
  set.classes = alphabet.size();
  set.streams = streams;
  set.symbols = alphabet.symbols();
  set.name = std::move(name);
  set.hash = hash_of(set);
  return set;
}

DataSet load_streams(const std::filesystem::path& file, int64_t streams, int64_t steps,
                     std::string name, const Alphabet* alphabet) {
  const std::string text = read_text(file);
  const Alphabet known = alphabet != nullptr ? *alphabet : Alphabet::of(text);
  const size_t split = text.size() - text.size() / 10;
  const std::string_view all = text;
  return {make_streams(all.substr(0, split), known, streams, steps, name),
          make_streams(all.substr(split), known, streams, steps, name)};
}

}  // namespace ridgeline::data
