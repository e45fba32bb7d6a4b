#include "ridgeline/engine/stream/samples.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "ridgeline/core/json.h"
#include "ridgeline/core/text.h"
#include "ridgeline/data/idx.h"
#include "ridgeline/data/resize.h"
#include "ridgeline/data/source/detect.h"
#include "ridgeline/engine/prepared_inputs.h"
#include "ridgeline/engine/resident_set.h"
#include "ridgeline/engine/stream/sample_sources.h"

namespace ridgeline::engine {
namespace {

constexpr int64_t kMostImage = int64_t{1} << 26;  // pixels of an image that is resized

// Returns the text settings of the model's own config, or null if it was trained on other data.
const TextConfig* texts_of(const LoadedModel& model) {
  return model.config.data.text ? &*model.config.data.text : nullptr;
}

class ImageSource final : public SampleSource {
 public:
  ImageSource(const std::filesystem::path& file, const LoadedModel& model, bool idx)
      : samples_(file, model.model.input(), idx),
        codes_(model.model.layers().front()->codes_below()) {
    coding_.file = file.string();
    coding_.image = samples_.shape();
    check(model);
  }

  const SampleCoding& coding() const override { return coding_; }
  data::SampleStream& samples() { return samples_; }

 private:
  void check(const LoadedModel& model) {
    const Shape& stored = samples_.shape();
    const auto& resize = model.config.data.resize;
    Shape shape = stored;
    if (resize && stored.rank() == 2) shape = {resize->height, resize->width};
    if (resize && stored.rank() == 3) shape = {stored[0], resize->height, resize->width};
    if (shape.numel() != model.model.input().numel()) {
      throw_error(ErrorKind::data, "{}: holds {} but the model takes samples of {}", coding_.file,
                  to_string(samples_.count() ? stored.prepend(*samples_.count()) : stored),
                  to_string(model.model.input()));
    }
    if (!resize || stored.numel() <= shape.numel()) return;
    if (stored.numel() > kMostImage) {
      throw_error(ErrorKind::data, "{}: an image of {} has {} bytes; at most {} can be resized",
                  coding_.file, to_string(stored), stored.numel(), kMostImage);
    }
    most_ = std::max<int64_t>(1, int64_t(data::TextSplitter::kMostBytes) / stored.numel());
  }

  void read(int64_t most, std::vector<uint8_t>& buffer, ChunkHead& head) override {
    const size_t have = buffer.size();
    head.count = samples_.read(std::min(most, most_), buffer);
    // All chunks but the last have the same number of samples, so that a launch can be prepared for
    // them.
    if (codes_ > 0) {
      check_codes(std::span(buffer).subspan(have), codes_, samples_.shape().numel(),
                  head.first_sample, coding_.file);
    }
  }

  data::SampleStream samples_;
  int64_t most_ = std::numeric_limits<int64_t>::max();
  int64_t codes_;  // number of codes that the model knows; 0: samples are not codes
  SampleCoding coding_;
};

class TextSource final : public SampleSource {
 public:
  TextSource(std::unique_ptr<data::ByteStream> bytes, const data::TextColumns& columns,
             const data::TextPlace& place = {})
      : splitter_((coding_.file = bytes->name(), std::move(bytes)), columns, place) {
    coding_.text = true;
    coding_.columns = splitter_.columns();
  }

  const SampleCoding& coding() const override { return coding_; }

 private:
  void read(int64_t most, std::vector<uint8_t>& buffer, ChunkHead& head) override {
    const data::TextSplitter::Block block = splitter_.next(most, buffer);
    head.count = block.records;
    head.cut_short = block.records < most && splitter_.more();
    head.line = block.place.line;
    head.columns = int64_t(block.place.columns);
  }

  SampleCoding coding_;
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
  columns.label.clear();  // not needed here
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

std::string SampleCoding::to_text() const {
  nlohmann::json json{{"file", file},
                      {"text", text},
                      {"format", int(columns.format)},
                      {"columns", columns.text},
                      {"image", nlohmann::json::array()}};
  for (int i = 0; i < image.rank(); ++i) json["image"].push_back(image[i]);
  return dump_json(json, -1);
}

SampleCoding SampleCoding::from_text(const std::string& text) {
  const auto json = nlohmann::json::parse(text);
  SampleCoding coding;
  coding.file = json["file"];
  coding.text = json["text"];
  coding.columns.format = data::TextFormat(int(json["format"]));
  coding.columns.text = json["columns"].get<std::vector<std::string>>();
  const auto extents = json["image"].get<std::vector<int64_t>>();
  coding.image = Shape(std::span<const int64_t>(extents));
  return coding;
}

Decoder::Decoder(const LoadedModel& model, SampleCoding coding)
    : coding_(std::move(coding)), features_(model.model.input().numel()) {
  if (const TextConfig* texts = texts_of(model)) text_ = texts->coding;
  const int rank = coding_.image.rank();
  if (!coding_.text && (rank == 2 || rank == 3)) resize_ = model.config.data.resize;
}

void Decoder::decode(const Chunk& chunk, std::vector<uint8_t>& samples) const {
  if (coding_.text) return decode_text(chunk, samples);
  const std::span<const uint8_t> body = chunk.body();
  if (!resize_) {
    samples.assign(body.begin(), body.end());
    return;
  }
  HostTensor images(DType::uint8, coding_.image.prepend(chunk.head().count));
  std::ranges::copy(body, images.span<uint8_t>().begin());
  const HostTensor scaled = data::resize(images.view(), resize_->height, resize_->width);
  const auto bytes = scaled.span<const uint8_t>();
  samples.assign(bytes.begin(), bytes.end());
}

void Decoder::decode_text(const Chunk& chunk, std::vector<uint8_t>& samples) const {
  const ChunkHead head = chunk.head();
  const auto reader = data::open_text(
      std::make_unique<data::MemoryStream>(std::as_bytes(chunk.body()), coding_.file),
      coding_.columns, {head.line, size_t(head.columns), /*begins_file=*/false});
  const auto features = size_t(features_);
  samples.resize(size_t(head.count) * features);
  int64_t i = 0;
  for (data::TextRecord record; i < head.count && reader->next(record); ++i) {
    text_->vocabulary.encode(record.text, text_->backward,
                             std::span(samples).subspan(size_t(i) * features, features));
  }
  if (i != head.count) {
    throw_error(ErrorKind::data, "{}: line {}: {} records where {} were counted", coding_.file,
                head.line, i, head.count);
  }
}

bool SampleSource::next(int64_t most, Chunk& chunk) {
  chunk = Chunk();
  ChunkHead head{ChunkKind::chunk, number_, sample_};
  read(most, chunk.buffer(), head);
  if (head.count == 0) return false;
  ++number_;
  sample_ += head.count;
  chunk.set_head(head);
  return true;
}

std::unique_ptr<SampleSource> make_text_source(std::unique_ptr<data::ByteStream> bytes,
                                               const data::TextColumns& columns,
                                               const data::TextPlace& place) {
  return std::make_unique<TextSource>(std::move(bytes), columns, place);
}

std::unique_ptr<SampleSource> make_image_source(const std::filesystem::path& file,
                                                const LoadedModel& model,
                                                const InputOptions& options,
                                                const std::function<Range(int64_t)>& part_of) {
  auto source = std::make_unique<ImageSource>(file, model, as_idx(file, options));
  if (part_of) source->samples().restrict(part_of);
  return source;
}

std::unique_ptr<SampleSource> open_samples(const std::filesystem::path& file,
                                           const LoadedModel& model, const InputOptions& options) {
  if (model.preparation) return make_prepared_source(file, model, options);
  if (const auto columns = text_columns(file, model, options)) {
    return make_text_source(data::open_bytes(file), *columns);
  }
  if (options.format == InputFormat::automatic && !data::is_idx(file)) {
    data::refuse_known(file, "IDX images, or raw bytes sample after sample");
  }
  return make_image_source(file, model, options);
}

}  // namespace ridgeline::engine
