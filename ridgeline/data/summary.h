#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ridgeline/data/field_set.h"

namespace ridgeline::data {

// What a field holds, from one pass over its values.
struct FieldSummary {
  // Numbers: over all elements of all samples. Missing and infinite ones are counted and left out
  // of the rest. Booleans and categories count missing samples alone, texts the empty ones.
  int64_t missing = 0, infinite = 0;
  double least = 0, most = 0, mean = 0, deviation = 0;
  int64_t numbers = 0;  // that are neither missing nor infinite

  std::vector<int64_t> counts{};  // booleans and categories: samples by code

  // Single whole numbers: samples by value, while these are at most kMostDistinct; else empty.
  static constexpr size_t kMostDistinct = 1000;
  std::map<int64_t, int64_t> values{};

  // Texts and sequences.
  int64_t least_length = 0, most_length = 0;
  double mean_length = 0;
};

FieldSummary summarise(const Field& field);

// The SHA-256 of all values as they are given: in the field's dtype, row-major, little-endian. A
// category counts with its codes, a text with its bytes.
std::string checksum(const Field& field);

}  // namespace ridgeline::data
