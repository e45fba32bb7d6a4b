#include "ridgeline/data/text_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>
#include <utility>

#include "ridgeline/core/host_memory.h"
#include "ridgeline/core/text_format.h"

namespace ridgeline::data {
namespace {

constexpr int kMostClasses = 1 << 20;  // a larger label means a damaged file

}  // namespace

int32_t class_of(std::string_view label, const TextCoding& coding, const std::string& file,
                 int64_t line) {
  const auto named = std::ranges::find(coding.class_names, label);
  if (named != coding.class_names.end()) return int32_t(named - coding.class_names.begin());
  int value = 0;
  const auto [end, error] = std::from_chars(label.data(), label.data() + label.size(), value);
  if (error != std::errc() || end != label.data() + label.size()) {
    throw_error(ErrorKind::data, "{}: line {}: label {} is {}", file, line, quote(label),
                coding.class_names.empty()
                    ? std::string("not a whole number")
                    : "none of the classes " + list_words(coding.class_names));
  }
  int classes = coding.class_names.empty() ? coding.classes : int(coding.class_names.size());
  if (classes == 0) classes = kMostClasses;
  const int64_t place = int64_t{value} - coding.first_label;
  if (place < 0 || place >= classes) {
    throw_error(ErrorKind::data, "{}: line {}: label {} is outside the {} classes ({} to {})", file,
                line, value, classes, coding.first_label, coding.first_label + classes - 1);
  }
  return int32_t(place);
}

SampleSet load_text(const std::filesystem::path& path, const TextColumns& columns,
                    const TextCoding& coding, std::string name) {
  const auto reader = open_text(path, columns);
  const auto length = size_t(coding.length);
  std::vector<uint8_t> codes;
  std::vector<int32_t> labels;
  for (TextRecord record; reader->next(record);) {
    if (labels.size() == size_t(std::numeric_limits<int32_t>::max())) {
      throw_error(ErrorKind::data, "{}: line {}: more than {} texts", reader->file(), record.line,
                  labels.size());
    }
    if (codes.size() + length > codes.capacity()) {
      require_host_memory(4 * codes.size(), "use fewer texts or a smaller data.text.length");
    }
    labels.push_back(class_of(record.label, coding, reader->file(), record.line));
    codes.resize(codes.size() + length);
    coding.vocabulary.encode(record.text, coding.backward, std::span(codes).last(length));
  }
  if (labels.empty()) throw_error(ErrorKind::data, "{}: holds no texts", reader->file());
  SampleSet set;
  const auto count = int64_t(labels.size());
  set.inputs = HostTensor(DType::uint8, {count, coding.length});
  set.targets = HostTensor(DType::int32, {count});
  std::memcpy(set.inputs.view().data, codes.data(), codes.size());
  std::ranges::copy(labels, set.targets.span<int32_t>().begin());
  const int found = 1 + *std::ranges::max_element(labels);
  set.classes =
      coding.class_names.empty() ? std::max(coding.classes, found) : int(coding.class_names.size());
  set.codes = coding.vocabulary.size() + 1;
  set.name = std::move(name);
  set.hash = hash_of(set);
  return set;
}

}  // namespace ridgeline::data
