#include "ridgeline/engine/written_files.h"

#include <fmt/format.h>

#include <fstream>

#include "ridgeline/core/checksum.h"
#include "ridgeline/nn/model_file.h"
#include "ridgeline/nn/safetensors_checksums.h"
#include "ridgeline/prof/event_file.h"

namespace ridgeline::engine {
namespace fs = std::filesystem;
namespace {

// Returns the first `most` bytes, or none.
std::string head_of(const fs::path& file, size_t most) {
  std::error_code error;
  if (!fs::is_regular_file(file, error)) return {};
  std::ifstream in(file, std::ios::binary);
  std::string head(most, '\0');
  in.read(head.data(), std::streamsize(most));
  head.resize(size_t(in.gcount()));
  return head;
}

constexpr size_t kMostConfig = size_t{16} << 20;  // far above any config

std::string config_mark(const std::string& toml) {
  return fmt::format(
      "# Written by ridgeline train (crc32 {}). Once you change it, it is yours and is never "
      "replaced.\n",
      crc32_text(toml));
}

// Version 0.1 did not mark its config, but wrote the same text into the checkpoint and the model.
bool is_config_of(const fs::path& tensor_file, const std::string& toml) {
  if (!is_ridgeline_tensor_file(tensor_file)) return false;
  try {
    return nn::read_description(nn::TensorFile::read(tensor_file)).config == toml;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

bool is_ridgeline_tensor_file(const fs::path& file) {
  const std::string head = head_of(file, 128);
  if (head.size() <= 8) return false;
  const std::string_view json = std::string_view(head).substr(8);
  if (nn::has_own_head(json)) return true;
  // The form of version 0.1. Other programs that copy its metadata do not keep the order of the
  // keys.
  const std::string_view sorted = R"({"__metadata__":{"format":"pt","ridgeline.c)";
  return json.starts_with(sorted) && (json.substr(sorted.size()).starts_with("heckpoint\"") ||
                                      json.substr(sorted.size()).starts_with("lasses\""));
}

bool is_ridgeline_metrics(const fs::path& file) {
  std::error_code error;
  if (!fs::is_regular_file(file, error)) return false;
  if (fs::file_size(file, error) == 0 && !error) return true;
  const std::string head = head_of(file, 64);
  for (const std::string_view own : {R"({"event":"train","step":)", R"({"event":"eval","step":)"}) {
    // The first line of a killed run may be truncated.
    if (!head.empty() && head.starts_with(own.substr(0, head.size()))) return true;
  }
  return false;
}

bool is_ridgeline_event_file(const fs::path& file) {
  return prof::EventFile::wrote(head_of(file, size_t{64} << 10));
}

std::string marked_config(const std::string& toml) { return config_mark(toml) + toml; }

bool is_ridgeline_config(const fs::path& file) {
  const std::string text = head_of(file, kMostConfig);
  const size_t line = text.find('\n');
  if (line == text.npos) return false;
  const std::string toml = text.substr(line + 1);
  if (text.compare(0, line + 1, config_mark(toml)) == 0) return true;
  for (const char* name :
       {"checkpoint.safetensors", "checkpoint.prev.safetensors", "model.safetensors"}) {
    if (is_config_of(file.parent_path() / name, text)) return true;
  }
  return false;
}

}  // namespace ridgeline::engine
