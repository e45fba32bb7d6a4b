#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "ridgeline/data/sample_set.h"
#include "ridgeline/data/sets.h"

namespace ridgeline::data {

// A folder to search, and its origin ("--data", "$RIDGELINE_DATA", ...). It may be a set's own
// folder or its parent.
struct Place {
  std::filesystem::path folder;
  std::string why;
};

// Returns the places in search order: `data_dir` (--data; empty: not given), $RIDGELINE_DATA, the
// user's cache, the folder of the distribution's packages.
std::vector<Place> search_places(const std::filesystem::path& data_dir);

// The folder "data" of cache_folder(); empty if there is none.
std::filesystem::path user_data_folder();

// Returns the first folder that holds the files of `parts`. Throws Error(data), with all places
// searched and the command that downloads the set. If neither the folder's name nor its parent's
// identifies the set, it must hold this set's labels: MNIST and Fashion-MNIST have the same file
// names.
std::filesystem::path find_set(const SetInfo& set, const std::filesystem::path& data_dir = {},
                               std::vector<Part> parts = {Part::train, Part::test});

// Returns the file of a set that is one text; throws like find_set.
std::filesystem::path find_text(const SetInfo& set, const std::filesystem::path& data_dir = {});

// Returns one part of a set of labelled texts; throws like find_set.
std::filesystem::path find_records(const SetInfo& set, Part part,
                                   const std::filesystem::path& data_dir = {});

// Loads a named set, or a folder of IDX files.
DataSet load(std::string_view name_or_folder, const std::filesystem::path& data_dir = {});
// Loads one part. For a folder that is not a named set, `classes` 0 means: as many as its labels
// use.
SampleSet load_part(std::string_view name_or_folder, Part part,
                    const std::filesystem::path& data_dir = {}, int classes = 0);

enum class FileState {
  ok,        // as mirrors serve it
  repacked,  // the same contents, compressed differently or not at all
  missing,
  differs,
  damaged,  // unreadable; the note says why
};

struct FileCheck {
  std::string name;
  std::filesystem::path path{};  // empty if missing
  FileState state = FileState::missing;
  std::string expected{},
      found{};         // sha256: of the contents if repacked or plain, else of the file
  std::string note{};  // one line for people

  bool good() const { return state == FileState::ok || state == FileState::repacked; }
};

struct CheckReport {
  std::string set;
  std::filesystem::path folder;
  std::vector<FileCheck> files;

  bool good() const;
};

FileCheck check_file(const FileInfo& info, const std::filesystem::path& folder);

// Checks every file of the set against its checksums, in `data_dir` or, if that is empty, in the
// first place that holds any of them. Throws Error(data) if none is found; a file that differs does
// not throw.
CheckReport check(const SetInfo& set, const std::filesystem::path& data_dir = {});

}  // namespace ridgeline::data
