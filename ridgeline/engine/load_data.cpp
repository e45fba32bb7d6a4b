#include "ridgeline/engine/load_data.h"

#include <optional>

#include "ridgeline/data/character_text.h"
#include "ridgeline/data/locate.h"
#include "ridgeline/data/resize.h"
#include "ridgeline/data/source/detect.h"
#include "ridgeline/data/take_samples.h"
#include "ridgeline/engine/user_data.h"

namespace ridgeline::engine {
namespace {

void transform(data::SampleSet& set, const DataConfig& config) {
  if (!config.resize) return;
  data::resize(set, config.resize->height, config.resize->width);
}

// Whether it is a set of one text, or the path of a file: image files come in folders.
bool is_text(const std::string& name) {
  if (const data::SetInfo* set = data::find_known_set(name)) return set->text;
  std::error_code ignored;
  return std::filesystem::is_regular_file(name, ignored);
}

// Loads a part of a set of labelled texts. Without names of classes, there are `classes` of them,
// or as many as occur (0).
data::SampleSet load_records(const DataConfig& config, const std::string& name, data::Part part,
                             const std::filesystem::path& data_dir, int classes) {
  if (!config.text) {
    throw_error(ErrorKind::usage, "{} holds labelled texts, but the model was not trained on such",
                name);
  }
  const TextConfig& text = *config.text;
  const data::SetInfo* set = data::find_known_set(name);
  const auto file =
      set != nullptr && set->records
          ? data::find_records(*set, part, data_dir)
          : std::filesystem::path(name) / (part == data::Part::train ? text.train : text.test);
  data::TextCoding coding = text.coding;
  coding.classes = classes;
  return data::load_text(file, text.columns, coding, file.string());
}

bool is_records(const DataConfig& config, const std::string& name) {
  const data::SetInfo* set = data::find_known_set(name);
  return set != nullptr ? set->records : config.text.has_value();
}

bool is_images(const DataConfig& config, const std::string& name) {
  return !is_records(config, name) && !is_text(name);
}

// Returns the file of a text; nothing for images.
std::optional<std::filesystem::path> text_file(const std::string& name,
                                               const std::filesystem::path& data_dir) {
  if (!is_text(name)) return std::nullopt;
  const data::SetInfo* set = data::find_known_set(name);
  if (set != nullptr) return data::find_text(*set, data_dir);
  data::refuse_known(name, "a text");
  return std::filesystem::path(name);
}

}  // namespace

namespace {

data::DataSet load_whole(const Config& config, const std::filesystem::path& data_dir, bool mapped) {
  if (config.data.user) return load_user_data(config, nullptr, mapped);
  if (is_records(config.data, config.data.name)) {
    const std::string& name = config.data.name;
    data::SampleSet train = load_records(config.data, name, data::Part::train, data_dir, 0);
    data::SampleSet test =
        load_records(config.data, name, data::Part::test, data_dir, train.classes);
    return {std::move(train), std::move(test)};
  }
  if (const auto text = text_file(config.data.name, data_dir)) {
    return data::load_streams(*text, config.train.batch, config.data.steps, config.data.name);
  }
  data::DataSet set = data::load(config.data.name, data_dir);
  transform(set.train, config.data);
  transform(set.test, config.data);
  return set;
}

}  // namespace

data::DataSet load_data(const Config& config, const std::filesystem::path& data_dir, bool mapped) {
  data::DataSet set = load_whole(config, data_dir, mapped);
  if (config.data.split && !set.validation) data::cut_validation(set, *config.data.split);
  return set;
}

namespace {

std::string whole_key(const Config& config) {
  const DataConfig& data = config.data;
  if (data.user) {
    const ImageSize size = data.resize.value_or(ImageSize{0, 0});
    return fmt::format("{}{} x {}", to_toml(*data.user), size.height, size.width);
  }
  if (data.text) return data.name + "\n" + to_toml(*data.text);
  if (is_text(data.name)) {
    return fmt::format("{} in {} x {}", data.name, config.train.batch, data.steps);
  }
  if (!data.resize) return data.name;
  return fmt::format("{} at {} x {}", data.name, data.resize->height, data.resize->width);
}

}  // namespace

std::string data_key(const Config& config) {
  if (!config.data.split) return whole_key(config);
  const data::SplitRule& split = *config.data.split;
  return fmt::format("{} split {} {} {}", whole_key(config), split.validation, split.seed,
                     split.stratify);
}

data::SampleSet load_data_part(const Config& config, const std::string& name, data::Part part,
                               const std::filesystem::path& data_dir, int classes,
                               const std::string& symbols) {
  data::SampleSet set = load_stored_part(config, name, part, data_dir, classes, symbols);
  if (is_images(config.data, name)) transform(set, config.data);
  return set;
}

data::SampleSet load_stored_part(const Config& config, const std::string& name, data::Part part,
                                 const std::filesystem::path& data_dir, int classes,
                                 const std::string& symbols) {
  if (is_records(config.data, name)) {
    return load_records(config.data, name, part, data_dir, classes);
  }
  const auto text = text_file(name, data_dir);
  if (!text) return data::load_part(name, part, data_dir, classes);
  if (symbols.empty()) {
    throw_error(ErrorKind::usage, "{} is a text, but the model was not trained on one", name);
  }
  const data::Alphabet alphabet(symbols);
  data::DataSet set =
      data::load_streams(*text, config.train.batch, config.data.steps, name, &alphabet);
  return part == data::Part::train ? std::move(set.train) : std::move(set.test);
}

}  // namespace ridgeline::engine
