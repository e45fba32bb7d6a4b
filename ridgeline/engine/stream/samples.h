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
  InputFormat format = InputFormat::automatic;  // by the IDX magic, then by the file extension
  std::vector<std::string> columns;  // of texts: names, numbers or keys; empty: the model's
};

// How the bytes of a chunk become samples of a model. The rank that has opened the file sends it to
// the others.
struct SampleCoding {
  std::string file;  // for messages
  bool text = false;
  data::TextColumns columns;  // of texts
  Shape image;                // of images: the shape of one in the file

  std::string to_text() const;
  static SampleCoding from_text(const std::string& text);
};

// Decodes chunks into samples: images are resized if the model's config says so, texts are parsed
// and encoded. Thread-safe.
class Decoder {
 public:
  Decoder(const LoadedModel& model, SampleCoding coding);

  bool identity() const { return !coding_.text && !resize_; }  // a chunk's body is its samples
  bool text() const { return coding_.text; }
  int64_t features() const { return features_; }
  // Writes uint8 [count, features] to `samples`. Throws Error(data) with the file and the line.
  void decode(const Chunk& chunk, std::vector<uint8_t>& samples) const;

 private:
  void decode_text(const Chunk& chunk, std::vector<uint8_t>& samples) const;

  SampleCoding coding_;
  int64_t features_;
  std::optional<ImageSize> resize_;
  std::optional<data::TextCoding> text_;
};

// An input file divided into chunks, in bounded memory: a chunk has fewer samples if its texts are
// long, or if its images are large and will be reduced.
class SampleSource {
 public:
  virtual ~SampleSource() = default;
  virtual const SampleCoding& coding() const = 0;
  // Reads up to `most` more samples; returns false if there are none. Numbers the chunks.
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

// Throws Error(data) if the file cannot be the model's input, Error(usage) if it is ambiguous.
std::unique_ptr<SampleSource> open_samples(const std::filesystem::path& file,
                                           const LoadedModel& model, const InputOptions& options);

// Opens this rank's part of a plain file; all parts have about equally many bytes. Samples are
// numbered after those of the parts before, chunks from 0. Collective; every rank reads its part
// once to count. Throws Error(usage) for a gzip file.
std::unique_ptr<SampleSource> open_shard(const std::filesystem::path& file,
                                         const LoadedModel& model, const InputOptions& options,
                                         Communicator& ranks);

}  // namespace ridgeline::engine
