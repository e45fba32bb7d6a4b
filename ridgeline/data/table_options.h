#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ridgeline::data {

// How to read a table; options that are not given are detected from the beginning of the file.
struct TableOptions {
  char separator = '\0';  // '\0': the one of , TAB ; | and blank that divides every line evenly
  enum class Header : uint8_t { automatic, yes, no };
  Header header = Header::automatic;
  // Columns to read as categories or texts whatever their cells look like. A column is given by its
  // name in the header, or by its number from 1 if there is none.
  std::vector<std::string> categories{}, texts{};
};

}  // namespace ridgeline::data
