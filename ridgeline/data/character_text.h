#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "ridgeline/data/sample_set.h"

namespace ridgeline::data {

// The symbols of a text for a language model: its distinct bytes, in order. A byte's code is its
// place among them.
class Alphabet {
 public:
  // Throws data when the symbols are not distinct and ascending, or there are none.
  explicit Alphabet(std::string symbols);
  static Alphabet of(std::string_view text);

  const std::string& symbols() const { return symbols_; }
  int size() const { return int(symbols_.size()); }
  int code(char symbol) const { return codes_[uint8_t(symbol)]; }  // -1: not in it
  char symbol(int code) const { return symbols_[size_t(code)]; }

  // Throws data with the place in `what` of the first byte that is not in it.
  std::vector<uint8_t> encode(std::string_view text, const std::string& what) const;

 private:
  std::string symbols_;
  std::vector<int> codes_;
};

// The whole file, plain or gzip. Throws data when it is empty or larger than 1 GiB.
std::string read_text(const std::filesystem::path& file);

// Lays a text out as `streams` streams of equal length side by side, cut into samples of `steps`
// characters: sample s * streams + b holds the s-th chunk of stream b, so that batches of `streams`
// samples in order continue one another sample by sample. A sample's labels are the characters that
// follow each of its own. What does not fill a last chunk of every stream is left out. `streams` is
// lowered to what the text is long enough for; throws data when that is none.
SampleSet make_streams(std::string_view text, const Alphabet& alphabet, int64_t streams,
                       int64_t steps, std::string name);

// The customary split of a text: the first nine tenths to train on, the rest to test on. The
// alphabet is that of the whole, or the one given (a model's).
DataSet load_streams(const std::filesystem::path& file, int64_t streams, int64_t steps,
                     std::string name, const Alphabet* alphabet = nullptr);

}  // namespace ridgeline::data
