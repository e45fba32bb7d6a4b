#pragma once

#include <memory>

#include "ridgeline/data/source/zip.h"

namespace ridgeline::data {

// Implements ZipFile::open. The file must outlive the stream.
std::unique_ptr<ByteStream> open_zip_entry(const InputFile& file, const ZipEntry& entry);

}  // namespace ridgeline::data
