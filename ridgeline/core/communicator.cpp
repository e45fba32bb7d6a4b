#include "ridgeline/core/communicator.h"

#include <algorithm>
#include <cstring>

namespace ridgeline {

std::string Communicator::text_from_root(std::string text) {
  text.resize(size_t(from_root(int64_t(text.size()))));
  broadcast(text.data(), text.size());
  return text;
}

std::vector<std::string> Communicator::texts(const std::string& mine) {
  const auto longest = size_t(reduce(int64_t(mine.size()), Reduce::max)) + 1;
  std::vector<char> padded(longest), all(longest * size_t(size()));
  std::copy(mine.begin(), mine.end(), padded.begin());
  all_gather(padded.data(), all.data(), longest);
  std::vector<std::string> texts;
  texts.reserve(size_t(size()));
  for (int r = 0; r < size(); ++r) texts.emplace_back(all.data() + size_t(r) * longest);
  return texts;
}

}  // namespace ridgeline
