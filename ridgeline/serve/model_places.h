#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace ridgeline::serve {

// Where a version of a model is.
struct ModelPlace {
  std::string name, version = "1";
  std::filesystem::path path;
};

// Letters, digits and . _ -, not a dot first, at most 128: what may stand in a URL and in a path.
bool is_model_name(std::string_view text);
bool is_version(std::string_view text);  // digits, at most 18, without zeros before them

// "runs/fashion", "net=runs/fashion" or "net:2=runs/fashion". Without a name it is that of the
// folder or file. Throws usage for a name that cannot be one.
ModelPlace parse_place(const std::string& text);

// The models of a folder: NAME.safetensors, NAME/model.safetensors (the folder of a run), or
// NAME/VERSION/model.safetensors. By name, then by version. Throws io if there is no such folder.
std::vector<ModelPlace> find_models(const std::filesystem::path& folder);

// By number: "9" before "10".
bool version_less(std::string_view a, std::string_view b);

}  // namespace ridgeline::serve
