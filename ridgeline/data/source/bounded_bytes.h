#pragma once

#include <filesystem>
#include <memory>

#include "ridgeline/data/input_file.h"

namespace ridgeline::data {

// open_bytes() for readers that keep the whole file in memory. Throws Error(data) if a gzip file
// expands to more than 64 MiB and 200 times its size: tables compress to a third or a twentieth, so
// such a file was made to fill memory (a gzip bomb).
std::unique_ptr<ByteStream> open_bounded(const std::filesystem::path& path);

}  // namespace ridgeline::data
