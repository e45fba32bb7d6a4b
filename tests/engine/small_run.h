#pragma once

#include "ridgeline/engine/train/checkpoint.h"
#include "ridgeline/engine/train/train.h"
#include "tests/engine/small_set.h"

namespace ridgeline::engine::testing {

// The options of a run over small_set() that prints nothing.
inline TrainOptions quiet(const std::filesystem::path& out = {}) {
  TrainOptions options;
  options.out = out;
  options.progress = Progress::Style::none;
  options.set = small_set();
  return options;
}

// A whole snapshot, to compare bit by bit.
inline std::string bits(const Snapshot& snapshot) {
  std::string all;
  for (const auto& item : snapshot.items) {
    all += item.name;
    all.append(static_cast<const char*>(item.value.view().data), item.value.view().bytes());
  }
  return all;
}

// The tensors of a model file, without the metadata (which holds max_steps).
inline std::string tensor_bits(const std::filesystem::path& path) {
  const nn::TensorFile file = nn::TensorFile::read(path);
  std::string all;
  for (const nn::TensorEntry& entry : file.tensors()) {
    all += entry.name;
    all.append(reinterpret_cast<const char*>(entry.data.data()), entry.data.size());
  }
  return all;
}

}  // namespace ridgeline::engine::testing
