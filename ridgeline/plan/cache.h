#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace ridgeline {

// $XDG_CACHE_HOME/ridgeline, else ~/.cache/ridgeline; whoever writes creates it.
std::filesystem::path cache_folder();

// A plan as it was chosen: its kernels, and the seconds that a step took at that time.
struct KeptPlan {
  std::vector<std::string> kernels;
  double seconds = 0;
  // When it was chosen, in seconds since 1970, if other processes used the processors meanwhile, so
  // that the choice is uncertain; else 0.
  int64_t disturbed = 0;
};

// Measured times and chosen plans, kept on disk between runs for one environment (device, threads,
// library versions, this very build). It only saves time: a missing, corrupt or foreign file reads
// as empty, and a file that cannot be written is no error.
class TuningCache {
 public:
  TuningCache(std::filesystem::path file, const std::string& environment);
  // The cache in its usual folder, for a runtime's fingerprint and the running executable.
  static TuningCache standard(const std::string& fingerprint);

  std::optional<double> kernel_seconds(const std::string& key) const;
  void set_kernel_seconds(const std::string& key, double seconds);

  std::optional<KeptPlan> plan(const std::string& program) const;
  void set_plan(const std::string& program, KeptPlan plan);

  // Merges with what other processes wrote meanwhile and replaces the file in one rename.
  void save() const noexcept;

  const std::filesystem::path& file() const { return file_; }

 private:
  void load();

  std::filesystem::path file_;
  std::string environment_;
  std::map<std::string, double> kernels_;
  std::map<std::string, KeptPlan> plans_;  // by hash of the program's signature
};

}  // namespace ridgeline
