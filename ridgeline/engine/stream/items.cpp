#include "ridgeline/engine/stream/items.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "ridgeline/core/json.h"
#include "ridgeline/core/text.h"
#include "ridgeline/data/idx.h"
#include "ridgeline/data/resize.h"
#include "ridgeline/engine/resident_set.h"
#include "ridgeline/engine/stream/item_sources.h"

namespace ridgeline::engine {
namespace {

constexpr int64_t kMostImage = int64_t{1} << 26;  // pixels of one that is to be resized

// What the model's own config says about texts, if it was trained on any.
const TextConfig* texts_of(const LoadedModel& model) {
  return model.config.data.text ? &*model.config.data.text : nullptr;
}

class ImageSource final : public ItemSource {
 public:
  ImageSource(const std::filesystem::path& file, const LoadedModel& model, bool idx)
      : items_(file, model.model.input(), idx),
        codes_(model.model.layers().front()->codes_below()) {
    coding_.file = file.string();
    coding_.image = items_.item();
    check(model);
  }

  const ItemCoding& coding() const override { return coding_; }
  data::ItemStream& items() { return items_; }

 private:
  void check(const LoadedModel& model) {
    const Shape& item = items_.item();
    const auto& resize = model.config.data.resize;
    Shape shape = item;
    if (resize && item.rank() == 2) shape = {resize->height, resize->width};
    if (resize && item.rank() == 3) shape = {item[0], resize->height, resize->width};
    if (shape.numel() != model.model.input().numel()) {
      throw_error(ErrorKind::data, "{}: holds {} but the model takes items of {}", coding_.file,
                  to_string(items_.items() ? item.prepend(*items_.items()) : item),
                  to_string(model.model.input()));
    }
    if (!resize || item.numel() <= shape.numel()) return;
    if (item.numel() > kMostImage) {
      throw_error(ErrorKind::data, "{}: an image of {} has {} bytes; at most {} can be resized",
                  coding_.file, to_string(item), item.numel(), kMostImage);
    }
    most_rows_ = std::max<int64_t>(1, int64_t(data::TextSplitter::kMostBytes) / item.numel());
  }

  void read(int64_t rows, std::vector<uint8_t>& buffer, ChunkHead& head) override {
    const size_t have = buffer.size();
    head.rows = items_.read(std::min(rows, most_rows_), buffer);
    // All chunks but the last have as many: a launch may be made for them.
    if (codes_ > 0) {
      check_codes(std::span(buffer).subspan(have), codes_, items_.item().numel(), head.first_row,
                  coding_.file);
    }
  }

  data::ItemStream items_;
  int64_t most_rows_ = std::numeric_limits<int64_t>::max();
  int64_t codes_;  // that the model knows, where its items are codes; 0: they are not
  ItemCoding coding_;
};

class TextSource final : public ItemSource {
 public:
  TextSource(std::unique_ptr<data::ByteStream> bytes, const data::TextColumns& columns,
             const data::TextPlace& place = {})
      : splitter_((coding_.file = bytes->name(), std::move(bytes)), columns, place) {
    coding_.text = true;
    coding_.columns = splitter_.columns();
  }

  const ItemCoding& coding() const override { return coding_; }

 private:
  void read(int64_t rows, std::vector<uint8_t>& buffer, ChunkHead& head) override {
    const data::TextSplitter::Piece piece = splitter_.next(rows, buffer);
    head.rows = piece.records;
    head.cut_short = piece.records < rows && splitter_.more();
    head.line = piece.place.line;
    head.columns = int64_t(piece.place.columns);
  }

  ItemCoding coding_;
  data::TextSplitter splitter_;
};

bool as_idx(const std::filesystem::path& file, const InputOptions& options) {
  return options.format == InputFormat::idx ||
         (options.format == InputFormat::automatic && data::is_idx(file));
}

}  // namespace

std::optional<data::TextColumns> text_columns(const std::filesystem::path& file,
                                              const LoadedModel& model,
                                              const InputOptions& options) {
  const TextConfig* texts = texts_of(model);
  const bool wants_text = options.format == InputFormat::csv ||
                          options.format == InputFormat::lines ||
                          options.format == InputFormat::jsonl;
  if (texts == nullptr && wants_text) {
    throw_error(ErrorKind::usage, "{}: the model takes images, not texts", file.string());
  }
  const auto no_columns = [&](const char* why) {
    if (options.columns.empty()) return;
    throw_error(ErrorKind::usage, "--columns: {} {}; leave it out", file.string(), why);
  };
  const bool codes = options.format == InputFormat::automatic
                         ? texts != nullptr && data::is_idx(file)
                         : !wants_text;
  if (texts == nullptr || codes) {
    no_columns(texts == nullptr ? "is read as images, which have none"
                                : "holds codes of texts, which have none");
    return {};
  }
  data::TextColumns columns = texts->columns;
  columns.label.clear();  // nobody asks for it here
  columns.format = options.format == InputFormat::csv     ? data::TextFormat::csv
                   : options.format == InputFormat::lines ? data::TextFormat::lines
                   : options.format == InputFormat::jsonl ? data::TextFormat::jsonl
                                                          : data::text_format(file);
  if (columns.format == data::TextFormat::lines) no_columns("is read as lines, which have none");
  const bool numbers = std::ranges::all_of(columns.text, [](const std::string& name) {
    return std::ranges::all_of(name, [](char c) { return c >= '0' && c <= '9'; });
  });
  if (!options.columns.empty()) {
    columns.text = options.columns;
  } else if (columns.format == data::TextFormat::jsonl && numbers) {
    columns.text = {"text"};  // trained on a csv file without names
  }
  return columns;
}

std::string ItemCoding::to_text() const {
  nlohmann::json json{{"file", file},
                      {"text", text},
                      {"format", int(columns.format)},
                      {"columns", columns.text},
                      {"image", nlohmann::json::array()}};
  for (int i = 0; i < image.rank(); ++i) json["image"].push_back(image[i]);
  return dump_json(json, -1);
}

ItemCoding ItemCoding::from_text(const std::string& text) {
  const auto json = nlohmann::json::parse(text);
  ItemCoding coding;
  coding.file = json["file"];
  coding.text = json["text"];
  coding.columns.format = data::TextFormat(int(json["format"]));
  coding.columns.text = json["columns"].get<std::vector<std::string>>();
  const auto extents = json["image"].get<std::vector<int64_t>>();
  coding.image = Shape(std::span<const int64_t>(extents));
  return coding;
}

Decoder::Decoder(const LoadedModel& model, ItemCoding coding)
    : coding_(std::move(coding)), features_(model.model.input().numel()) {
  if (const TextConfig* texts = texts_of(model)) text_ = texts->coding;
  const int rank = coding_.image.rank();
  if (!coding_.text && (rank == 2 || rank == 3)) resize_ = model.config.data.resize;
}

void Decoder::decode(const Chunk& chunk, std::vector<uint8_t>& items) const {
  if (coding_.text) return decode_text(chunk, items);
  const std::span<const uint8_t> body = chunk.body();
  if (!resize_) {
    items.assign(body.begin(), body.end());
    return;
  }
  HostTensor images(DType::uint8, coding_.image.prepend(chunk.head().rows));
  std::ranges::copy(body, images.span<uint8_t>().begin());
  const HostTensor scaled = data::resize(images.view(), resize_->height, resize_->width);
  const auto bytes = scaled.span<const uint8_t>();
  items.assign(bytes.begin(), bytes.end());
}

void Decoder::decode_text(const Chunk& chunk, std::vector<uint8_t>& items) const {
  const ChunkHead head = chunk.head();
  const auto reader = data::open_text(
      std::make_unique<data::MemoryStream>(std::as_bytes(chunk.body()), coding_.file),
      coding_.columns, {head.line, size_t(head.columns), /*begins_file=*/false});
  const auto features = size_t(features_);
  items.resize(size_t(head.rows) * features);
  int64_t row = 0;
  for (data::TextRecord record; row < head.rows && reader->next(record); ++row) {
    text_->vocabulary.encode(record.text, text_->backward,
                             std::span(items).subspan(size_t(row) * features, features));
  }
  if (row != head.rows) {
    throw_error(ErrorKind::data, "{}: line {}: {} records where {} were counted", coding_.file,
                head.line, row, head.rows);
  }
}

bool ItemSource::next(int64_t rows, Chunk& chunk) {
  chunk = Chunk();
  ChunkHead head{ChunkKind::chunk, number_, row_};
  read(rows, chunk.buffer(), head);
  if (head.rows == 0) return false;
  ++number_;
  row_ += head.rows;
  chunk.set_head(head);
  return true;
}

std::unique_ptr<ItemSource> make_text_source(std::unique_ptr<data::ByteStream> bytes,
                                             const data::TextColumns& columns,
                                             const data::TextPlace& place) {
  return std::make_unique<TextSource>(std::move(bytes), columns, place);
}

std::unique_ptr<ItemSource> make_image_source(const std::filesystem::path& file,
                                              const LoadedModel& model, const InputOptions& options,
                                              const std::function<Range(int64_t)>& part_of) {
  auto source = std::make_unique<ImageSource>(file, model, as_idx(file, options));
  if (part_of) source->items().restrict(part_of);
  return source;
}

std::unique_ptr<ItemSource> open_items(const std::filesystem::path& file, const LoadedModel& model,
                                       const InputOptions& options) {
  if (const auto columns = text_columns(file, model, options)) {
    return make_text_source(data::open_bytes(file), *columns);
  }
  return make_image_source(file, model, options);
}

}  // namespace ridgeline::engine
