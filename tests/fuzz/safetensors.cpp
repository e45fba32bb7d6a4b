#include "ridgeline/nn/safetensors.h"

#include "ridgeline/nn/model_file.h"
#include "tests/fuzz/target.h"

using namespace ridgeline;

FUZZ_TARGET(safetensors) {
  fuzz::refused_or_read([&] {
    const auto bytes = fuzz::as_bytes(input);
    const nn::TensorFile file = nn::TensorFile::parse({bytes.begin(), bytes.end()}, "file");
    // A file that was read can be written, and reads back identically.
    const nn::TensorFile again =
        nn::TensorFile::parse(nn::to_safetensors(file.tensors(), file.metadata()), "again");
    fuzz::expect(again.tensors().size() == file.tensors().size(), "as many tensors as before");
    nn::read_description(file);
  });
}
