#pragma once

#include <memory>

#include "ridgeline/data/source/zip.h"

namespace ridgeline::data {

// What ZipFile::open gives. The file must outlive it.
std::unique_ptr<ByteStream> open_zip_entry(const InputFile& file, const ZipEntry& entry);

}  // namespace ridgeline::data
