#include "ridgeline/data/select_samples.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace ridgeline::data {
namespace {

class SelectedValues final : public FieldValues {
 public:
  // `from` has rows without lengths.
  SelectedValues(Field from, std::shared_ptr<const std::vector<int64_t>> rows)
      : from_(std::move(from)), rows_(std::move(rows)) {}

  void read(int64_t begin, int64_t end, std::span<std::byte> out) const override {
    gather(from_, std::span(*rows_).subspan(size_t(begin), size_t(end - begin)), out);
  }

 private:
  Field from_;
  std::shared_ptr<const std::vector<int64_t>> rows_;
};

}  // namespace

FieldSet select_samples(const FieldSet& set, std::vector<int64_t> samples) {
  const auto kept = std::make_shared<const std::vector<int64_t>>(std::move(samples));
  FieldSet result(set.name());
  for (const Field& field : set.fields()) {
    Field selected = field;
    selected.samples = int64_t(kept->size());
    auto rows = kept;
    if (field.has_lengths()) {
      std::vector<int64_t> timesteps, offsets{0};
      for (const int64_t sample : *kept) {
        const int64_t end = (*field.offsets)[size_t(sample) + 1];
        for (int64_t row = (*field.offsets)[size_t(sample)]; row < end; ++row) {
          timesteps.push_back(row);
        }
        offsets.push_back(int64_t(timesteps.size()));
      }
      rows = std::make_shared<const std::vector<int64_t>>(std::move(timesteps));
      selected.offsets = std::make_shared<const std::vector<int64_t>>(std::move(offsets));
    }
    selected.values = std::make_shared<const SelectedValues>(field, std::move(rows));
    result.add(std::move(selected));
  }
  return result;
}

std::vector<int64_t> samples_with_all(const FieldSet& set, const std::vector<std::string>& fields) {
  constexpr int64_t kBlock = 4096;
  std::vector<int64_t> samples;
  std::vector<double> values;
  for (int64_t begin = 0; begin < set.size(); begin += kBlock) {
    const int64_t end = std::min(set.size(), begin + kBlock);
    std::vector<bool> whole(size_t(end - begin), true);
    for (const std::string& name : fields) {
      const Field& field = set.field(name);
      const auto elements = size_t(field.shape.numel());
      values.resize(whole.size() * elements);
      read_doubles(field, begin, end, values);
      for (size_t i = 0; i < values.size(); ++i) {
        if (std::isnan(values[i])) whole[i / elements] = false;
      }
    }
    for (size_t i = 0; i < whole.size(); ++i) {
      if (whole[i]) samples.push_back(begin + int64_t(i));
    }
  }
  return samples;
}

}  // namespace ridgeline::data
