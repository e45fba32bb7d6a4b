#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace ridgeline {

// Returns $XDG_CACHE_HOME/ridgeline, else $HOME/.cache/ridgeline. It is empty if neither variable
// is an absolute path; then nothing is kept between runs.
std::filesystem::path cache_folder();

// Returns the path of `name` in that folder, or an empty path if there is no cache folder.
std::filesystem::path cache_file(std::string_view name);

// Reads a cache file. Returns nothing for an empty path, and for anything but a regular file of
// this user's own of at most 16 MiB. A cache only saves time, so no failure here is an error.
std::optional<std::string> read_cache_file(const std::filesystem::path& file) noexcept;

// Replaces a cache file, readable by this user only, by a rename: a link is replaced, not followed.
// Makes the folder if needed, for this user only. Writes nothing into another user's folder, and
// ignores every failure.
void write_cache_file(const std::filesystem::path& file, std::string_view text) noexcept;

}  // namespace ridgeline
