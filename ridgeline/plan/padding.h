#pragma once

#include "ridgeline/plan/impl.h"

namespace ridgeline {

// A format may hold more elements than its value has: channels up to a whole block, items up to a
// whole panel, positions up to a pitch. What those hold is part of the format, and its name says
// so:
//
//   zero      is the rule. Every row that writes the format, a conversion included, leaves its
//             padding zero whatever the memory held before, and a row that reads it may count on
//             that.
//   anything  is for formats whose names begin with kLoose. Rows that write one may leave anything
//             in its padding, NaN too, and no row that reads one lets that reach an element of a
//             value.
//
// The table walk holds every row to it. It poisons all memory with NaN before a row runs; it then
// looks for zeros in the padding that a row or a conversion has written, or puts NaN into the loose
// padding that a row is about to read.
enum class Padding { zero, anything };

inline constexpr char kLoose = '~';

inline Padding padding(const Format& format) {
  return format.starts_with(kLoose) ? Padding::anything : Padding::zero;
}

}  // namespace ridgeline
