#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace ridgeline::cli {

// Whether a file that begins with these bytes is what a flag wrote earlier.
using Recognise = std::function<bool(std::string_view head)>;
Recognise begins_with(std::vector<std::string> beginnings);
Recognise is_json();   // of --json
Recognise is_trace();  // of --trace
Recognise is_svg();
Recognise is_report();
Recognise is_model_file();
// For what nothing tells from a user's own file, such as generated text: only an empty file goes.
Recognise is_never_ours();

// Which files the flags of all commands read and write, told when the flags are declared. The paths
// are looked at when check() is called, after the command line has been parsed.
class FileUses {
 public:
  struct File {
    std::string path;
    Recognise ours;          // none: the command itself looks at what is there
    bool in_folder = false;  // which is made if it is not there
  };
  using Files = std::function<std::vector<File>()>;

  // `flag` names a file, or a folder with some of the `inside` in it.
  void reads(const CLI::App& command, std::string flag, const std::string& path,
             std::vector<std::string> inside = {});
  // `flag` names several of them.
  void reads(const CLI::App& command, std::string flag,
             std::function<std::vector<std::string>()> paths, std::vector<std::string> inside = {});
  // `flag` names a file; "-" is stdout.
  void writes(const CLI::App& command, std::string flag, const std::string& path, Recognise ours);
  // `flag` has these files written, as far as they are known before the work.
  void writes(const CLI::App& command, std::string flag, Files files);

  // The one place that keeps results from replacing what is not theirs. Of the commands that were
  // given, every file to be written must be neither a file that is read (whichever way a path
  // leads to it), nor written by another flag, nor a file that is there already and not
  // recognised: Error(usage) says which. Error(io) says that it could not be written. Removes what
  // a killed process has left beside these files. For the root rank alone, before the work.
  void check() const;

 private:
  struct Input {
    const CLI::App* command;
    std::string flag;
    std::function<std::vector<std::string>()> paths;
    std::vector<std::string> inside;
  };
  struct Output {
    const CLI::App* command;
    std::string flag;
    Files files;
  };

  std::vector<Input> inputs_;
  std::vector<Output> outputs_;
};

}  // namespace ridgeline::cli
