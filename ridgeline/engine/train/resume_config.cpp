#include "ridgeline/engine/train/resume_config.h"

#include <system_error>
#include <utility>

#include "ridgeline/core/file.h"
#include "ridgeline/engine/train/replaced_run.h"
#include "ridgeline/engine/train/run_folder.h"
#include "ridgeline/nn/config_limits.h"
#include "ridgeline/nn/model_file.h"

namespace ridgeline::engine {
namespace {

namespace fs = std::filesystem;

struct KeptConfig {
  std::string toml, origin;
};

KeptConfig read_kept(const fs::path& folder) {
  std::error_code ignored;
  // If a run was killed while it replaced another, first restore one of the two.
  if (ReplacedRun::is_left_in(folder)) RunFolder(folder, RunFolder::Use::resume);
  for (const char* name : {"checkpoint.safetensors", "checkpoint.prev.safetensors"}) {
    const fs::path file = folder / name;
    if (!fs::exists(file, ignored)) continue;
    try {
      const nn::TensorFile tensors = nn::TensorFile::read(file);
      return {nn::read_description(tensors).config, file.string()};
    } catch (const Error& error) {
      // The run itself will handle and report the damage; here another file is as good.
      if (error.kind() != ErrorKind::model) throw;
    }
  }
  const fs::path file = folder / "config.toml";
  if (!fs::exists(file, ignored)) {
    throw_error(ErrorKind::usage, "--resume {}: holds no run to continue; begin one with --out",
                folder.string());
  }
  const std::vector<std::byte> bytes = read_file(file, ErrorKind::usage, nn::kMostConfigBytes);
  return {std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), file.string()};
}

}  // namespace

Config load_resume_config(const fs::path& folder, const std::vector<std::string>& sets,
                          Communicator* ranks) {
  KeptConfig kept;
  if (ranks == nullptr || ranks->is_root()) kept = read_kept(folder);
  if (ranks != nullptr && ranks->size() > 1) {
    kept.toml = ranks->text_from_root(kept.toml);
    kept.origin = ranks->text_from_root(kept.origin);
  }
  return parse_config(kept.toml, kept.origin, sets);
}

}  // namespace ridgeline::engine
