#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ridgeline/core/error.h"

namespace ridgeline {

// Reads a whole regular file. A file that is missing, unreadable, not regular, longer than `limit`
// bytes, or that shrinks while it is read, throws an Error of `kind`.
std::vector<std::byte> read_file(const std::filesystem::path& path, ErrorKind kind = ErrorKind::io,
                                 size_t limit = size_t{1} << 40);

// Reads a file as text.
std::string read_text_file(const std::filesystem::path& path, ErrorKind kind = ErrorKind::io,
                           size_t limit = size_t{1} << 40);

// Replaces `path` by `bytes` durably, or throws Error(io) and leaves the old contents: writes,
// syncs and renames a TemporaryFile beside it, then syncs the folder. A failure leaves no files
// behind (kill -9 does, until remove_leftovers). A link is followed; if `path` is not a regular
// file (/dev/null, a pipe), the bytes are written to it directly.
void write_file_atomic(const std::filesystem::path& path, std::span<const std::byte> bytes);

// Writes all of `bytes` to an open file. Throws Error(io), which names `path`.
void write_all(int fd, std::span<const std::byte> bytes, const std::filesystem::path& path);

// Makes the folder and its missing parents. `what` names it in the Error(io):
// "--out".
void make_folder(std::string_view what, const std::filesystem::path& folder);

// Makes a folder like make_folder. Whatever it has made and nobody has filled goes with it, so that
// a command that fails before its first output leaves no folders.
class MadeFolder {
 public:
  MadeFolder(std::string_view what, const std::filesystem::path& folder);
  ~MadeFolder();
  MadeFolder(const MadeFolder&) = delete;
  MadeFolder& operator=(const MadeFolder&) = delete;

 private:
  std::vector<std::filesystem::path> made_;  // from the inside out
};

// Throws Error(io) if write_file_atomic could not put a file there, so that a long computation can
// find out before it begins. Changes nothing.
void check_writable(const std::filesystem::path& path);

// Returns false if the reader has gone (`| head`), which is no error; throws Error(io) otherwise.
bool write_stdout(std::string_view text);
// Ignores failures: a full or closed stderr must not end a run.
void write_stderr(std::string_view text) noexcept;

}  // namespace ridgeline
