#include "ridgeline/plan/kernel_patterns.h"

#include <algorithm>
#include <string_view>

#include "ridgeline/plan/kernel_aliases.h"

namespace ridgeline {
namespace {

bool fits(std::string_view name, std::string_view pattern) {
  const size_t star = pattern.find('*');
  if (star == std::string_view::npos) return name.starts_with(pattern);
  if (!name.starts_with(pattern.substr(0, star))) return false;
  const std::string_view rest = pattern.substr(star + 1);
  if (rest.find('*') == std::string_view::npos) {
    return name.size() >= star + rest.size() && name.ends_with(rest);
  }
  for (size_t at = star; at <= name.size(); ++at) {
    if (fits(name.substr(at), rest)) return true;
  }
  return false;
}

}  // namespace

bool fits_any(const std::string& name, const std::vector<std::string>& patterns) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    return fits(name, current_kernel_name(pattern));
  });
}

bool names_last_part(const std::vector<std::string>& patterns, const std::string& name) {
  const std::string last = name.substr(name.rfind('.'));
  return std::ranges::any_of(patterns,
                             [&](const std::string& pattern) { return pattern.ends_with(last); });
}

bool is_asked_for(const Kernel& kernel, const PlanOptions& options) {
  if (kernel.traits.demonstration && !names_last_part(options.only, kernel.name)) return false;
  return (options.only.empty() || fits_any(kernel.name, options.only)) &&
         !fits_any(kernel.name, options.except);
}

}  // namespace ridgeline
