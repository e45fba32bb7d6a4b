#include "ridgeline/data/source/npz.h"

#include <array>
#include <utility>

#include "ridgeline/core/error.h"
#include "ridgeline/core/text_format.h"
#include "ridgeline/data/source/npy.h"
#include "ridgeline/data/source/zip.h"

namespace ridgeline::data {
namespace {

constexpr std::string_view kEnding = ".npy";

// Reads a whole stored entry once, because the end of its stream checks the CRC.
void check_stored(ByteStream& in) {
  std::vector<std::byte> window(size_t{1} << 20);
  while (in.read(window) == window.size()) continue;
}

}  // namespace

std::vector<Field> read_npz(const std::filesystem::path& path) {
  auto file = std::make_shared<InputFile>(path);
  const ZipFile zip(file);
  for (const ZipEntry& entry : zip.entries()) {
    if (entry.name.ends_with(kEnding)) continue;
    throw_error(ErrorKind::data,
                "{}: is a zip archive with {} in it, not NumPy's .npz; unpack it and give the "
                "files in it",
                file->name(), quote(entry.name));
  }
  if (zip.entries().empty()) throw_error(ErrorKind::data, "{}: holds no arrays", file->name());
  std::vector<Field> fields;
  for (const ZipEntry& entry : zip.entries()) {
    std::string name = entry.name.substr(0, entry.name.size() - kEnding.size());
    const auto in = zip.open(entry);
    if (entry.deflated) {
      fields.push_back(npy_in_stream(std::move(name), *in, entry.packed));
    } else {
      check_stored(*in);
      const auto again = zip.open(entry);
      fields.push_back(npy_in_file(std::move(name), file, entry.begin, entry.packed, *again));
    }
  }
  return fields;
}

}  // namespace ridgeline::data
