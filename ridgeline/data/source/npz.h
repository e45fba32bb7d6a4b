#pragma once

#include <filesystem>
#include <vector>

#include "ridgeline/data/field_set.h"

namespace ridgeline::data {

// The arrays of an .npz archive, in its order, each under its name without ".npy". A stored array
// is read from the file as it is asked for, a packed one (np.savez_compressed) into memory; the CRC
// of each is checked now. The numbers of samples may differ. Throws data on what is no .npz: an
// archive that holds anything but arrays.
std::vector<Field> read_npz(const std::filesystem::path& path);

}  // namespace ridgeline::data
