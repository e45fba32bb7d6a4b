#include "ridgeline/data/source/open.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "ridgeline/core/text.h"
#include "ridgeline/core/text_format.h"
#include "ridgeline/data/sample_set.h"
#include "ridgeline/data/source/array_sources.h"
#include "ridgeline/data/source/bounded_bytes.h"
#include "ridgeline/data/source/detect.h"
#include "ridgeline/data/source/image_folder.h"
#include "ridgeline/data/source/json_table.h"
#include "ridgeline/data/source/npy.h"
#include "ridgeline/data/source/npz.h"
#include "ridgeline/data/source/safetensors_source.h"
#include "ridgeline/data/source/table.h"
#include "ridgeline/data/text_reader.h"

namespace ridgeline::data {
namespace {

namespace fs = std::filesystem;

struct PartWord {
  std::string_view word, part;
};
constexpr std::array<PartWord, 6> kPartWords{{{"train", "train"},
                                              {"training", "train"},
                                              {"validation", "validation"},
                                              {"valid", "validation"},
                                              {"val", "validation"},
                                              {"test", "test"}}};

// Returns the part that a name belongs to, and the rest of the name; an empty part if it has none.
std::pair<std::string, std::string> part_of(const std::string& name) {
  for (const auto& [word, part] : kPartWords) {
    const std::string after = fmt::format("_{}", word), before = fmt::format("{}_", word);
    if (name.size() > after.size() && name.ends_with(after)) {
      return {std::string(part), name.substr(0, name.size() - after.size())};
    }
    if (name.size() > before.size() && name.starts_with(before)) {
      return {std::string(part), name.substr(before.size())};
    }
  }
  return {"", name};
}

std::string stem_of(const fs::path& path) {
  fs::path name = path.filename();
  if (name.extension() == ".gz") name = name.stem();
  const std::string stem = name.stem().string();
  return stem.empty() ? "x" : stem;
}

std::vector<SetPart> one_set(const fs::path& path, std::vector<Field> fields) {
  FieldSet set(path.string());
  for (Field& field : fields) set.add(std::move(field));
  std::vector<SetPart> parts;
  parts.push_back({"", std::move(set)});
  return parts;
}

std::vector<SetPart> one_set(const fs::path& path, Field field) {
  std::vector<Field> fields;
  fields.push_back(std::move(field));
  return one_set(path, std::move(fields));
}

// Divides arrays by part if every name has one, else returns one set.
std::vector<SetPart> sets_of(const fs::path& path, std::vector<Field> fields) {
  const bool named = std::ranges::all_of(
      fields, [](const Field& field) { return !part_of(field.name).first.empty(); });
  if (!named) return one_set(path, std::move(fields));
  std::vector<SetPart> parts;
  for (const std::string_view part : {"train", "validation", "test"}) {
    FieldSet set(fmt::format("{} ({})", path.string(), part));
    for (const Field& field : fields) {
      auto [of, name] = part_of(field.name);
      if (of != part) continue;
      Field renamed = field;
      renamed.name = std::move(name);
      set.add(std::move(renamed));
    }
    if (!set.fields().empty()) parts.push_back({std::string(part), std::move(set)});
  }
  return parts;
}

FieldSet read_lines(const fs::path& path) {
  const auto reader = open_text(open_bounded(path), {.format = TextFormat::lines}, {});
  std::string bytes;
  std::vector<int64_t> offsets{0};
  for (TextRecord record; reader->next(record);) {
    bytes += record.text;
    offsets.push_back(int64_t(bytes.size()));
  }
  Field field = text_field("text", bytes, std::move(offsets));
  field.origin = path.string();
  FieldSet set(path.string());
  set.add(std::move(field));
  return set;
}

OpenedSource open_images(ImageFolder folder, const SourceOptions& options, std::string title) {
  OpenedSource source{std::move(title), {}};
  source.images = chosen_size(folder, options.images);
  source.parts.push_back({"", read_image_folder(folder, source.images)});
  return source;
}

// Finds FOLDER/train/CLASS/NAME and so on. A size that is chosen holds for all parts.
std::vector<SetPart> image_parts(const fs::path& folder, ImageOptions& options) {
  std::vector<SetPart> parts;
  for (const auto& [word, part] : kPartWords) {
    std::error_code ignored;
    if (!fs::is_directory(folder / word, ignored)) continue;
    const ImageFolder images = scan_image_folder(folder / word);
    options = chosen_size(images, options);
    parts.push_back({std::string(part), read_image_folder(images, options)});
  }
  return parts;
}

std::vector<SetPart> idx_parts(const fs::path& folder) {
  std::vector<SetPart> parts;
  for (const Part part : {Part::train, Part::test}) {
    const auto images = find_spelling(folder, images_file(part));
    const auto labels = find_spelling(folder, labels_file(part));
    if (!images || !labels) continue;
    FieldSet set(folder.string());
    set.add(read_idx_field(*images, "image"));
    set.add(read_idx_field(*labels, "label"));
    parts.push_back({part == Part::train ? "train" : "test", std::move(set)});
  }
  return parts;
}

OpenedSource open_folder(const fs::path& folder, const SourceOptions& options) {
  if (auto parts = idx_parts(folder); !parts.empty()) {
    return {"a folder of IDX files", std::move(parts)};
  }
  ImageOptions as = options.images;
  if (auto parts = image_parts(folder, as); !parts.empty()) {
    return {"folders of images by class", std::move(parts), false, as};
  }
  ImageFolder images = scan_image_folder(folder);
  std::string title = images.classes.empty() ? "a folder of images" : "a folder of images by class";
  return open_images(std::move(images), options, std::move(title));
}

OpenedSource open_table(const fs::path& path, const SourceOptions& options) {
  OpenedSource source{std::string(title(Content::table)), {}, true};
  source.parts.push_back({"", read_table(path, options.table)});
  return source;
}

// Raw numbers may look like a text, or like IDX if they begin with zeros; a longer magic is no
// coincidence.
bool may_be_raw(Content content) {
  return content == Content::binary || content == Content::text || content == Content::table ||
         content == Content::idx || content == Content::bmp || content == Content::pickle ||
         content == Content::utf16;
}

OpenedSource open_raw(const fs::path& path, const Detected& found, const SourceOptions& options) {
  if (!options.raw_type || !options.raw_shape) {
    throw_error(ErrorKind::usage,
                "{}: give both the type (--dtype) and the shape of a sample "
                "(--shape) of raw numbers; in a config, data.dtype and data.shape",
                path.string());
  }
  if (!may_be_raw(found.content))
    refuse_content(path, found, "a file of nothing but numbers (--dtype, --shape)");
  return {
      fmt::format("raw {}", options.raw_type->name()),
      one_set(path, read_raw_field(path, stem_of(path), *options.raw_type, *options.raw_shape))};
}

OpenedSource open_file(const fs::path& path, const Detected& found, const SourceOptions& options) {
  const std::string what(title(found.content));
  switch (found.content) {
    case Content::npy:
      return {what, one_set(path, read_npy(path, stem_of(path)))};
    case Content::npz:
      if (found.gzip) refuse_content(path, found, "a file that is packed once");
      return {what, sets_of(path, read_npz(path))};
    case Content::safetensors:
      if (found.gzip) refuse_content(path, found, "a file that is not packed");
      return {what, sets_of(path, read_safetensors(path))};
    case Content::idx:
      return {what, one_set(path, read_idx_field(path, stem_of(path)))};
    case Content::table:
      return open_table(path, options);
    case Content::json_lines: {
      OpenedSource source{what, {}, true};
      source.parts.push_back({"", read_json_table(path, options.table)});
      return source;
    }
    case Content::text: {
      OpenedSource source{what, {}};
      source.parts.push_back({"", read_lines(path)});
      return source;
    }
    case Content::png:
    case Content::jpeg: {
      ImageFolder one;
      one.path = path;
      one.files = {path};
      one.infos = {read_image_info(path)};
      return open_images(std::move(one), options, what);
    }
    default:
      refuse_content(path, found, "a source of samples");
  }
}

}  // namespace

OpenedSource open_source(const fs::path& path, const SourceOptions& options) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return open_folder(path, options);
  Detected found = detect(path);
  // Whoever names a separator says that a text is a table.
  if (found.content == Content::text && options.table.separator != '\0') {
    found.content = Content::table;
  }
  const bool raw = (options.raw_type || options.raw_shape) &&
                   (may_be_raw(found.content) || !options.raw_if_unknown);
  OpenedSource source = raw ? open_raw(path, found, options) : open_file(path, found, options);
  if (found.gzip) source.title += ", packed by gzip";
  return source;
}

}  // namespace ridgeline::data
