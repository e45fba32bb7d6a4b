#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "ridgeline/nn/safetensors.h"

namespace ridgeline::engine {

// The folder of one run: model, metrics, config and two checkpoints. Held by one process at a time.
class RunFolder {
 public:
  enum class Use { fresh, force, resume };

  // Makes the folder, takes its lock, proves that it can be written and removes what a killed run
  // left half-written. Throws usage when it holds another run and `use` is fresh, or nothing to
  // resume; io when it is read-only or another process (named) holds it. `force` removes the files
  // of the old run.
  RunFolder(std::filesystem::path folder, Use use);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::filesystem::path& path() const { return folder_; }
  std::filesystem::path model() const { return folder_ / "model.safetensors"; }
  std::filesystem::path metrics() const { return folder_ / "metrics.jsonl"; }
  std::filesystem::path config() const { return folder_ / "config.toml"; }
  std::filesystem::path tensorboard() const { return folder_ / "tensorboard"; }
  std::filesystem::path checkpoint() const { return folder_ / "checkpoint.safetensors"; }
  std::filesystem::path previous() const { return folder_ / "checkpoint.prev.safetensors"; }
  bool has_checkpoint() const;

  // The newest becomes the previous, then `bytes` the newest. Whatever fails, a good one stays.
  void save_checkpoint(std::span<const std::byte> bytes);

  // The newest checkpoint that `check` accepts: when the newest is damaged the one before it, after
  // a warning, and the damaged one is removed. Throws model when neither is good.
  nn::TensorFile load_checkpoint(const std::function<void(const nn::TensorFile&)>& check,
                                 const std::function<void(const std::string&)>& warn);

  // Appends one line to metrics.jsonl.
  void append_metrics(const std::string& line);
  // Leaves only the lines whose "step" is at most `step`: a resumed run writes the rest again.
  // Returns the step of the last evaluation among them, or -1.
  int64_t trim_metrics(int64_t step);

 private:
  void take_lock();
  void remove_leftovers();
  void remove_old_run();
  [[noreturn]] void throw_no_run() const;

  std::filesystem::path folder_;
  int lock_ = -1;
  int metrics_ = -1;
};

}  // namespace ridgeline::engine
