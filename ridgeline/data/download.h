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
  int64_t done = 0;  // bytes of this file, including those of an earlier call
  int64_t total = 0;
};

struct GetOptions {
  // A base URL that serves MIRROR/SET/FILE, used instead of the set's mirrors. Empty:
  // $RIDGELINE_MIRROR, else the set's own.
  std::string mirror{};
  std::function<bool(const Progress&)> progress{};  // false stops the download and keeps the part
  int stall_seconds = 30;  // seconds without a byte before a connection is closed
};

// Downloads the missing files of the set to `dest`/NAME and returns that folder; an empty `dest`
// means user_data_folder(). A file is written as FILE.part, resumed if one exists, checked, synced
// and only then renamed. Existing correct files are kept.
// Throws Error(data) if no mirror provides a file (with each one's reason: HTTP status, lost
// connection, wrong checksum), Error(io) if the disk fails, Error(usage) for a mirror that is not
// an http(s) URL.
std::filesystem::path get(const SetInfo& set, const std::filesystem::path& dest = {},
                          const GetOptions& options = {});

}  // namespace ridgeline::data
