#include <algorithm>

#include "ridgeline/engine/stream/sample_sources.h"
#include "ridgeline/engine/user_data.h"

namespace ridgeline::engine {
namespace {

// The samples of a file or folder of fields, prepared like the model's training data. A chunk holds
// them in the model's input type: bytes of pixels, or floats.
class PreparedSource final : public SampleSource {
 public:
  PreparedSource(const std::filesystem::path& path, const LoadedModel& model)
      : preparation_(*model.preparation),
        set_(open_prepared(path, preparation_, model.config)),
        samples_(prepared_samples(set_, preparation_)) {
    coding_.file = path.string();
  }

  const SampleCoding& coding() const override { return coding_; }

 private:
  void read(int64_t most, std::vector<uint8_t>& buffer, ChunkHead& head) override {
    head.count = std::min(most, samples_ - next_);
    if (head.count > 0) append_inputs(set_, preparation_, next_, next_ + head.count, buffer);
    next_ += head.count;
  }

  const data::Preparation& preparation_;
  data::FieldSet set_;
  int64_t samples_, next_ = 0;
  SampleCoding coding_;
};

}  // namespace

std::unique_ptr<SampleSource> make_prepared_source(const std::filesystem::path& path,
                                                   const LoadedModel& model,
                                                   const InputOptions& options) {
  if (options.format != InputFormat::automatic || !options.columns.empty()) {
    throw_error(ErrorKind::usage,
                "{}: the model knows its fields by name and its files by their content; leave "
                "--input-format and --columns out",
                path.string());
  }
  return std::make_unique<PreparedSource>(path, model);
}

}  // namespace ridgeline::engine
