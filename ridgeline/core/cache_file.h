#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace ridgeline {

// $XDG_CACHE_HOME/ridgeline, else $HOME/.cache/ridgeline; empty where neither variable is an
// absolute path: then nothing is kept between runs.
std::filesystem::path cache_folder();

// `name` in that folder; empty where there is none.
std::filesystem::path cache_file(std::string_view name);

// What a cache file holds. None for an empty path, and for whatever is not a regular file of this
// user's own with at most 16 MiB: what is kept only saves time, so nothing about it is an error.
std::optional<std::string> read_cache_file(const std::filesystem::path& file) noexcept;

// Replaces a cache file, which only this user may then read, by a rename: a link is replaced, not
// followed. Makes the folder, which only this user may enter; in a folder of another user nothing
// is written. What cannot be kept is not kept.
void write_cache_file(const std::filesystem::path& file, std::string_view text) noexcept;

}  // namespace ridgeline
