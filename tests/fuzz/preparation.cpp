#include "ridgeline/data/prepare/preparation.h"

#include "tests/fuzz/target.h"

using namespace ridgeline;

// The description of how a model's inputs are prepared, as stored in its file.
FUZZ_TARGET(preparation) {
  fuzz::refused_or_read([&] {
    const data::Preparation read = data::Preparation::from_json(fuzz::as_text(input), "model");
    fuzz::expect(data::Preparation::from_json(read.to_json(), "again") == read,
                 "the same once written");
    read.input_names();
  });
}
