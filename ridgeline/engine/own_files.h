#pragma once

#include <filesystem>
#include <string>

// A file that ridgeline did not write is never deleted or replaced, whichever flag names it. These
// tell by what is in a file, not by its name alone, whether ridgeline wrote it; whatever removes or
// replaces a file that was there before asks here. All are false for what is not a plain file or
// cannot be read.
namespace ridgeline::engine {

// A model file or a checkpoint, also when it is damaged or cut off behind its first bytes.
bool is_own_tensor_file(const std::filesystem::path& file);

// A metrics.jsonl; an empty one counts.
bool is_own_metrics(const std::filesystem::path& file);

// One of TensorBoard's event files.
bool is_own_event_file(const std::filesystem::path& file);

// A config that train kept, as own_config wrote it: with any change it is the user's.
bool is_own_config(const std::filesystem::path& file);
std::string own_config(const std::string& toml);

}  // namespace ridgeline::engine
