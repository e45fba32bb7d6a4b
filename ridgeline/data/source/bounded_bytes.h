#pragma once

#include <filesystem>
#include <memory>

#include "ridgeline/data/input_file.h"

namespace ridgeline::data {

// A file as open_bytes() gives it, for readers that keep all of it in memory. Throws data when a
// gzip file unpacks to more than 64 MiB and 200 times its size: tables shrink to a third or a
// twentieth, and what shrinks so much more is made to fill memory (a gzip bomb).
std::unique_ptr<ByteStream> open_bounded(const std::filesystem::path& path);

}  // namespace ridgeline::data
