#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ridgeline/core/file.h"
#include "ridgeline/engine/train/replaced_run.h"
#include "ridgeline/nn/safetensors.h"

namespace ridgeline::engine {

// The folder of one run: model, metrics, config and two checkpoints. One process at a time holds
// it.
class RunFolder {
 public:
  enum class Use { fresh, force, resume };

  // Makes the folder, takes its lock, checks that it is writable and removes unfinished files of a
  // killed run. Throws Error(usage) if it holds another run and `use` is fresh, if there is nothing
  // to resume, or if a file that ridgeline did not write would be replaced; Error(io) if it is
  // read-only or another process (named) holds it.
  RunFolder(std::filesystem::path folder, Use use);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  // Call it when nothing can keep the run from starting any more: writes its config and, with
  // `force`, moves the old run aside. The old run is removed with the first checkpoint or line of
  // metrics; without any it is restored by the destructor. Returns false if the config there is the
  // user's and stays.
  bool begin(const std::string& toml);

  // Whether a folder has anything to resume.
  static bool holds_run(const std::filesystem::path& folder);

  // The files that a run keeps in its folder.
  static const std::vector<std::string>& file_names();

  const std::filesystem::path& path() const { return folder_; }
  std::filesystem::path model() const { return folder_ / "model.safetensors"; }
  std::filesystem::path metrics() const { return folder_ / "metrics.jsonl"; }
  std::filesystem::path config() const { return folder_ / "config.toml"; }
  std::filesystem::path tensorboard() const { return folder_ / "tensorboard"; }
  std::filesystem::path checkpoint() const { return folder_ / "checkpoint.safetensors"; }
  std::filesystem::path previous() const { return folder_ / "checkpoint.prev.safetensors"; }
  bool has_checkpoint() const;

  // The newest becomes the previous one, then `bytes` the newest. Whatever fails, a good one
  // remains. A newest one that was skipped as damaged is kept as checkpoint.damaged.safetensors.
  void save_checkpoint(std::span<const std::byte> bytes);

  // Returns the newest checkpoint that is undamaged and that `check` accepts; if the newest is
  // damaged the one before it, after a warning. Changes nothing on disk. Throws Error(model) if
  // neither is good or if `check` rejects an undamaged one, and Error(io) if one cannot be read,
  // because it may be intact.
  using Check = std::function<void(const nn::TensorFile&)>;
  using Warn = std::function<void(const std::string&)>;
  nn::TensorFile load_checkpoint(const Check& check, const Warn& warn);
  // Returns the one before, if `fault` shows that the result of load_checkpoint is damaged after
  // all.
  nn::TensorFile load_previous(const std::string& fault, const Check& check, const Warn& warn);

  // Appends one line to metrics.jsonl.
  void append_metrics(const std::string& line);
  // Keeps only the lines whose "step" is at most `step`: a resumed run writes the rest again.
  // Returns the steps of the last evaluations among them, or -1.
  struct LastEvaluations {
    int64_t test = -1, validation = -1;
  };
  LastEvaluations trim_metrics(int64_t step);

 private:
  void take_lock();
  void leave();
  void remove_leftovers();
  std::vector<std::filesystem::path> run_files() const;  // whether or not they exist
  void refuse_foreign(const std::vector<std::filesystem::path>& files) const;
  std::vector<std::filesystem::path> written_files() const;
  void remove_replaced();
  [[noreturn]] void throw_no_run() const;

  std::filesystem::path folder_;
  Use use_;
  std::unique_ptr<ReplacedRun> replaced_;
  std::optional<MadeFolder> made_;
  int lock_ = -1;
  bool unused_lock_ = false;  // it was not there before, and the run has not begun
  int metrics_ = -1;
  bool newest_damaged_ = false;
};

}  // namespace ridgeline::engine
