#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "ridgeline/data/sample_set.h"
#include "ridgeline/data/sets.h"

namespace ridgeline::data {

// A folder to look in, and what names it ("--data", "$RIDGELINE_DATA", ...). It may be a set's own
// folder or one that holds it.
struct Place {
  std::filesystem::path folder;
  std::string why;
};

// In the order of the search: `data_dir` (--data; empty: not given), $RIDGELINE_DATA, the user's
// cache, where the distribution's packages put data.
std::vector<Place> search_places(const std::filesystem::path& data_dir);

// The folder "data" of cache_folder(); empty when there is none.
std::filesystem::path user_data_folder();

// The first folder that holds the files of `parts`. Throws data, with all places looked in and the
// command that gets the set. A folder that goes by another name and has no parent that says which
// set it is must hold this set's labels: MNIST's files are called as Fashion-MNIST's.
std::filesystem::path find_set(const SetInfo& set, const std::filesystem::path& data_dir = {},
                               std::vector<Part> parts = {Part::train, Part::test});

// The file of a set that is one text; throws as find_set.
std::filesystem::path find_text(const SetInfo& set, const std::filesystem::path& data_dir = {});

// One part of a set of labelled texts; throws as find_set.
std::filesystem::path find_records(const SetInfo& set, Part part,
                                   const std::filesystem::path& data_dir = {});

// A named set, or a folder of IDX files.
DataSet load(std::string_view name_or_folder, const std::filesystem::path& data_dir = {});
// One part alone. For a folder that is no named set, `classes` 0 means: as many as its labels use.
SampleSet load_part(std::string_view name_or_folder, Part part,
                    const std::filesystem::path& data_dir = {}, int classes = 0);

enum class FileState {
  ok,        // as mirrors serve it
  repacked,  // the same contents, packed otherwise or not at all
  missing,
  differs,
  damaged,  // unreadable; the note says why
};

struct FileCheck {
  std::string name;
  std::filesystem::path path{};  // empty when missing
  FileState state = FileState::missing;
  std::string expected{},
      found{};         // sha256: of the contents when repacked or plain, else of the file
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

// Every file of the set against its sums, in `data_dir` or, when that is empty, in the first place
// that holds any of them. Throws data when none is found; a file that differs is no throw.
CheckReport check(const SetInfo& set, const std::filesystem::path& data_dir = {});

}  // namespace ridgeline::data
