#include "ridgeline/plan/kernel_aliases.h"

#include <optional>

namespace ridgeline {
namespace {

struct Alias {
  std::string_view former, current;
};

#define ALIAS(former, current) {former, current},
constexpr Alias kAliases[] = {
#include "ridgeline/plan/kernel_aliases.inc"
};
#undef ALIAS

// Returns the texts that the pattern's stars stand for in `name`, or nothing if it does not match.
std::optional<std::vector<std::string_view>> match(std::string_view name,
                                                   std::string_view pattern) {
  const size_t star = pattern.find('*');
  if (star == std::string_view::npos) {
    if (name != pattern) return std::nullopt;
    return std::vector<std::string_view>{};
  }
  if (!name.starts_with(pattern.substr(0, star))) return std::nullopt;
  for (size_t end = star; end <= name.size(); ++end) {
    auto rest = match(name.substr(end), pattern.substr(star + 1));
    if (!rest) continue;
    rest->insert(rest->begin(), name.substr(star, end - star));
    return rest;
  }
  return std::nullopt;
}

}  // namespace

std::string current_kernel_name(std::string_view name) {
  for (const Alias& alias : kAliases) {
    const auto texts = match(name, alias.former);
    if (!texts) continue;
    std::string current;
    size_t next = 0;
    for (const char c : alias.current) {
      if (c == '*') {
        current += (*texts)[next++];
      } else {
        current += c;
      }
    }
    return current;
  }
  return std::string(name);
}

std::vector<std::string> current_kernel_names(std::vector<std::string> names) {
  for (std::string& name : names) name = current_kernel_name(name);
  return names;
}

}  // namespace ridgeline
