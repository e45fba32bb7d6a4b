#include "ridgeline/data/source/table.h"

#include "tests/fuzz/arrays.h"
#include "tests/fuzz/target.h"

using namespace ridgeline;

FUZZ_TARGET(table) {
  fuzz::refused_or_read([&] {
    const data::FieldSet set = data::read_table(
        [&] { return std::make_unique<data::MemoryStream>(fuzz::as_bytes(input), "table"); }, {});
    for (const data::Field& field : set.fields()) fuzz::read_all(field);
  });
}
