#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "ridgeline/core/philox.h"
#include "ridgeline/data/sample_set.h"
#include "ridgeline/engine/config.h"

namespace ridgeline::engine::testing {

// 6x6 images of four classes: noise with one bright quadrant, which is the label. Easy to learn.
inline data::SampleSet small_part(int64_t samples, uint64_t seed) {
  data::SampleSet set;
  set.inputs = HostTensor(DType::uint8, {samples, 6, 6});
  set.targets = HostTensor(DType::int32, {samples});
  set.classes = 4;
  set.name = "small";
  set.hash = seed;
  const Philox random{seed, streams::kSample};
  for (int64_t i = 0; i < samples; ++i) {
    const auto label = int32_t(random.below(4, uint64_t(i)));
    set.targets.span<int32_t>()[size_t(i)] = label;
    for (int64_t p = 0; p < 36; ++p) {
      const bool bright = (p / 6 / 3) * 2 + (p % 6) / 3 == label;
      const uint32_t noise = random.word(uint64_t(1000000 + i * 36 + p)) % 120;
      set.inputs.span<uint8_t>()[size_t(i * 36 + p)] = uint8_t(noise + (bright ? 110 : 0));
    }
  }
  return set;
}

inline std::shared_ptr<const data::DataSet> small_set(int64_t train_samples = 203) {
  auto set = std::make_shared<data::DataSet>();
  set->train = small_part(train_samples, 7);
  set->test = small_part(150, 8);
  return set;
}

// Dropout, Adam, clipping and a partial last batch: everything that could go wrong on resume.
inline Config small_config(const std::vector<std::string>& sets = {}) {
  std::vector<std::string> all{"run.tune=false", "run.device=\"cpu\"", "run.threads=2"};
  all.insert(all.end(), sets.begin(), sets.end());
  return parse_config(R"([data]
name = "small"
[model]
layers = [
  { type = "linear", out = 17 },
  { type = "relu" },
  { type = "dropout", p = 0.2 },
  { type = "linear", out = 4 },
]
[train]
batch = 16
epochs = 4
seed = 3
clip_norm = 0.5
optimizer = { type = "adam", lr = 0.01 }
schedule = { type = "cosine" }
checkpoint_seconds = 0
)",
                      "small.toml", all);
}

// A temporary folder that is removed when the test ends; caches are inside it as well.
class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "ridgeline-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) std::abort();
    path_ = pattern;
    setenv("XDG_CACHE_HOME", RIDGELINE_BINARY_DIR "/test-cache", 1);
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

inline std::string slurp(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace ridgeline::engine::testing
