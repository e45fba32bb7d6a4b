#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

// toml++ asserts, and in release builds of clang assumes, what input like "[[[" does not keep, and
// then reports that input properly. So neither: its assertions are empty, in every build.
#pragma push_macro("NDEBUG")
#undef NDEBUG
#define TOML_ASSERT(expr) static_cast<void>(0)
#include <toml++/toml.h>
#pragma pop_macro("NDEBUG")

namespace ridgeline::nn {

// A parsed config file and the overrides applied to it. Only config_table.cpp includes this, and
// nothing else includes toml++: it is slow to compile and set up as above.
class ConfigDocument {
 public:
  ConfigDocument(const std::string& text, const std::string& origin);  // throws usage on bad TOML

  void apply(const std::string& given);  // "model.layers.0.out=2048"

  const toml::node* find(std::span<const std::string> path) const;  // nullptr: absent

  // "mlp.toml:3:7: ", "--set train.batch=0: " or, for what is absent, its table's place. `key`: the
  // place of the key rather than of its value.
  std::string place(std::span<const std::string> path, const toml::key* key = nullptr) const;

 private:
  toml::table root_;
  std::string origin_;
  std::vector<std::pair<std::vector<std::string>, std::string>> sets_;  // path, as given
};

}  // namespace ridgeline::nn
