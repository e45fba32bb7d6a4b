#include "ridgeline/data/source/zip.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "ridgeline/core/error.h"
#include "ridgeline/core/shape.h"
#include "ridgeline/core/text_format.h"
#include "ridgeline/data/source/array_file.h"
#include "ridgeline/data/source/zip_stream.h"

namespace ridgeline::data {
namespace {

constexpr uint32_t kEnd = 0x06054b50, kEnd64 = 0x06064b50, kEnd64Locator = 0x07064b50;
constexpr uint32_t kCentral = 0x02014b50, kLocal = 0x04034b50;
constexpr size_t kEndBytes = 22, kEnd64Bytes = 56, kLocatorBytes = 20;
constexpr size_t kCentralBytes = 46, kLocalBytes = 30;
constexpr int64_t kMostDirectory = int64_t{64} << 20;
constexpr uint32_t kInZip64 = 0xffffffff;  // the true value is in the ZIP64 extra field

// Little-endian numbers of a record; every access is checked.
class ZipRecord {
 public:
  ZipRecord(std::span<const uint8_t> bytes, const std::string& file) : bytes_(bytes), file_(file) {}

  uint64_t number(size_t at, size_t width) const {
    if (at > bytes_.size() || width > bytes_.size() - at) {
      throw_error(ErrorKind::data, "{}: damaged zip archive: a record ends early; get it again",
                  file_);
    }
    uint64_t value = 0;
    for (size_t i = 0; i < width; ++i) value |= uint64_t{bytes_[at + i]} << (8 * i);
    return value;
  }
  uint16_t u16(size_t at) const { return uint16_t(number(at, 2)); }
  uint32_t u32(size_t at) const { return uint32_t(number(at, 4)); }
  uint64_t u64(size_t at) const { return number(at, 8); }
  size_t size() const { return bytes_.size(); }
  ZipRecord part(size_t at, size_t count) const {
    // An empty part may begin at the end, but not after it.
    if (count > 0 || at > bytes_.size()) number(at + std::max<size_t>(count, 1) - 1, 1);
    return {bytes_.subspan(at, count), file_};
  }
  std::string text(size_t at, size_t count) const {
    const ZipRecord p = part(at, count);
    return {reinterpret_cast<const char*>(p.bytes_.data()), count};
  }

 private:
  std::span<const uint8_t> bytes_;
  const std::string& file_;
};

std::vector<uint8_t> bytes_at(const InputFile& file, int64_t offset, int64_t count) {
  if (offset < 0 || count < 0 || offset > file.size() || count > file.size() - offset) {
    throw_error(ErrorKind::data,
                "{}: damaged zip archive: points at bytes {} to {} of a file of {}; get it again",
                file.name(), offset, uint64_t(offset) + uint64_t(count), file.size());
  }
  std::vector<uint8_t> bytes(static_cast<size_t>(count));
  read_at(file, offset, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

// Converts 64-bit sizes to signed ones, so that sums of two cannot wrap.
int64_t checked_size(uint64_t value, const std::string& file) {
  if (value > uint64_t{1} << 62) {
    throw_error(ErrorKind::data, "{}: damaged zip archive: states {} bytes; get it again", file,
                value);
  }
  return int64_t(value);
}

struct Directory {
  int64_t offset = 0, bytes = 0, entries = 0;
};

Directory find_directory(const InputFile& file) {
  const std::string& name = file.name();
  // The last record is followed by a comment of at most 65,535 bytes.
  const int64_t tail = std::min(file.size(), int64_t(kEndBytes) + 0xffff);
  const std::vector<uint8_t> bytes = bytes_at(file, file.size() - tail, tail);
  const ZipRecord record(bytes, name);
  std::optional<size_t> end;
  for (size_t at = bytes.size() < kEndBytes ? 0 : bytes.size() - kEndBytes + 1; at-- > 0;) {
    if (record.u32(at) != kEnd || at + kEndBytes + record.u16(at + 20) != bytes.size()) continue;
    end = at;
    break;
  }
  if (!end) {
    throw_error(ErrorKind::data,
                "{}: truncated zip archive: its directory, at the end, is missing; get it again",
                name);
  }
  Directory found{int64_t(record.u32(*end + 16)), int64_t(record.u32(*end + 12)),
                  int64_t(record.u16(*end + 10))};
  bool whole = record.u16(*end + 4) == 0 || record.u16(*end + 4) == 0xffff;
  if (*end >= kLocatorBytes && record.u32(*end - kLocatorBytes) == kEnd64Locator) {
    const int64_t at = checked_size(record.u64(*end - kLocatorBytes + 8), name);
    const std::vector<uint8_t> wide = bytes_at(file, at, int64_t(kEnd64Bytes));
    const ZipRecord end64(wide, name);
    whole = end64.u32(0) == kEnd64 && end64.u32(16) == 0;
    found = {checked_size(end64.u64(48), name), checked_size(end64.u64(40), name),
             checked_size(end64.u64(32), name)};
  }
  if (!whole) {
    throw_error(ErrorKind::data, "{}: is one part of a zip archive in several, or damaged", name);
  }
  return found;
}

// Reads the 64-bit values of an entry, in the order of the format, if the 32-bit ones say so.
void read_zip64(const ZipRecord& extra, ZipEntry& entry, int64_t& header, const std::string& file) {
  for (size_t at = 0; at + 4 <= extra.size();) {
    const size_t size = extra.u16(at + 2);
    if (extra.u16(at) == 1) {
      const ZipRecord wide = extra.part(at + 4, size);
      size_t next = 0;
      for (int64_t* value : {&entry.unpacked, &entry.packed, &header}) {
        if (*value != int64_t{kInZip64}) continue;
        *value = checked_size(wide.u64(next), file);
        next += 8;
      }
      return;
    }
    at += 4 + size;
  }
}

}  // namespace

ZipFile::ZipFile(std::shared_ptr<InputFile> file) : file_(std::move(file)) {
  read_directory();
  check_layout();
}

void ZipFile::read_directory() {
  const std::string& name = file_->name();
  const Directory found = find_directory(*file_);
  if (found.bytes > kMostDirectory) {
    throw_error(ErrorKind::data, "{}: a zip directory of {} bytes; at most {} are read", name,
                found.bytes, kMostDirectory);
  }
  const std::vector<uint8_t> bytes = bytes_at(*file_, found.offset, found.bytes);
  const ZipRecord directory(bytes, name);
  size_t at = 0;
  for (int64_t i = 0; i < found.entries; ++i) {
    const ZipRecord record = directory.part(at, kCentralBytes);
    if (record.u32(0) != kCentral) {
      throw_error(ErrorKind::data, "{}: damaged zip archive: entry {} of {} is none; get it again",
                  name, i + 1, found.entries);
    }
    const size_t name_bytes = record.u16(28), extra_bytes = record.u16(30);
    ZipEntry entry;
    entry.name = directory.text(at + kCentralBytes, name_bytes);
    const uint16_t flags = record.u16(8), method = record.u16(10);
    entry.deflated = method == 8;
    entry.crc = record.u32(16);
    entry.packed = record.u32(20);
    entry.unpacked = record.u32(24);
    int64_t header = record.u32(42);
    read_zip64(directory.part(at + kCentralBytes + name_bytes, extra_bytes), entry, header, name);
    if ((flags & 1) != 0 || (method != 0 && method != 8)) {
      throw_error(ErrorKind::data, "{}: entry {} is {}; pack it with deflate or not at all", name,
                  quote(entry.name),
                  (flags & 1) != 0 ? "encrypted" : fmt::format("packed by method {}", method));
    }
    locate_data(entry, header);
    entries_.push_back(std::move(entry));
    at += kCentralBytes + name_bytes + extra_bytes + record.u16(32);
  }
}

void ZipFile::locate_data(ZipEntry& entry, int64_t header) {
  const std::vector<uint8_t> bytes = bytes_at(*file_, header, int64_t(kLocalBytes));
  const ZipRecord local(bytes, file_->name());
  entry.begin = header + int64_t(kLocalBytes) + local.u16(26) + local.u16(28);
  const bool inside = entry.begin <= file_->size() && entry.packed <= file_->size() - entry.begin;
  if (local.u32(0) != kLocal || !inside || (!entry.deflated && entry.packed != entry.unpacked)) {
    throw_error(ErrorKind::data,
                "{}: damaged zip archive: entry {} is not where or what the directory says; get it "
                "again",
                file_->name(), quote(entry.name));
  }
  check_packed_size(file_->name(), entry.packed, entry.unpacked);
}

void ZipFile::check_layout() const {
  std::vector<const ZipEntry*> order;
  for (const ZipEntry& entry : entries_) order.push_back(&entry);
  std::ranges::sort(order, {}, [](const ZipEntry* entry) { return entry->begin; });
  int64_t end = 0, unpacked = 0;
  for (const ZipEntry* entry : order) {
    if (entry->begin < end) {
      throw_error(ErrorKind::data,
                  "{}: entry {} overlaps another, as in a zip bomb; the file is refused",
                  file_->name(), quote(entry->name));
    }
    end = entry->begin + entry->packed;
    unpacked = checked_add(unpacked, entry->unpacked, file_->name().c_str());
  }
  if (unpacked > kMostBombFree && unpacked / kMostRatio > file_->size()) {
    throw_error(ErrorKind::data,
                "{}: {} bytes would unpack to {}, more than {} times as many, as a zip bomb does; "
                "if it is none, store it unpacked (np.savez)",
                file_->name(), file_->size(), unpacked, kMostRatio);
  }
}

std::unique_ptr<ByteStream> ZipFile::open(const ZipEntry& entry) const {
  return open_zip_entry(*file_, entry);
}

}  // namespace ridgeline::data
