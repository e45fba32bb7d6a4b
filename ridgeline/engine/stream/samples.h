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

// How the bytes of a chunk become samples of a model. The rank that has opened the file sends it to
// those that have not.
struct SampleCoding {
  std::string file;  // for messages
  bool text = false;
  data::TextColumns columns;  // of texts
  Shape image;                // of images: the shape of one in the file

  std::string to_text() const;
  static SampleCoding from_text(const std::string& text);
};

// Decodes chunks into samples: images are resized where the model's config says so, texts are
// parsed and encoded. Used by several threads at once.
class Decoder {
 public:
  Decoder(const LoadedModel& model, SampleCoding coding);

  bool identity() const { return !coding_.text && !resize_; }  // a chunk's body is its samples
  bool text() const { return coding_.text; }
  int64_t features() const { return features_; }
  // Writes uint8 [count, features] to `samples`. Throws data with the file and the line.
  void decode(const Chunk& chunk, std::vector<uint8_t>& samples) const;

 private:
  void decode_text(const Chunk& chunk, std::vector<uint8_t>& samples) const;

  SampleCoding coding_;
  int64_t features_;
  std::optional<ImageSize> resize_;
  std::optional<data::TextCoding> text_;
};

// An input file cut into chunks, in bounded memory: a chunk of texts is cut short where they are
// long, and one of images that are to become smaller where they are large.
class SampleSource {
 public:
  virtual ~SampleSource() = default;
  virtual const SampleCoding& coding() const = 0;
  // Reads up to `most` more samples; false when there are none. Numbers the chunks.
  bool next(int64_t most, Chunk& chunk);
  // Sets the numbers of the first chunk and of its first sample, for a source that reads a later
  // part of a file.
  void count_from(int64_t number, int64_t sample) {
    number_ = number;
    sample_ = sample;
  }

 protected:
  // Appends to the buffer and fills in the head's count, whether more may follow, line and columns.
  virtual void read(int64_t most, std::vector<uint8_t>& buffer, ChunkHead& head) = 0;

 private:
  int64_t number_ = 0, sample_ = 0;
};

// Throws data when the file cannot be the model's input, usage when it is not clear how.
std::unique_ptr<SampleSource> open_samples(const std::filesystem::path& file,
                                           const LoadedModel& model, const InputOptions& options);

// Opens this rank's part of a plain file, which has about as many bytes as any other's. Samples are
// numbered on from those of the parts before it, chunks from 0. Collective; every rank reads its
// part once to count. Throws usage for a gzip file.
std::unique_ptr<SampleSource> open_shard(const std::filesystem::path& file,
                                         const LoadedModel& model, const InputOptions& options,
                                         Communicator& ranks);

}  // namespace ridgeline::engine
