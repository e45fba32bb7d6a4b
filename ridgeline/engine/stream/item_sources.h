#pragma once

#include <functional>

#include "ridgeline/core/thread_pool.h"
#include "ridgeline/data/text_splitter.h"
#include "ridgeline/engine/stream/items.h"

// What open_items and open_own_part are made of.
namespace ridgeline::engine {

// Where the texts of a file are, if it is one of texts for this model. Throws usage.
std::optional<data::TextColumns> text_columns(const std::filesystem::path& file,
                                              const LoadedModel& model,
                                              const InputOptions& options);

std::unique_ptr<ItemSource> make_text_source(std::unique_ptr<data::ByteStream> bytes,
                                             const data::TextColumns& columns,
                                             const data::TextPlace& place = {});

// All images of a file, or those that `part_of` picks by their number.
std::unique_ptr<ItemSource> make_image_source(const std::filesystem::path& file,
                                              const LoadedModel& model, const InputOptions& options,
                                              const std::function<Range(int64_t)>& part_of = {});

}  // namespace ridgeline::engine
