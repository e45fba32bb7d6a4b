#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace ridgeline::serve {

// The location of a version of a model.
struct ModelPlace {
  std::string name, version = "1";
  std::filesystem::path path;
};

// Letters, digits and . _ -, not beginning with a dot, at most 128: safe in a URL and in a path.
bool is_model_name(std::string_view text);
bool is_version(std::string_view text);  // digits, at most 18, without leading zeros

// Parses "runs/fashion", "net=runs/fashion" or "net:2=runs/fashion". The default name is that of
// the folder or file. Throws Error(usage) for an invalid name.
ModelPlace parse_place(const std::string& text);

// Finds the models of a folder: NAME.safetensors, NAME/model.safetensors (the folder of a run), or
// NAME/VERSION/model.safetensors. Sorted by name, then by version. Throws Error(io) if there is no
// such folder.
std::vector<ModelPlace> find_models(const std::filesystem::path& folder);

// Compares by number: "9" before "10".
bool version_less(std::string_view a, std::string_view b);

}  // namespace ridgeline::serve
