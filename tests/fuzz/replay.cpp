// Runs every kept input of every target: fuzz_replay CORPUS [TARGET...]. A fault ends the program;
// the input that was being read is printed on stderr before.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>

#include "tests/fuzz/target.h"

namespace ridgeline::fuzz {
namespace {

namespace fs = std::filesystem;

std::vector<uint8_t> read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

size_t replay(Run run, const fs::path& folder) {
  std::vector<fs::path> inputs;
  for (const fs::directory_entry& each : fs::directory_iterator(folder)) {
    inputs.push_back(each.path());
  }
  std::sort(inputs.begin(), inputs.end());
  for (const fs::path& path : inputs) {
    std::fprintf(stderr, "%s\n", path.c_str());
    const std::vector<uint8_t> bytes = read(path);
    run(bytes);
    run(Input(bytes).first(bytes.size() / 2));  // a file that was cut off
  }
  run({});
  return inputs.size();
}

}  // namespace

int replay_all(const fs::path& corpus, const std::vector<std::string>& wanted) {
  for (const auto& [target, run] : targets()) {
    if (!wanted.empty() && std::ranges::find(wanted, target) == wanted.end()) continue;
    expect(fs::is_directory(corpus / target), "kept inputs of " + target);
    const size_t count = replay(run, corpus / target);
    expect(count > 0, "kept inputs of " + target);
    std::printf("%s: %zu inputs\n", target.c_str(), count);
  }
  return 0;
}

}  // namespace ridgeline::fuzz

int main(int count, char** arguments) {
  ridgeline::fuzz::expect(count > 1, "fuzz_replay CORPUS [TARGET...]");
  return ridgeline::fuzz::replay_all(arguments[1], {arguments + 2, arguments + count});
}
