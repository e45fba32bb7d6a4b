#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "ridgeline/data/sample_set.h"

namespace ridgeline::data {

// The symbols of a text for a language model: its distinct bytes, in order. A byte's code is its
// index among them.
class Alphabet {
 public:
  // Throws Error(data) if the symbols are not distinct and ascending, or if there are none.
  explicit Alphabet(std::string symbols);
  static Alphabet of(std::string_view text);

  const std::string& symbols() const { return symbols_; }
  int size() const { return int(symbols_.size()); }
  int code(char symbol) const { return codes_[uint8_t(symbol)]; }  // -1: unknown
  char symbol(int code) const { return symbols_[size_t(code)]; }

  // Throws Error(data) with the position in `what` of the first unknown byte.
  std::vector<uint8_t> encode(std::string_view text, const std::string& what) const;

 private:
  std::string symbols_;
  std::vector<int> codes_;
};

// Reads a whole file, plain or gzip. Throws Error(data) if it is empty or larger than 1 GiB.
std::string read_text(const std::filesystem::path& file);

// Divides a text into `streams` streams of equal length, cut into samples of `steps` characters:
// sample s * streams + b is the s-th chunk of stream b, so that batches of `streams` samples in
// order continue one another sample by sample. A sample's labels are the characters that follow
// each of its own. The rest that does not fill a last chunk of every stream is dropped. `streams`
// is reduced to what the text is long enough for; throws Error(data) if that is none.
SampleSet make_streams(std::string_view text, const Alphabet& alphabet, int64_t streams,
                       int64_t steps, std::string name);

// The usual split of a text: the first nine tenths for training, the rest for testing. The alphabet
// is that of the whole text, or the given one (a model's).
DataSet load_streams(const std::filesystem::path& file, int64_t streams, int64_t steps,
                     std::string name, const Alphabet* alphabet = nullptr);

}  // namespace ridgeline::data
