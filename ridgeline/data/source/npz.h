#pragma once

#include <filesystem>
#include <vector>

#include "ridgeline/data/field_set.h"

namespace ridgeline::data {

// Reads the arrays of an .npz archive, in its order, each under its name without ".npy". A stored
// array is read from the file when needed, a compressed one (np.savez_compressed) into memory; the
// CRC of each is checked now. The numbers of samples may differ. Throws Error(data) for an archive
// that holds anything but arrays.
std::vector<Field> read_npz(const std::filesystem::path& path);

}  // namespace ridgeline::data
