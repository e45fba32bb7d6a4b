#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "ridgeline/data/sets.h"

namespace ridgeline::data {

struct Progress {
  std::string_view file;
  int64_t done = 0;  // bytes of this file, those of an earlier call included
  int64_t total = 0;
};

struct GetOptions {
  // A base URL that serves MIRROR/SET/FILE, used instead of the set's mirrors. Empty: take
  // $RIDGELINE_MIRROR, and without it the set's own.
  std::string mirror{};
  std::function<bool(const Progress&)> progress{};  // false stops the download; what came is kept
  int stall_seconds = 30;                           // a connection this long without a byte is cut
};

// Downloads what `dest`/NAME lacks of the set and returns that folder; an empty `dest` means
// user_data_folder(). A file is written as FILE.part, resumed if one is there, checked, synced and
// only then renamed. Files already there and right are left alone.
// Throws data when no mirror gives a file (each with its reason: HTTP status, cut connection, wrong
// checksum), io when the disk fails, usage for a mirror that is no http(s) URL.
std::filesystem::path get(const SetInfo& set, const std::filesystem::path& dest = {},
                          const GetOptions& options = {});

}  // namespace ridgeline::data
