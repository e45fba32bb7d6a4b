#include "ridgeline/data/locate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <optional>
#include <utility>

#include "ridgeline/core/cache_file.h"
#include "ridgeline/core/error.h"
#include "ridgeline/data/input_file.h"
#include "ridgeline/data/sha256.h"

namespace ridgeline::data {
namespace fs = std::filesystem;
namespace {

constexpr const char* kSystemFolder = "/usr/share/datasets";  // Debian's dataset-* packages

fs::path from_environment(const char* variable) {
  const char* value = std::getenv(variable);
  return value == nullptr ? fs::path() : fs::path(value);
}

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

std::string payload_sha256(const fs::path& path) {
  InputFile file(path);
  ByteSource source(file);
  return sha256(source);
}

bool named_for(const SetInfo& set, const fs::path& folder) {
  std::error_code ignored;
  const fs::path whole = fs::weakly_canonical(folder, ignored);  // "." gets a name too
  return std::ranges::find(set.folders, whole.filename().string()) != set.folders.end();
}

// Returns the file of one part of a set of records, under the first of its names that exists.
std::optional<fs::path> records_file(const SetInfo& set, Part part, const fs::path& folder) {
  const std::vector<std::string> names =
      part == Part::train ? set.train_files : std::vector<std::string>{set.test_file};
  for (const std::string& name : names) {
    if (auto path = find_spelling(folder, name)) return path;
  }
  return std::nullopt;
}

// Returns whether the small files (labels, texts) identify this set. A damaged file does not.
bool has_labels_of(const SetInfo& set, const fs::path& folder) {
  for (const FileInfo& info : set.files) {
    const bool small = set.text || set.records || info.name.find("labels") != std::string::npos;
    if (!small) continue;
    const auto path = find_spelling(folder, info.name);
    if (!path) continue;
    try {
      return payload_sha256(*path) == info.payload_sha256;
    } catch (const Error&) {
      return false;
    }
  }
  return false;
}

// Returns the folders of a place that may be the set's, best first.
std::vector<fs::path> candidates(const SetInfo& set, const fs::path& place) {
  std::vector<fs::path> folders;
  for (const std::string& name : set.folders) {
    if (is_folder(place / name)) folders.push_back(place / name);
  }
  if (is_folder(place)) folders.push_back(place);
  return folders;
}

// Returns "" if `folder` is usable, else why not.
using Fault = std::function<std::string(const fs::path& folder)>;

std::optional<fs::path> first_good(const SetInfo& set, const std::vector<Place>& places,
                                   const Fault& fault, std::string& looked) {
  for (const Place& place : places) {
    std::string why = is_folder(place.folder) ? "" : "no such folder";
    for (const fs::path& folder : candidates(set, place.folder)) {
      const std::string reason = fault(folder);
      if (reason.empty()) return folder;
      // The first candidate is the most likely one, so its fault is shown.
      if (why.empty()) why = folder == place.folder ? reason : folder.string() + " " + reason;
    }
    looked += fmt::format("{}{} {} ({})", looked.empty() ? "" : ", ", place.why,
                          place.folder.string(), why);
  }
  return std::nullopt;
}

[[noreturn]] void throw_not_found(const SetInfo& set, const std::string& looked) {
  throw_error(ErrorKind::data,
              "{}: data set not found; looked in {}; get it with: ridgeline data get {}", set.name,
              looked, set.name);
}

// Throws for a path that does not exist, or a name that is unknown.
void refuse(std::string_view name_or_folder) {
  if (name_or_folder.find('/') != std::string_view::npos) {
    throw_error(ErrorKind::data, "{}: no such data folder or file; check the path", name_or_folder);
  }
  set_info(name_or_folder);
}

}  // namespace

fs::path user_data_folder() { return cache_file("data"); }

std::vector<Place> search_places(const fs::path& data_dir) {
  std::vector<Place> places{{data_dir, "--data"},
                            {from_environment("RIDGELINE_DATA"), "$RIDGELINE_DATA"},
                            {user_data_folder(), "the user's cache"},
                            {kSystemFolder, "the system's data sets"}};
  std::erase_if(places, [](const Place& place) { return place.folder.empty(); });
  return places;
}

fs::path find_set(const SetInfo& set, const fs::path& data_dir, std::vector<Part> parts) {
  if (set.text) return find_text(set, data_dir).parent_path();
  if (set.records) return find_records(set, parts.front(), data_dir).parent_path();
  if (!data_dir.empty() && !is_folder(data_dir)) {
    throw_error(ErrorKind::data, "--data {}: no such folder", data_dir.string());
  }
  const Fault fault = [&](const fs::path& folder) -> std::string {
    std::string lacks;
    bool any = false;
    for (const Part part : parts) {
      for (const std::string_view name : {images_file(part), labels_file(part)}) {
        if (find_spelling(folder, name)) {
          any = true;
        } else if (lacks.empty()) {
          lacks = name;
        }
      }
    }
    if (!any) return "holds none of its files";
    if (!lacks.empty()) return "lacks " + lacks;
    return named_for(set, folder) || has_labels_of(set, folder) ? "" : "holds another set";
  };
  std::string looked;
  if (const auto folder = first_good(set, search_places(data_dir), fault, looked)) return *folder;
  throw_not_found(set, looked);
}

fs::path find_text(const SetInfo& set, const fs::path& data_dir) {
  if (!data_dir.empty() && !is_folder(data_dir)) {
    throw_error(ErrorKind::data, "--data {}: no such folder", data_dir.string());
  }
  const std::string& name = set.files.front().name;
  const Fault fault = [&](const fs::path& folder) -> std::string {
    if (!find_spelling(folder, name)) return "holds no " + name;
    return named_for(set, folder) || has_labels_of(set, folder) ? "" : "holds another text";
  };
  std::string looked;
  const auto folder = first_good(set, search_places(data_dir), fault, looked);
  if (!folder) throw_not_found(set, looked);
  return *find_spelling(*folder, name);
}

fs::path find_records(const SetInfo& set, Part part, const fs::path& data_dir) {
  if (!data_dir.empty() && !is_folder(data_dir)) {
    throw_error(ErrorKind::data, "--data {}: no such folder", data_dir.string());
  }
  const std::string& name = part == Part::train ? set.train_files.front() : set.test_file;
  const Fault fault = [&](const fs::path& folder) -> std::string {
    if (!records_file(set, part, folder)) return "holds no " + name;
    return named_for(set, folder) || has_labels_of(set, folder) ? "" : "holds another set";
  };
  std::string looked;
  const auto folder = first_good(set, search_places(data_dir), fault, looked);
  if (folder) return *records_file(set, part, *folder);
  if (part == Part::test) throw_not_found(set, looked);
  throw_error(ErrorKind::data,
              "{}: no training file; looked in {}; put {} into one of these folders", set.name,
              looked, fmt::join(set.train_files, " or "));
}

DataSet load(std::string_view name_or_folder, const fs::path& data_dir) {
  if (const SetInfo* set = find_known_set(name_or_folder)) {
    return load_folder(find_set(*set, data_dir), set->name, set->classes);
  }
  if (is_folder(name_or_folder)) {
    return load_folder(name_or_folder, std::string(name_or_folder));
  }
  refuse(name_or_folder);
  return {};
}

SampleSet load_part(std::string_view name_or_folder, Part part, const fs::path& data_dir,
                    int classes) {
  if (const SetInfo* set = find_known_set(name_or_folder)) {
    return load_folder_part(find_set(*set, data_dir, {part}), part, set->name, set->classes);
  }
  if (is_folder(name_or_folder)) {
    return load_folder_part(name_or_folder, part, std::string(name_or_folder), classes);
  }
  refuse(name_or_folder);
  return {};
}

bool CheckReport::good() const { return std::ranges::all_of(files, &FileCheck::good); }

FileCheck check_file(const FileInfo& info, const fs::path& folder) {
  FileCheck result{.name = info.name, .expected = info.sha256};
  const auto path = find_spelling(folder, info.name);
  if (!path) {
    result.note = "missing";
    return result;
  }
  result.path = *path;
  try {
    InputFile file(*path);
    result.found = sha256(file);
    if (result.found == info.sha256) {
      result.state = FileState::ok;
      result.note = "ok";
      return result;
    }
    const std::string contents = payload_sha256(*path);
    if (contents == info.payload_sha256) {
      result.state = FileState::repacked;
      result.expected = info.payload_sha256;
      result.found = contents;
      result.note = "ok (same contents, packed otherwise)";
      return result;
    }
    result.state = FileState::differs;
    result.note =
        fmt::format("differs: expected sha256 {}, found {}", result.expected, result.found);
  } catch (const Error& error) {
    result.state = FileState::damaged;
    result.note = error.what();
  }
  return result;
}

CheckReport check(const SetInfo& set, const fs::path& data_dir) {
  const bool user_named = !data_dir.empty();
  const Fault fault = [&](const fs::path& folder) -> std::string {
    const bool any = std::ranges::any_of(set.files, [&](const FileInfo& info) {
      return find_spelling(folder, info.name).has_value();
    });
    if (!any) return "holds none of its files";
    // A folder that the user names is checked as it is: that it holds something else is the result.
    return user_named || named_for(set, folder) || has_labels_of(set, folder) ? ""
                                                                              : "holds another set";
  };
  std::vector<Place> places = search_places(data_dir);
  if (user_named) places.resize(1);
  std::string looked;
  const auto folder = first_good(set, places, fault, looked);
  if (!folder) throw_not_found(set, looked);
  CheckReport report{set.name, *folder, {}};
  for (const FileInfo& info : set.files) report.files.push_back(check_file(info, *folder));
  return report;
}

}  // namespace ridgeline::data
