#include "ridgeline/engine/train/checkpoint.h"

#include "tests/fuzz/target.h"

using namespace ridgeline;

// The input is the metadata of a checkpoint, because a damaged file fails at its checksums: the
// state of the run, the config and the shape of a sample, separated by NULs. The tensors are those
// of a small network.
FUZZ_TARGET(checkpoint) {
  const std::vector<std::string> parts = fuzz::split(fuzz::as_text(input), '\0');
  if (parts.size() < 3) return;
  static const std::vector<float> values(64);
  const auto tensor = [](std::string name, Shape shape) -> nn::TensorEntry {
    return {std::move(name), DType::fp32, shape,
            std::as_bytes(std::span(values)).first(size_t(shape.numel()) * sizeof(float))};
  };
  const std::vector<nn::TensorEntry> tensors = {tensor("0.weight", {4, 6}), tensor("0.bias", {4}),
                                                tensor("2.weight", {3, 4}), tensor("2.bias", {3}),
                                                tensor("optimizer.0.weight.momentum", {4, 6})};
  const nn::Metadata metadata = {{"format", "pt"},
                                 {"ridgeline.version", "1"},
                                 {"ridgeline.checkpoint", parts[0]},
                                 {"ridgeline.config", parts[1]},
                                 {"ridgeline.input", parts[2]}};
  fuzz::refused_or_read([&] {
    const nn::TensorFile file =
        nn::TensorFile::parse(nn::to_safetensors(tensors, metadata), "checkpoint");
    const engine::CheckpointInfo info = engine::read_checkpoint_info(file);
    fuzz::expect(engine::changed_settings(info.config, info.config).empty(), "no change");
  });
}
