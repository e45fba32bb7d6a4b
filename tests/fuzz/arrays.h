#pragma once

#include "ridgeline/data/field_set.h"

namespace ridgeline::fuzz {

// Reads all values of a field, however they are stored, up to a few MB.
inline void read_all(const data::Field& field) {
  constexpr int64_t kMost = int64_t{1} << 22;
  if (field.bytes() > kMost) return;
  const data::Field loaded = data::load(field);
  if (field.kind == data::FieldKind::text) {
    for (int64_t i = 0; i < loaded.samples; ++i) data::read_text(loaded, i);
  } else {
    std::vector<double> out(size_t(loaded.rows() * loaded.shape.numel()));
    data::read_doubles(loaded, 0, loaded.rows(), out);
  }
}

}  // namespace ridgeline::fuzz
