#include "ridgeline/engine/own_data.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "ridgeline/core/text.h"
#include "ridgeline/core/text_format.h"
#include "ridgeline/data/source/open.h"
#include "ridgeline/data/split.h"

namespace ridgeline::engine {
namespace {

namespace fs = std::filesystem;
using data::Field;
using data::FieldSet;
using data::Preparation;
using data::SampleSet;

constexpr int64_t kBlock = 4096;        // samples prepared at a time
constexpr double kUsualTestPart = 0.1;  // where the config names neither a test set nor a split

// The feature of a model whose inputs are pixels and nothing else, or null.
const data::ImageFeature* only_image(const Preparation& preparation) {
  if (preparation.features().size() != 1 || preparation.windows()) return nullptr;
  return std::get_if<data::ImageFeature>(&preparation.features().front());
}

data::SourceOptions source_options(const DataConfig& config) {
  data::SourceOptions options = config.own ? config.own->source_options() : data::SourceOptions{};
  if (config.resize) {
    options.images.height = config.resize->height;
    options.images.width = config.resize->width;
  }
  return options;
}

// Returns the options that a model's training data were read with.
data::SourceOptions source_options(const DataConfig& config, const Preparation& preparation) {
  data::SourceOptions options = source_options(config);
  options.table.categories = preparation.table_options().categories;
  options.images = preparation.image_options();
  return options;
}

FieldSet renamed(const FieldSet& set, const std::string& from, const std::string& to) {
  FieldSet result(set.name());
  for (Field field : set.fields()) {
    if (field.name == from) field.name = to;
    result.add(std::move(field));
  }
  return result;
}

bool is_target(const Preparation& preparation, const std::string& name) {
  return preparation.target() && std::ranges::find(preparation.target()->fields, name) !=
                                     preparation.target()->fields.end();
}

// The one input of a model goes by its file's name, which is another for every file.
FieldSet with_known_name(FieldSet set, const Preparation& preparation) {
  if (preparation.features().size() != 1) return set;
  const std::string& wanted = data::field_of(preparation.features().front());
  if (set.find(wanted) != nullptr) return set;
  const Field* only = nullptr;
  for (const Field& field : set.fields()) {
    if (is_target(preparation, field.name)) continue;
    if (only != nullptr) return set;
    only = &field;
  }
  return only != nullptr ? renamed(set, only->name, wanted) : set;
}

// Calls apply(begin, end, span) for ranges of a set that hold the samples, and copies what it wrote
// for each of them, `width` numbers, to `out` in their order. Samples ascend.
template <typename T, typename F>
void select(std::span<const int64_t> samples, int64_t width, T* out, F&& apply) {
  std::vector<T> block;
  for (size_t i = 0; i < samples.size();) {
    size_t last = i;
    const int64_t begin = samples[i];
    while (last < samples.size() && samples[last] < begin + kBlock) ++last;
    const int64_t end = samples[last - 1] + 1;
    block.resize(size_t((end - begin) * width));
    apply(begin, end, std::span<T>(block));
    for (; i < last; ++i) {
      std::copy_n(block.data() + (samples[i] - begin) * width, width, out);
      out += width;
    }
  }
}

void gather_pixels(const FieldSet& set, const data::ImageFeature& image,
                   std::span<const int64_t> samples, std::span<std::byte> out) {
  const Field& field = set.field(image.field);
  if (field.dtype != DType::uint8 || !(field.shape == image.shape)) {
    throw_error(ErrorKind::data, "{}: {} holds {} {}, but the model takes images of uint8 {}",
                field.origin, quote(field.name), name(field.dtype), to_string(field.shape),
                to_string(image.shape));
  }
  gather(field, samples, out);
}

// The timesteps that the windows at `starts` take, prepared, and the windows cut out of them.
void fill_windows(const FieldSet& set, const Preparation& preparation,
                  std::span<const int64_t> starts, std::span<float> out) {
  const data::WindowRule& rule = *preparation.windows();
  const int64_t begin = starts.front(), end = starts.back() + rule.window;
  std::vector<float> timesteps(size_t((end - begin) * preparation.width()));
  preparation.apply(set, begin, end, std::span<float>(timesteps));
  std::vector<int64_t> local(starts.begin(), starts.end());
  for (int64_t& start : local) start -= begin;
  data::gather_windows<float>(timesteps, preparation.width(), local, rule, out);
}

HostTensor make_inputs(const FieldSet& set, const Preparation& preparation,
                       std::span<const int64_t> samples) {
  HostTensor inputs(input_dtype(preparation),
                    preparation.input_shape().prepend(int64_t(samples.size())));
  if (const auto* image = only_image(preparation)) {
    gather_pixels(set, *image, samples, std::as_writable_bytes(inputs.span<uint8_t>()));
  } else if (preparation.windows()) {
    fill_windows(set, preparation, samples, inputs.span<float>());
  } else {
    select<float>(samples, preparation.width(), inputs.span<float>().data(),
                  [&](int64_t begin, int64_t end, std::span<float> out) {
                    preparation.apply(set, begin, end, out);
                  });
  }
  return inputs;
}

HostTensor make_targets(const FieldSet& set, const data::Target& target,
                        std::span<const int64_t> samples) {
  const auto count = int64_t(samples.size());
  if (target.kind == data::TargetKind::classes) {
    HostTensor targets(DType::int32, {count});
    select<int32_t>(samples, 1, targets.span<int32_t>().data(),
                    [&](int64_t begin, int64_t end, std::span<int32_t> out) {
                      target.apply_classes(set, begin, end, out);
                    });
    return targets;
  }
  const int64_t outputs = target.outputs();
  std::vector<double> values(size_t(count * outputs));
  select<double>(samples, outputs, values.data(),
                 [&](int64_t begin, int64_t end, std::span<double> out) {
                   target.apply_values(set, begin, end, out);
                 });
  HostTensor targets(DType::fp32, {count, outputs});
  std::ranges::transform(values, targets.span<float>().begin(),
                         [](double value) { return float(value); });
  return targets;
}

// `samples` are windows' first timesteps where the preparation makes windows.
SampleSet make_samples(const FieldSet& set, const Preparation& preparation,
                       std::span<const int64_t> samples, std::string name) {
  if (!preparation.target()) {
    throw_error(ErrorKind::usage, "{}: the model's data had no target, so nothing can be compared",
                set.name());
  }
  const data::Target& target = *preparation.target();
  SampleSet result;
  result.inputs = make_inputs(set, preparation, samples);
  std::vector<int64_t> at(samples.begin(), samples.end());
  if (const auto& rule = preparation.windows()) {
    for (int64_t& each : at) each = data::target_of(each, *rule);
  }
  result.targets = make_targets(set, target, at);
  result.classes = target.kind == data::TargetKind::classes ? int(target.outputs()) : 0;
  result.name = std::move(name);
  result.hash = hash_of(result);
  return result;
}

std::vector<int64_t> all_of(int64_t count) {
  std::vector<int64_t> all(static_cast<size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// Samples of one part: themselves, or the windows that lie within them.
std::vector<int64_t> starts_of(const std::vector<int64_t>& part,
                               const std::optional<data::WindowRule>& windows) {
  if (!windows || part.empty()) return part;
  return data::window_starts({part.front(), part.back() + 1}, *windows);
}

// A set whose fields include the target.
struct Source {
  FieldSet set;
  std::vector<std::string> target;
  bool table = false;
};

// The parts that the config names or that a source holds, before any are split off.
struct Sources {
  Source train;
  std::optional<FieldSet> validation{}, test{};
  bool all_train = false;  // nothing is set aside to test on
};

FieldSet take_part(data::OpenedSource& source, std::string_view name) {
  for (data::SetPart& part : source.parts) {
    if (part.name == name) return std::move(part.set);
  }
  return std::move(source.parts.front().set);
}

bool has_part(const data::OpenedSource& source, std::string_view name) {
  return std::ranges::any_of(source.parts, [&](const auto& part) { return part.name == name; });
}

void refuse_empty(const FieldSet& set, const std::string& path) {
  if (set.size() == 0) throw_error(ErrorKind::data, "{}: holds no samples", path);
}

// The target of a part beside the training part: fields of the same names, or a file of its own.
void join_part_target(FieldSet& set, const std::string& file, const Source& train,
                      const char* key) {
  if (!file.empty()) {
    const std::string joined = join_target(set, {file}, false).front();
    if (joined != train.target.front()) set = renamed(set, joined, train.target.front());
  } else if (set.find(train.target.front()) == nullptr) {
    throw_error(ErrorKind::usage,
                "{}: has no field {}, the target; name its file by data.{}_target", set.name(),
                quote(train.target.front()), key);
  }
}

Sources open_sources(const Config& config) {
  const OwnDataConfig& own = *config.data.own;
  const data::SourceOptions options = source_options(config.data);
  data::OpenedSource source = data::open_source(own.train, options);
  Sources result;
  result.train.table = source.table;
  if (has_part(source, "validation")) result.validation = take_part(source, "validation");
  if (has_part(source, "test")) result.test = take_part(source, "test");
  result.train.set = take_part(source, "train");
  refuse_empty(result.train.set, own.train);
  result.train.target = join_target(result.train.set, own.target, source.table);
  if (result.train.target.empty()) {
    throw_error(
        ErrorKind::usage,
        "{}: which field is to be learnt? Name it, or a file that holds it, by data.target; "
        "`ridgeline data describe` lists the fields",
        own.train);
  }
  const auto open_part = [&](const std::string& path, const std::string& target, const char* key,
                             std::optional<FieldSet>& part) {
    if (path.empty()) return;
    data::SourceOptions same = options;
    // Columns are of the kinds that they have in training, whatever these cells look like.
    for (const Field& field : result.train.set.fields()) {
      if (source.table && field.kind == data::FieldKind::category) {
        same.table.categories.push_back(field.name);
      }
    }
    data::OpenedSource opened = data::open_source(path, same);
    part = take_part(opened, key);
    refuse_empty(*part, path);
    // The array of a part goes by its file's name.
    const std::vector<Field>& fields = part->fields();
    if (!source.table && fields.size() == 1 && result.train.set.fields().size() == 2 &&
        result.train.set.find(fields.front().name) == nullptr) {
      const auto& train = result.train.set.fields();
      const bool first = train[0].name != result.train.target.front();
      part = renamed(*part, fields.front().name, train[first ? 0 : 1].name);
    }
    join_part_target(*part, target, result.train, key);
  };
  open_part(own.validation, own.validation_target, "validation", result.validation);
  open_part(own.test, own.test_target, "test", result.test);
  return result;
}

data::Split split_own(const Sources& sources, const OwnDataConfig& own,
                      const data::PrepareRules& rules) {
  data::SplitRule rule;
  rule.validation = sources.validation ? 0 : own.validation_part;
  const bool takes_test = !sources.test && !sources.all_train;
  rule.test = takes_test ? own.test_part.value_or(kUsualTestPart) : 0;
  rule.seed = own.split_seed;
  rule.in_order = own.windows.has_value();
  const FieldSet& set = sources.train.set;
  if (rule.test == 0 && takes_test) {
    throw_error(ErrorKind::usage,
                "{}: there is nothing to test on: name data.test, or a part by data.split",
                set.name());
  }
  std::vector<int32_t> classes;
  if (!rule.in_order && own.stratify.value_or(true) && rule.validation + rule.test > 0) {
    const std::vector<int64_t> all = all_of(set.size());
    const data::Target target = fit_target(set, all, rules);
    if (target.kind == data::TargetKind::classes) {
      rule.stratify = true;
      classes.resize(all.size());
      target.apply_classes(set, 0, set.size(), classes);
    } else if (own.stratify == true) {
      throw_error(ErrorKind::usage, "data.split.stratify: the target is {}, not classes",
                  data::name(target.kind));
    }
  }
  return split_samples(set.size(), rule, classes);
}

data::DataSet prepare(const Config& config, const Sources& sources, const Preparation* known) {
  const OwnDataConfig& own = *config.data.own;
  const FieldSet& set = sources.train.set;
  data::PrepareRules rules = own.rules();
  rules.target = sources.train.target;
  const data::Split split = split_own(sources, own, rules);
  auto preparation = std::make_shared<const Preparation>(
      known != nullptr ? *known : Preparation::fit(set, split.train, rules));
  data::DataSet result;
  const auto make = [&](const FieldSet& from, const std::vector<int64_t>& part, const char* what) {
    return make_samples(from, *preparation, starts_of(part, preparation->windows()),
                        fmt::format("{} ({})", own.train, what));
  };
  result.train = make(set, split.train, "train");
  if (sources.test) {
    result.test = make(*sources.test, all_of(sources.test->size()), "test");
  } else if (!sources.all_train) {
    result.test = make(set, split.test, "test");
  }
  if (sources.validation) {
    result.validation = make(*sources.validation, all_of(sources.validation->size()), "validation");
  } else if (!split.validation.empty()) {
    result.validation = make(set, split.validation, "validation");
  }
  result.preparation = std::move(preparation);
  return result;
}

}  // namespace

std::vector<std::string> join_target(FieldSet& set, const std::vector<std::string>& target,
                                     bool table) {
  if (target.empty()) {
    const auto found = data::default_target(set, table);
    if (!found || set.field(*found).has_lengths()) return {};  // texts are learnt from, not learnt
    return {*found};
  }
  std::error_code ignored;
  if (target.size() == 1 && set.find(target.front()) == nullptr &&
      fs::is_regular_file(target.front(), ignored)) {
    const std::string& file = target.front();
    const data::OpenedSource source = data::open_source(file);
    const FieldSet& opened = source.parts.front().set;
    if (source.parts.size() > 1 || opened.fields().size() != 1) {
      throw_error(ErrorKind::usage, "{}: a file for the target holds one array, not {}", file,
                  source.parts.size() > 1 ? counted(int64_t(source.parts.size()), "part")
                                          : counted(int64_t(opened.fields().size()), "field"));
    }
    Field field = opened.fields().front();
    if (set.find(field.name) != nullptr) field.name = "target";
    // One number a sample is often stored as a column.
    if (field.shape.rank() == 1 && field.shape[0] == 1) field.shape = {};
    set.add(field);
    return {field.name};
  }
  for (const std::string& name : target) (void)set.field(name);  // throws, with the names there are
  return target;
}

data::DataSet load_own_data(const Config& config, const Preparation* known) {
  return prepare(config, open_sources(config), known);
}

data::DataSet prepare_own_data(const Config& config, OwnParts parts, const Preparation* known) {
  Sources sources{.train = {.set = std::move(parts.train), .target = std::move(parts.target)}};
  sources.validation = std::move(parts.validation);
  sources.test = std::move(parts.test);
  sources.all_train = parts.all_train;
  return prepare(config, sources, known);
}

SampleSet prepare_samples(const FieldSet& set, const Preparation& preparation, std::string name) {
  return make_samples(set, preparation, starts_of(all_of(set.size()), preparation.windows()),
                      std::move(name));
}

FieldSet open_prepared(const fs::path& path, const Preparation& preparation, const Config& config) {
  data::OpenedSource source = data::open_source(path, source_options(config.data, preparation));
  FieldSet set = take_part(source, "test");
  refuse_empty(set, path.string());
  return with_known_name(std::move(set), preparation);
}

SampleSet load_prepared(const fs::path& path, const std::string& target,
                        const Preparation& preparation, const Config& config) {
  FieldSet set = open_prepared(path, preparation, config);
  if (!target.empty() && preparation.target()) {
    const std::string joined = join_target(set, {target}, false).front();
    const std::string& wanted = preparation.target()->fields.front();
    if (joined != wanted) set = renamed(set, joined, wanted);
  }
  return prepare_samples(set, preparation, path.string());
}

int64_t prepared_samples(const FieldSet& set, const Preparation& preparation) {
  const auto& windows = preparation.windows();
  if (!windows) return set.size();
  if (set.size() < windows->window) {
    throw_error(ErrorKind::data, "{}: has {} but a window takes {}", set.name(),
                counted(set.size(), "timestep"), windows->window);
  }
  return (set.size() - windows->window) / windows->stride + 1;
}

void append_inputs(const FieldSet& set, const Preparation& preparation, int64_t begin, int64_t end,
                   std::vector<uint8_t>& out) {
  std::vector<int64_t> samples = all_of(end - begin);
  const int64_t stride = preparation.windows() ? preparation.windows()->stride : 1;
  for (int64_t& sample : samples) sample = (sample + begin) * stride;
  const HostTensor inputs = make_inputs(set, preparation, samples);
  const size_t have = out.size();
  out.resize(have + inputs.view().bytes());
  std::memcpy(out.data() + have, inputs.view().data, inputs.view().bytes());
}

DType input_dtype(const Preparation& preparation) {
  return only_image(preparation) != nullptr ? DType::uint8 : DType::fp32;
}

Config settled(Config config, const data::DataSet& set) {
  if (!config.train.loss_named) {
    const bool labels = config.data.own->target_kind == data::TargetKind::labels;
    config.train.loss = {!set.train.has_values() ? nn::LossKind::cross_entropy
                         : labels                ? nn::LossKind::binary_cross_entropy
                                                 : nn::LossKind::mse};
    config.train.loss_named = true;
  }
  return config;
}

}  // namespace ridgeline::engine
