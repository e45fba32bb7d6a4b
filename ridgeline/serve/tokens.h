#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace ridgeline::serve {

// Bearer tokens for access to the server. Comparison takes the same time for any input.
class Tokens {
 public:
  Tokens() = default;  // none: access for everybody
  // Reads one token per line; empty lines and those that begin with # are skipped. Throws Error(io)
  // if the file cannot be read, Error(usage) if it holds no token or one with blanks or control
  // codes.
  static Tokens read(const std::filesystem::path& file);

  bool wanted() const { return !tokens_.empty(); }
  // Whether this Authorization header has one of the tokens.
  bool accept(std::string_view authorization) const;

 private:
  std::vector<std::string> tokens_;
};

}  // namespace ridgeline::serve
