#pragma once

#include <functional>

#include "ridgeline/core/thread_pool.h"
#include "ridgeline/data/text_splitter.h"
#include "ridgeline/engine/stream/samples.h"

// The sources that open_samples (samples.cpp) and open_shard (sharded_input.cpp) share.
namespace ridgeline::engine {

// Returns where the texts of a file are, or none if the file does not hold texts for this model.
// Throws usage.
std::optional<data::TextColumns> text_columns(const std::filesystem::path& file,
                                              const LoadedModel& model,
                                              const InputOptions& options);

std::unique_ptr<SampleSource> make_text_source(std::unique_ptr<data::ByteStream> bytes,
                                               const data::TextColumns& columns,
                                               const data::TextPlace& place = {});

// Reads a file or folder of fields for a model of a user's own data. Throws Error(usage) for
// options that only other models have.
std::unique_ptr<SampleSource> make_prepared_source(const std::filesystem::path& path,
                                                   const LoadedModel& model,
                                                   const InputOptions& options);

// Reads all images of a file, or the range of them that `part_of` gives for their number.
std::unique_ptr<SampleSource> make_image_source(const std::filesystem::path& file,
                                                const LoadedModel& model,
                                                const InputOptions& options,
                                                const std::function<Range(int64_t)>& part_of = {});

}  // namespace ridgeline::engine
