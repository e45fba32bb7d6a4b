#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ridgeline/data/field_set.h"

namespace ridgeline::data {

// A summary of a field, from one pass over its values.
struct FieldSummary {
  // Numbers: over all elements of all samples. Missing and infinite ones are counted and left out
  // of the rest. Booleans and categories count only missing samples, texts the empty ones.
  int64_t missing = 0, infinite = 0;
  double least = 0, most = 0, mean = 0, deviation = 0;
  int64_t numbers = 0;  // neither missing nor infinite
  bool whole = true;    // all of these are integers

  std::vector<int64_t> counts{};  // booleans and categories: samples by code

  // Single integers: samples by value, while these are at most kMostDistinct; else empty.
  static constexpr size_t kMostDistinct = 1000;
  std::map<int64_t, int64_t> values{};

  // These three are of texts and sequences.
  int64_t least_length = 0, most_length = 0;
  double mean_length = 0;
};

FieldSummary summarise(const Field& field);

// Returns the SHA-256 of all values in the field's dtype, row-major, little-endian. A category
// counts with its codes, a text with its bytes.
std::string checksum(const Field& field);

}  // namespace ridgeline::data
