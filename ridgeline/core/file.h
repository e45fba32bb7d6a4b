#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ridgeline/core/error.h"

namespace ridgeline {

// The whole of a regular file. What is missing, unreadable, not a plain file or longer than `limit`
// bytes is an Error of `kind`; so is a file that shrinks while it is read.
std::vector<std::byte> read_file(const std::filesystem::path& path, ErrorKind kind = ErrorKind::io,
                                 size_t limit = size_t{1} << 40);

// Reads the file as text.
std::string read_text_file(const std::filesystem::path& path, ErrorKind kind = ErrorKind::io,
                           size_t limit = size_t{1} << 40);

// Afterwards `path` holds `bytes`, on disk, or Error(io) was thrown and it holds what it held: a
// TemporaryFile beside it is written, synced and renamed, and the folder synced. Whatever fails
// leaves nothing behind (kill -9 does, until remove_leftovers). A link is followed; into what is no
// plain file (/dev/null, a pipe) the bytes are written as they are.
void write_file_atomic(const std::filesystem::path& path, std::span<const std::byte> bytes);

// All of `bytes` into an open file; throws io, naming `path`.
void write_all(int fd, std::span<const std::byte> bytes, const std::filesystem::path& path);

// The folder and those above it, made where they are missing. `what` names it in the Error(io):
// "--out".
void make_folder(std::string_view what, const std::filesystem::path& folder);

// Throws io when write_file_atomic could not put a file there, so that a long computation can learn
// it before it begins. Changes nothing.
void check_writable(const std::filesystem::path& path);

// False when the reader has gone (`| head`), which is no fault; throws io on any other.
bool write_stdout(std::string_view text);
// What cannot be said is left unsaid: a full or closed stderr must not end a run.
void write_stderr(std::string_view text) noexcept;

}  // namespace ridgeline
