#pragma once

#include "ridgeline/plan/kernel.h"

namespace ridgeline {

// A format may hold more elements than its value has: channels up to a whole block, samples up to a
// whole panel, positions up to a pitch. What those hold is part of the format, and its name says
// so:
//
//   zero      is the rule. Every kernel that writes the format, a conversion included, leaves its
//             padding zero whatever the memory held before, and a kernel that reads it may count on
//             that.
//   anything  is for formats whose names begin with kLoose. Kernels that write one may leave
//             anything in its padding, NaN too, and no kernel that reads one lets that reach an
//             element of a value.
//
// The table walk holds every kernel to it. It poisons all memory with NaN before a kernel runs; it
// then looks for zeros in the padding that a kernel or a conversion has written, or puts NaN into
// the loose padding that a kernel is about to read.
enum class Padding { zero, anything };

inline constexpr char kLoose = '~';

inline Padding padding(const Format& format) {
  return format.starts_with(kLoose) ? Padding::anything : Padding::zero;
}

}  // namespace ridgeline
