#include "ridgeline/data/source/json_table.h"
#include "ridgeline/data/text_reader.h"
#include "tests/fuzz/arrays.h"
#include "tests/fuzz/target.h"

using namespace ridgeline;

FUZZ_TARGET(json_lines) {
  const auto bytes = [&] {
    return std::make_unique<data::MemoryStream>(fuzz::as_bytes(input), "lines");
  };
  fuzz::refused_or_read([&] {
    const data::FieldSet set = data::read_json_table(bytes());
    for (const data::Field& field : set.fields()) fuzz::read_all(field);
  });
  fuzz::refused_or_read([&] {
    const auto reader = data::open_text(
        bytes(), {.format = data::TextFormat::jsonl, .text = {"text"}, .label = "label"}, {});
    data::TextRecord record;
    while (reader->next(record)) {
    }
  });
}
