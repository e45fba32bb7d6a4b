#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace ridgeline::data {

// The characters that a text classifier knows. A text becomes codes: the symbol's index in the
// list, or size() for an unknown character and for padding (an all-zero column, once one-hot).
class Vocabulary {
 public:
  // Symbols are single ASCII characters; the later index of a repeated one counts. Throws
  // Error(usage) if there is none, a byte is not ASCII, or there are more than 254.
  explicit Vocabulary(std::string symbols);

  // The 70 symbols of Zhang, Zhao and LeCun (2015), in their order: letters, digits, 33 others ('-'
  // twice, as they list it) and the newline.
  static std::string_view paper();

  const std::string& symbols() const { return symbols_; }
  int size() const { return int(symbols_.size()); }
  uint8_t code(char c) const { return codes_[uint8_t(c)]; }

  // Fills `out`: the first out.size() bytes of the text, lower-cased, then padding. `backward`
  // reverses them, as the paper does. A character outside ASCII counts as one unknown character per
  // byte.
  void encode(std::string_view text, bool backward, std::span<uint8_t> out) const;

 private:
  std::string symbols_;
  std::array<uint8_t, 256> codes_;
};

}  // namespace ridgeline::data
