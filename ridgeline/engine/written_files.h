#pragma once

#include <filesystem>
#include <string>

// A file that ridgeline did not write is never deleted or replaced, whichever flag names it. These
// functions tell from the contents of a file, not only from its name, whether ridgeline wrote it;
// all code that removes or replaces existing files calls them. All return false for a file that is
// not regular or cannot be read.
namespace ridgeline::engine {

// A model file or a checkpoint, even if it is damaged or truncated after its first bytes.
bool is_ridgeline_tensor_file(const std::filesystem::path& file);

// A metrics.jsonl, possibly empty.
bool is_ridgeline_metrics(const std::filesystem::path& file);

// One of TensorBoard's event files.
bool is_ridgeline_event_file(const std::filesystem::path& file);

// A config that train wrote with marked_config; once changed, it is the user's.
bool is_ridgeline_config(const std::filesystem::path& file);
std::string marked_config(const std::string& toml);

}  // namespace ridgeline::engine
