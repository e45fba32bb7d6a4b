#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace ridgeline::serve {

// Bearer tokens that open the server. Comparing takes the same time whatever is given.
class Tokens {
 public:
  Tokens() = default;  // none: everybody may ask
  // A token a line; empty lines and those that begin with # are left out. Throws io if the file
  // cannot be read, usage if it holds no token or one with blanks or control codes in it.
  static Tokens read(const std::filesystem::path& file);

  bool wanted() const { return !tokens_.empty(); }
  // Whether this value of the header Authorization has one of the tokens.
  bool accept(std::string_view authorization) const;

 private:
  std::vector<std::string> tokens_;
};

}  // namespace ridgeline::serve
