#include "ridgeline/engine/user_sources.h"

#include <algorithm>
#include <utility>

#include "ridgeline/core/text.h"
#include "ridgeline/core/text_format.h"
#include "ridgeline/data/select_samples.h"
#include "ridgeline/data/source/open.h"
#include "ridgeline/engine/known_fields.h"

namespace ridgeline::engine {
namespace {

namespace fs = std::filesystem;
using data::Field;
using data::FieldSet;
using data::Preparation;

data::SourceOptions source_options(const DataConfig& config) {
  data::SourceOptions options = config.user ? config.user->source_options() : data::SourceOptions{};
  if (config.resize) {
    options.images.height = config.resize->height;
    options.images.width = config.resize->width;
  }
  return options;
}

// Returns the options with which a model's training data were read.
data::SourceOptions source_options(const DataConfig& config, const Preparation& preparation) {
  data::SourceOptions options = source_options(config);
  options.table.categories = preparation.table_options().categories;
  options.images = preparation.image_options();
  options.raw_if_unknown = true;  // a model takes .npy files too
  return options;
}

bool is_target(const Preparation& preparation, const std::string& name) {
  return preparation.target() && std::ranges::find(preparation.target()->fields, name) !=
                                     preparation.target()->fields.end();
}

// The columns of a table side by side, as one field of numbers.
Field join_columns(const std::vector<const Field*>& columns, const std::string& name) {
  const int64_t samples = columns.front()->samples;
  HostTensor all(DType::fp64, {samples, int64_t(columns.size())});
  std::vector<double> values(static_cast<size_t>(samples));
  for (size_t c = 0; c < columns.size(); ++c) {
    read_doubles(*columns[c], 0, samples, values);
    double* to = all.span<double>().data() + c;
    for (const double value : values) {
      *to = value;
      to += columns.size();
    }
  }
  Field joined = data::number_field(name, std::move(all));
  joined.origin = columns.front()->origin;
  return joined;
}

// The one input of a model goes by its file's name, which is another for every file. It is the only
// field, or the only one of the model's shape; a model of an array of numbers takes as many columns
// of a table, too. `target` names what is no input beside the model's own targets.
FieldSet with_known_name(FieldSet set, const Preparation& preparation, const std::string& target) {
  if (preparation.features().size() != 1) return set;
  const data::Feature& feature = preparation.features().front();
  const std::string& wanted = data::field_of(feature);
  if (set.find(wanted) != nullptr) return set;
  const auto* number = std::get_if<data::NumberFeature>(&feature);
  std::vector<const Field*> others, alike, columns;
  for (const Field& field : set.fields()) {
    if (is_target(preparation, field.name) || field.name == target) continue;
    others.push_back(&field);
    const bool numbers = field.kind == data::FieldKind::number;
    if (numbers && number != nullptr && field.shape == number->shape) alike.push_back(&field);
    const bool column = numbers || field.kind == data::FieldKind::boolean;
    if (column && field.shape.rank() == 0) columns.push_back(&field);
  }
  if (others.size() == 1) return renamed(set, others.front()->name, wanted);
  if (alike.size() == 1) return renamed(set, alike.front()->name, wanted);
  if (number == nullptr || number->shape.rank() != 1 ||
      number->elements() != int64_t(columns.size())) {
    return set;
  }
  set.add(join_columns(columns, wanted));
  return set;
}

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

// Adds the target of a part other than the training part: fields of the same names, or a file of
// its own.
void join_part_target(FieldSet& set, const std::string& file, const UserSources::Train& train,
                      const char* key, const std::string& dtype) {
  if (!file.empty()) {
    const std::string joined = join_target(set, {file}, false, dtype).front();
    if (joined != train.target.front()) set = renamed(set, joined, train.target.front());
  } else if (set.find(train.target.front()) == nullptr) {
    throw_error(ErrorKind::usage,
                "{}: has no field {}, the target; name its file by data.{}_target", set.name(),
                quote(train.target.front()), key);
  }
}

}  // namespace

FieldSet renamed(const FieldSet& set, const std::string& from, const std::string& to) {
  FieldSet result(set.name());
  for (Field field : set.fields()) {
    if (field.name == from) field.name = to;
    result.add(std::move(field));
  }
  return result;
}

namespace {

// Returns the samples of `field`, [timesteps, ...] each, without the padding after their own
// timesteps.
Field as_sequence(const Field& field, const Field& lengths) {
  std::vector<double> steps(size_t(lengths.samples));
  read_doubles(lengths, 0, lengths.samples, steps);
  std::vector<int64_t> counts;
  int64_t all = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (!(steps[i] >= 0 && steps[i] <= double(field.shape[0]) &&
          steps[i] == double(int64_t(steps[i])))) {
      throw_error(ErrorKind::data,
                  "{}: sample {} has {} timesteps by field {}, but field {} has room for {}",
                  field.origin, i, steps[i], quote(lengths.name), quote(field.name),
                  field.shape[0]);
    }
    counts.push_back(int64_t(steps[i]));
    all += counts.back();
  }
  const Shape timestep = field.shape.drop_front();
  const size_t each = size_t(timestep.numel()) * size_of(field.dtype);
  HostTensor timesteps(field.dtype, timestep.prepend(all));
  auto* to = static_cast<std::byte*>(timesteps.view().data);
  std::vector<std::byte> sample(field.row_bytes());
  for (size_t i = 0; i < counts.size(); ++i) {
    field.values->read(int64_t(i), int64_t(i) + 1, sample);
    to = std::copy_n(sample.begin(), size_t(counts[i]) * each, to);
  }
  Field sequence = data::sequence_field(field.name, std::move(timesteps), counts);
  sequence.origin = field.origin;
  return sequence;
}

}  // namespace

FieldSet join_lengths(const FieldSet& set, const std::string& lengths, const std::string& name,
                      const std::vector<std::string>& target) {
  FieldSet joined = set;
  const std::string field_of_lengths = join_target(joined, {lengths}, false).front();
  const auto is_sample = [&](const Field& field) {
    const bool wanted =
        name.empty() ? std::ranges::find(target, field.name) == target.end() : field.name == name;
    return wanted && field.kind == data::FieldKind::number && field.shape.rank() > 0;
  };
  const auto count = std::ranges::count_if(joined.fields(), is_sample);
  if (count != 1) {
    throw_error(ErrorKind::usage,
                "{}: data.lengths has the timesteps of samples of one field [timesteps, ...], and "
                "{} could be meant; name it by data.features",
                set.name(), counted(count, "field"));
  }
  FieldSet result(set.name());
  for (const Field& field : joined.fields()) {
    if (field.name != field_of_lengths)
      result.add(is_sample(field) ? as_sequence(field, joined.field(field_of_lengths)) : field);
  }
  return result;
}

UserSources open_sources(const Config& config) {
  const UserDataConfig& user = *config.data.user;
  const data::SourceOptions options = source_options(config.data);
  data::OpenedSource source = data::open_source(user.train, options);
  UserSources result;
  result.train.table = source.table;
  if (has_part(source, "validation")) result.validation = take_part(source, "validation");
  if (has_part(source, "test")) result.test = take_part(source, "test");
  result.train.set = take_part(source, "train");
  refuse_empty(result.train.set, user.train);
  result.train.target = join_target(result.train.set, user.target, source.table, user.target_dtype);
  if (result.train.target.empty()) {
    throw_error(
        ErrorKind::usage,
        "{}: which field is to be learnt? Name it, or a file that holds it, by data.target; "
        "`ridgeline data describe` lists the fields",
        user.train);
  }
  const std::string sequence = user.features.size() == 1 ? user.features.front() : std::string();
  const auto with_lengths = [&](FieldSet& set) {
    if (!user.lengths.empty()) set = join_lengths(set, user.lengths, sequence, result.train.target);
  };
  with_lengths(result.train.set);
  const auto open_part = [&](const std::string& path, const std::string& target, const char* key,
                             std::optional<FieldSet>& part) {
    if (path.empty()) return;
    data::SourceOptions same = options;
    // Columns have the kinds that they had in training, whatever these cells look like.
    for (const Field& field : result.train.set.fields()) {
      if (source.table && field.kind == data::FieldKind::category) {
        same.table.categories.push_back(field.name);
      }
    }
    data::OpenedSource opened = data::open_source(path, same);
    part = take_part(opened, key);
    refuse_empty(*part, path);
    // The array of a part has the name of its file.
    const std::vector<Field>& fields = part->fields();
    if (!source.table && fields.size() == 1 && result.train.set.fields().size() == 2 &&
        result.train.set.find(fields.front().name) == nullptr) {
      const auto& train = result.train.set.fields();
      const bool first = train[0].name != result.train.target.front();
      part = renamed(*part, fields.front().name, train[first ? 0 : 1].name);
    }
    join_part_target(*part, target, result.train, key, user.target_dtype);
  };
  open_part(user.validation, user.validation_target, "validation", result.validation);
  open_part(user.test, user.test_target, "test", result.test);
  for (std::optional<FieldSet>* part : {&result.validation, &result.test}) {
    if (*part) with_lengths(**part);
  }
  if (!user.weight.empty()) {
    result.train.weight = join_target(result.train.set, {user.weight}, false).front();
  }
  if (!user.drop_missing_target) return result;
  result.without_target = drop_missing_target(result.train.set, result.train.target);
  for (std::optional<FieldSet>* part : {&result.validation, &result.test}) {
    if (*part) result.without_target += drop_missing_target(**part, result.train.target);
  }
  return result;
}

int64_t drop_missing_target(FieldSet& set, const std::vector<std::string>& target) {
  for (const std::string& name : target) {
    if (set.field(name).has_lengths()) return 0;  // refused later, as no target
  }
  std::vector<int64_t> samples = data::samples_with_all(set, target);
  const int64_t dropped = set.size() - int64_t(samples.size());
  if (samples.empty()) {
    throw_error(ErrorKind::data, "{}: no sample has the target {}", set.name(),
                quote(target.front()));
  }
  if (dropped > 0) set = data::select_samples(set, std::move(samples));
  return dropped;
}

std::vector<std::string> join_target(FieldSet& set, const std::vector<std::string>& target,
                                     bool table, const std::string& dtype) {
  if (target.empty()) {
    const auto found = data::default_target(set, table);
    if (!found || set.field(*found).has_lengths()) return {};  // texts are features, not targets
    return {*found};
  }
  std::error_code ignored;
  if (target.size() == 1 && set.find(target.front()) == nullptr &&
      fs::is_regular_file(target.front(), ignored)) {
    const std::string& file = target.front();
    data::SourceOptions options;
    if (!dtype.empty()) {
      options.raw_type = data::parse_stored_type(dtype);
      options.raw_shape = Shape{};
      options.raw_if_unknown = true;
    }
    const data::OpenedSource source = data::open_source(file, options);
    const FieldSet& opened = source.parts.front().set;
    if (source.parts.size() > 1 || opened.fields().size() != 1) {
      throw_error(ErrorKind::usage, "{}: a file for the target holds one array, not {}", file,
                  source.parts.size() > 1 ? counted(int64_t(source.parts.size()), "part")
                                          : counted(int64_t(opened.fields().size()), "field"));
    }
    Field field = opened.fields().front();
    if (set.find(field.name) != nullptr) field.name = "target";
    // A single number per sample is often stored as a column.
    if (field.shape.rank() == 1 && field.shape[0] == 1) field.shape = {};
    set.add(field);
    return {field.name};
  }
  for (const std::string& name : target) {
    if (set.find(name) == nullptr && fs::path(name).extension() == ".npy") {
      throw_error(ErrorKind::data, "{}: there is no such file, nor a field of that name in {}",
                  name, set.name());
    }
    (void)set.field(name);  // throws, and lists the fields
  }
  return target;
}

FieldSet open_prepared(const fs::path& path, const Preparation& preparation, const Config& config) {
  return open_prepared_beside(path, preparation, config, "");
}

FieldSet open_prepared_beside(const fs::path& path, const Preparation& preparation,
                              const Config& config, const std::string& target) {
  data::OpenedSource source = data::open_source(path, source_options(config.data, preparation));
  FieldSet set = take_part(source, "test");
  refuse_empty(set, path.string());
  // A file without lengths holds samples of one length.
  const std::string lengths = config.data.user ? config.data.user->lengths : std::string();
  const data::SequenceFeature* sequence = preparation.sequence();
  if (sequence != nullptr && set.find(lengths) != nullptr) {
    set = join_lengths(
        set, lengths, sequence->timestep.field,
        preparation.target() ? preparation.target()->fields : std::vector<std::string>{});
  }
  return with_known_name(std::move(set), preparation, target);
}

}  // namespace ridgeline::engine
