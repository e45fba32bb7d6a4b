#include "ridgeline/data/vocabulary.h"

#include "ridgeline/data/character_text.h"
#include "tests/fuzz/target.h"

using namespace ridgeline;

// The symbols of a vocabulary and, after a NUL, a text to encode.
FUZZ_TARGET(vocabulary) {
  const std::string_view all = fuzz::as_text(input);
  const size_t end = all.find('\0');
  const std::string symbols(all.substr(0, end));
  const std::string_view text = end == all.npos ? "" : all.substr(end + 1);
  fuzz::refused_or_read([&] {
    const data::Vocabulary vocabulary(symbols);
    for (const bool backward : {false, true}) {
      std::vector<uint8_t> codes(37);
      vocabulary.encode(text, backward, codes);
      for (const uint8_t code : codes) fuzz::expect(code <= vocabulary.size(), "a code");
    }
  });
  fuzz::refused_or_read([&] {
    const data::Alphabet alphabet(symbols);
    for (const uint8_t code : alphabet.encode(text, "text")) {
      fuzz::expect(int(code) < alphabet.size(), "a code");
    }
  });
  fuzz::refused_or_read([&] {
    if (!text.empty()) data::make_streams(text, data::Alphabet::of(text), 3, 4, "text");
  });
}
