#include "ridgeline/serve/model_places.h"

#include <algorithm>

#include "ridgeline/core/error.h"
#include "ridgeline/core/text_format.h"

namespace ridgeline::serve {
namespace {

namespace fs = std::filesystem;

// Returns the file of a model in its own folder, or in that of a version; null if there is none.
const char* model_file_in(const fs::path& folder) {
  std::error_code ignored;
  for (const char* name : {"model.safetensors", "model.onnx"}) {
    if (fs::exists(folder / name, ignored)) return name;
  }
  return nullptr;
}

bool is_model_file(const fs::path& path) {
  return path.extension() == ".safetensors" || path.extension() == ".onnx";
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// A run's folder gives its model the name.
std::string name_of(const fs::path& path) {
  fs::path at = path;
  if (!at.has_filename()) at = at.parent_path();  // "runs/fashion/"
  const std::string stem = at.stem().string();
  const bool of_run = is_model_file(at) && (stem == "model" || stem == "checkpoint");
  if (of_run && !at.parent_path().filename().empty()) return at.parent_path().filename().string();
  std::error_code ignored;
  return fs::is_directory(at, ignored) ? at.filename().string() : stem;
}

}  // namespace

bool is_model_name(std::string_view text) {
  constexpr size_t kLongest = 128;
  return !text.empty() && text.size() <= kLongest && text.front() != '.' &&
         std::ranges::all_of(text, [](char c) {
           return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' ||
                  c == '_' || c == '-';
         });
}

bool is_version(std::string_view text) {
  constexpr size_t kLongest = 18;
  return !text.empty() && text.size() <= kLongest && std::ranges::all_of(text, is_digit) &&
         (text.size() == 1 || text.front() != '0');
}

bool version_less(std::string_view a, std::string_view b) {
  return a.size() != b.size() ? a.size() < b.size() : a < b;
}

ModelPlace parse_place(const std::string& text) {
  ModelPlace place;
  const size_t equals = text.find('=');
  std::error_code ignored;
  if (equals == std::string::npos || fs::exists(text, ignored)) {
    place.path = text;
    place.name = name_of(place.path);
    if (!is_model_name(place.name)) {
      throw_error(ErrorKind::usage,
                  "{}: its name {} cannot be a model's (letters, digits, . _ -): give NAME={}",
                  text, quote(place.name), text);
    }
    return place;
  }
  place.name = text.substr(0, equals);
  place.path = text.substr(equals + 1);
  if (const size_t colon = place.name.find(':'); colon != std::string::npos) {
    place.version = place.name.substr(colon + 1);
    place.name.resize(colon);
  }
  if (!is_model_name(place.name) || !is_version(place.version) || place.path.empty()) {
    throw_error(ErrorKind::usage,
                "{}: give PATH, NAME=PATH or NAME:VERSION=PATH, where a name has letters, digits, "
                ". _ - and a version is a number",
                quote(text));
  }
  return place;
}

std::vector<ModelPlace> find_models(const fs::path& folder) {
  std::error_code error;
  std::vector<ModelPlace> places;
  fs::directory_iterator entries(folder, error);
  if (error) {
    throw_error(ErrorKind::io, "--models {}: {}", folder.string(), error.message());
  }
  const auto add = [&](std::string name, std::string version, fs::path path) {
    if (is_model_name(name)) places.push_back({std::move(name), std::move(version), path});
  };
  // A file that disappears meanwhile is skipped.
  for (; entries != fs::directory_iterator(); entries.increment(error)) {
    if (error) break;
    const fs::path& path = entries->path();
    const std::string name = path.filename().string();
    if (!entries->is_directory(error)) {
      if (is_model_file(path)) add(path.stem().string(), "1", path);
      continue;
    }
    if (const char* file = model_file_in(path)) {
      add(name, "1", path / file);
      continue;
    }
    fs::directory_iterator versions(path, error);
    for (; !error && versions != fs::directory_iterator(); versions.increment(error)) {
      const std::string version = versions->path().filename().string();
      const char* file = is_version(version) ? model_file_in(versions->path()) : nullptr;
      if (file != nullptr) add(name, version, versions->path() / file);
    }
    error.clear();
  }
  std::ranges::sort(places, [](const ModelPlace& a, const ModelPlace& b) {
    return a.name != b.name ? a.name < b.name : version_less(a.version, b.version);
  });
  return places;
}

}  // namespace ridgeline::serve
