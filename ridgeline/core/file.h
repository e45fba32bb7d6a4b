#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <vector>

#include "ridgeline/core/error.h"

namespace ridgeline {

// The whole of a regular file. What is missing, unreadable, not a plain file or longer than `limit`
// bytes is an Error of `kind`; so is a file that shrinks while it is read.
std::vector<std::byte> read_file(const std::filesystem::path& path, ErrorKind kind = ErrorKind::io,
                                 size_t limit = size_t{1} << 40);

// Afterwards `path` holds `bytes`, on disk, or Error(io) was thrown and it holds what it held:
// written beside as "<name>.tmp", synced, renamed, the folder synced. Whatever fails leaves no .tmp
// behind (kill -9 does; the next write of the same file takes it over). One writer a path at a
// time.
void write_file_atomic(const std::filesystem::path& path, std::span<const std::byte> bytes);

}  // namespace ridgeline
