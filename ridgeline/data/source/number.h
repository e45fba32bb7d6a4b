#pragma once

#include <bit>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace ridgeline::data {

// Parses the number in a cell, ignoring blanks around it: a decimal with an optional sign, point
// and exponent, "inf" or "nan". Returns false for anything else, and for one beyond fp64; one too
// small for it is zero. The result is the nearest double.
bool parse_number(std::string_view cell, double& value);

// Parses numbers as people write them, with `decimal`, a point or a comma, before the
// fraction; the other of the two, a blank or an apostrophe may stand between groups of three
// digits: 1,234.5 or 1.234,5 or 1 234,5. A currency or percent sign before or after it changes
// nothing.
bool parse_number(std::string_view cell, char decimal, double& value);

// Takes decimal digits from `at` into `mantissa`, which may overflow. Up to eight are found and
// converted at once, without a branch for each: numbers of a table differ in length, and a branch
// that is guessed wrongly costs as much as a number. The eight bytes from `at` on are readable.
inline void read_digits(const char*& at, uint64_t& mantissa) {
  static constexpr uint64_t kPowers[] = {1,      10,      100,      1000,     10000,
                                         100000, 1000000, 10000000, 100000000};
  for (;;) {
    uint64_t word = 0;
    std::memcpy(&word, at, 8);
    if constexpr (std::endian::native == std::endian::big) word = __builtin_bswap64(word);
    word ^= 0x3030303030303030u;  // the bytes of digits are now 0 to 9; the first is the lowest
    const uint64_t others = ((word + 0x7676767676767676u) | word) & 0x8080808080808080u;
    const int count = others == 0 ? 8 : std::countr_zero(others) / 8;
    if (count == 0) return;
    word <<= 64 - 8 * count;         // zeros before the digits fill up to eight
    word = word * 10 + (word >> 8);  // pairs: each even byte holds two digits
    const uint64_t low = (word & 0x000000ff000000ffu) * 0x000f424000000064u;
    const uint64_t high = (word >> 16 & 0x000000ff000000ffu) * 0x0000271000000001u;
    mantissa = mantissa * kPowers[count] + ((low + high) >> 32);
    at += count;
    if (count < 8) return;
  }
}

// Reads a plain decimal from `at` and leaves `at` after it; returns false, with `at` undefined, if
// the text is not plain: no digits, or anything that parse_number must handle. The text must
// continue for eight bytes after the number, beginning with a non-digit.
inline bool read_decimal(const char*& at, double& value) {
  // Clinger's exact case: if doubles hold the mantissa and the power of ten exactly, the result is
  // rounded once. Everything else goes to from_chars, which takes about five times as long.
  constexpr uint64_t kMostMantissa = uint64_t{1} << 53;
  constexpr int kMostPower = 22, kMostDigits = 19;
  static constexpr double kPowers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                       1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                       1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
  const char* const begin = at;
  const bool negative = *at == '-';
  at += negative;
  uint64_t mantissa = 0;
  const char* const first = at;
  // Usually one to three digits, for which a loop is faster.
  while (unsigned(*at) - unsigned('0') < 10u) mantissa = mantissa * 10 + unsigned(*at++ - '0');
  auto digits = at - first;
  int64_t power = 0;
  if (*at == '.') {
    const char* const fraction = ++at;
    read_digits(at, mantissa);
    power = fraction - at;
    digits -= power;
  }
  if (digits == 0) return false;
  if (*at == 'e' || *at == 'E') {
    ++at;
    const bool down = *at == '-';
    if (down || *at == '+') ++at;
    uint64_t exponent = 0;
    const char* const start = at;
    read_digits(at, exponent);
    if (at == start || at - start > 8) return false;
    power += down ? -int64_t(exponent) : int64_t(exponent);
  }
  if (digits <= kMostDigits && mantissa <= kMostMantissa && power >= -kMostPower &&
      power <= kMostPower) {
    const double whole = double(mantissa);
    value = power < 0 ? whole / kPowers[-power] : whole * kPowers[power];
    value = negative ? -value : value;
    return true;
  }
  const auto [end, error] = std::from_chars(begin, at, value);
  return error == std::errc() && end == at;
}

}  // namespace ridgeline::data
