#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace ridgeline::engine {

// A file that grows while results come: under the name `<path>.part` until finish() has put it on
// disk in its place. Left without finish() it stays as it is if keep() was called, else it goes.
// "-" is stdout; a pipe or a device is written to as it is. Throws io, also when another process
// has the part open, and usage when there is a file of either name that holds something which
// `ours` does not recognise by its first bytes.
class OutputFile {
 public:
  using Recognise = bool (*)(std::string_view head);
  OutputFile(const std::filesystem::path& path, Recognise ours);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  bool write(std::string_view text);  // false: nobody reads stdout any more
  // Writes over the first bytes of what there is. Not for stdout or a pipe, which have no
  // beginning.
  void rewrite_begin(std::string_view bytes);
  bool can_rewrite() const { return renames_; }
  void append_file(const std::filesystem::path& other);
  void finish();
  void keep() { keep_ = true; }
  // What there is of the results if the run ends now: "labels.csv.part", or empty.
  std::string unfinished() const { return renames_ ? part_.string() : std::string(); }

 private:
  void reserve_part();

  std::filesystem::path path_, part_;
  int fd_ = -1;
  bool stdout_ = false, renames_ = false, keep_ = false, finished_ = false;
};

}  // namespace ridgeline::engine
