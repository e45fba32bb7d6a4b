#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace ridgeline::cli {

// Whether a file with this beginning is an earlier output of a flag.
using Recognise = std::function<bool(std::string_view head)>;
Recognise begins_with(std::vector<std::string> beginnings);
Recognise is_json();   // of --json
Recognise is_trace();  // of --trace
Recognise is_svg();
Recognise is_report();
Recognise is_model_file();
// For output that cannot be told from a user's own file, such as generated text: only an empty file
// is replaced.
Recognise is_never_ours();

// The files that the flags of all commands read and write, declared with the flags. check()
// examines the paths after the command line has been parsed.
class FileUses {
 public:
  struct File {
    std::string path;
    Recognise ours;          // none: the command itself checks existing files
    bool in_folder = false;  // the folder is made if it does not exist
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
  // `flag` writes these files, as far as they are known before the work.
  void writes(const CLI::App& command, std::string flag, Files files);

  // The one place that keeps results from replacing other files. For the commands that were given,
  // a file to be written must not be a file that is read (by any path), nor be written by another
  // flag, nor exist already without being recognised: Error(usage) says which. Error(io) says that
  // it could not be written. Removes leftovers of killed processes beside these files. For the root
  // rank only, before the work.
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
