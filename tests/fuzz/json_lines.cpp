#include "ridgeline/data/source/json_table.h"
#include "ridgeline/data/text_reader.h"
#include "tests/fuzz/arrays.h"
#include "tests/fuzz/target.h"

using namespace ridgeline;

FUZZ_TARGET(json_lines) {
  const std::filesystem::path file = fuzz::as_file(input, "input.jsonl");
  fuzz::refused_or_read([&] {
    const data::FieldSet set = data::read_json_table(file);
    for (const data::Field& field : set.fields()) fuzz::read_all(field);
  });
  fuzz::refused_or_read([&] {
    const auto reader = data::open_text(
        file, {.format = data::TextFormat::jsonl, .text = {"text"}, .label = "label"});
    data::TextRecord record;
    while (reader->next(record)) {
    }
  });
}
