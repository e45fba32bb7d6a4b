#pragma once

#include <bit>
#include <cmath>

#include "ridgeline/core/philox.h"

namespace ridgeline {

// A permutation of [0, n) that computes any element without the others, the same on every device: a
// generalised Feistel network (Black and Rogaway, 2002). A number is a row and a column, and each
// round adds a function of one to the other. rows * columns exceeds n by less than one row; results
// of n or more are mapped again until they are below n (cycle walking).
struct Feistel {
  static constexpr int kRounds = 6;  // four make a pseudo-random permutation (Luby and Rackoff)

  uint32_t n, rows, columns;  // rows and columns are below 2^16
  int row_bits, column_bits;  // bits needed for a row or column number
  uint32_t keys[kRounds];

  Feistel(uint32_t count, const Philox& random)
      : n(count),
        rows(uint32_t(std::ceil(std::sqrt(double(n))))),
        columns((n + rows - 1) / rows),
        row_bits(std::bit_width(rows)),
        column_bits(std::bit_width(columns)) {
    for (int k = 0; k < kRounds; ++k) keys[k] = random.word(uint64_t(k));
  }

  // Mixes x with the key and scales it to [0, below), where `below` has `bits` bits; the product
  // fits 32.
  RIDGELINE_HD static uint32_t mixed(uint32_t x, uint32_t key, uint32_t below, int bits) {
    uint32_t hash = (x ^ key) * 0x9E3779B1u;
    hash = (hash ^ (hash >> 15)) * 0x85EBCA6Bu;
    return ((hash >> bits) * below) >> (32 - bits);
  }
  // x + y modulo `below`, for x and y below it.
  RIDGELINE_HD static uint32_t sum(uint32_t x, uint32_t y, uint32_t below) {
    const uint32_t all = x + y, less = all - below;  // wraps to a large number if negative
    return less < all ? less : all;
  }
  RIDGELINE_HD uint32_t map_once(uint32_t number) const {
    uint32_t row = number / columns, column = number % columns;
    for (int k = 0; k < kRounds; k += 2) {
      row = sum(row, mixed(column, keys[k], rows, row_bits), rows);
      column = sum(column, mixed(row, keys[k + 1], columns, column_bits), columns);
    }
    return row * columns + column;
  }
  RIDGELINE_HD uint32_t operator()(uint32_t place) const {
    uint32_t number = map_once(place);
    while (number >= n) number = map_once(number);
    return number;
  }
};

}  // namespace ridgeline
