#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace ridgeline::engine {

// A file that grows as results arrive, named `<path>.part` until finish() syncs and renames it.
// Without finish() the part is kept if keep() was called, else removed. "-" is stdout; a pipe
// or a device is written to directly. Throws Error(io), also if another process has the part
// open, and Error(usage) if a file of either name exists whose first bytes `ours` does not
// recognise.
class OutputFile {
 public:
  using Recognise = bool (*)(std::string_view head);
  OutputFile(const std::filesystem::path& path, Recognise ours);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  bool write(std::string_view text);  // false: nobody reads stdout any more
  // Overwrites the first bytes. Not for stdout or a pipe, which cannot
  // seek.
  void rewrite_begin(std::string_view bytes);
  void append_file(const std::filesystem::path& other);
  void finish();
  void keep() { keep_ = true; }
  // The file with the results so far if the run ends now: "labels.csv.part", or empty.
  std::string unfinished() const { return renames_ ? part_.string() : std::string(); }

 private:
  void reserve_part();

  std::filesystem::path path_, part_;
  int fd_ = -1;
  bool stdout_ = false, renames_ = false, keep_ = false, finished_ = false;
};

}  // namespace ridgeline::engine
