#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "ridgeline/core/communicator.h"
#include "ridgeline/data/text_set.h"
#include "ridgeline/engine/model_io.h"
#include "ridgeline/engine/stream/chunk.h"

namespace ridgeline::engine {

enum class InputFormat { automatic, idx, raw, csv, lines, jsonl };

struct InputOptions {
  InputFormat format = InputFormat::automatic;  // by the file: IDX's magic, then its name's ending
  std::vector<std::string> columns;  // of texts: names, numbers or keys; none: the model's
};

// How the bytes of a chunk become items of a model: what the one who has opened the file tells
// those who have not.
struct ItemCoding {
  std::string file;  // for messages
  bool text = false;
  data::TextColumns columns;  // of texts
  Shape image;                // of images: the shape of one in the file

  std::string to_text() const;
  static ItemCoding from_text(const std::string& text);
};

// Turns chunks into items: images are resized where the model's config says so, texts are parsed
// and encoded. Used by several threads at once.
class Decoder {
 public:
  Decoder(const LoadedModel& model, ItemCoding coding);

  bool identity() const { return !coding_.text && !resize_; }  // a chunk's body is its items
  bool text() const { return coding_.text; }
  int64_t features() const { return features_; }
  // uint8 [rows, features] in `items`. Throws data with the file and the line.
  void decode(const Chunk& chunk, std::vector<uint8_t>& items) const;

 private:
  void decode_text(const Chunk& chunk, std::vector<uint8_t>& items) const;

  ItemCoding coding_;
  int64_t features_;
  std::optional<ImageSize> resize_;
  std::optional<data::TextCoding> text_;
};

// An input file cut into chunks, in bounded memory: a chunk of texts is cut short where they are
// long, and one of images that are to become smaller where they are large.
class ItemSource {
 public:
  virtual ~ItemSource() = default;
  virtual const ItemCoding& coding() const = 0;
  // Up to `rows` more items, false when there are none. Numbers the chunks.
  bool next(int64_t rows, Chunk& chunk);
  // For a source of a file's later part: of its first chunk.
  void count_from(int64_t number, int64_t row) {
    number_ = number;
    row_ = row;
  }

 protected:
  // Appends to the buffer and fills in rows, whether more may follow, line and columns.
  virtual void read(int64_t rows, std::vector<uint8_t>& buffer, ChunkHead& head) = 0;

 private:
  int64_t number_ = 0, row_ = 0;
};

// Throws data when the file cannot be the model's input, usage when it is not clear how.
std::unique_ptr<ItemSource> open_items(const std::filesystem::path& file, const LoadedModel& model,
                                       const InputOptions& options);

// The part of a plain file that is this rank's, about as many bytes as any other's; items are
// numbered on from those of the parts before it, chunks from 0. Collective; every rank reads its
// part once to count. Throws usage for a gzip file.
std::unique_ptr<ItemSource> open_own_part(const std::filesystem::path& file,
                                          const LoadedModel& model, const InputOptions& options,
                                          Communicator& ranks);

}  // namespace ridgeline::engine
