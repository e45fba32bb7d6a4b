// Runs every kept input of every target: fuzz_replay CORPUS [TARGET...]. A fault ends it; the input
// that was being read is on stderr before.
//   fuzz_replay CORPUS --changed N SEED FILE TARGET...   N inputs a target that are kept ones
//   changed
// at random. That needs no clang, and finds less than libFuzzer, which sees what code an input
// reaches. An input that takes 2 s of a processor ends it too. FILE has the input being read.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>

#include "tests/fuzz/target.h"

namespace ridgeline::fuzz {
namespace {

namespace fs = std::filesystem;

std::vector<uint8_t> read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<fs::path> files_in(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const fs::directory_entry& each : fs::directory_iterator(folder)) {
    files.push_back(each.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

size_t replay(Run run, const fs::path& folder) {
  const std::vector<fs::path> inputs = files_in(folder);
  for (const fs::path& path : inputs) {
    std::fprintf(stderr, "%s\n", path.c_str());
    const std::vector<uint8_t> bytes = read(path);
    run(bytes);
    run(Input(bytes).first(bytes.size() / 2));  // a file that was cut off
  }
  run({});
  return inputs.size();
}

using Bytes = std::vector<uint8_t>;
using Draw = std::minstd_rand;

// Makes one change at a random place, some of it with bytes of `other`.
void change(Bytes& bytes, const Bytes& other, Draw& draw) {
  static const std::string kTexts[] = {
      "-1", "0", "1e400", "nan",     "18446744073709551616", "\"",  "[", "{", "]",
      "}",  ",", "\n",    "\\u0000", "4294967297",           "0.5", "="};
  constexpr uint64_t kNumbers[] = {
      0, 1, 0x7f, 0x80, 0xff, 0xffff, 0x7fffffff, 0xffffffff, uint64_t{1} << 62, ~uint64_t{0}};
  const auto place = [&](size_t size) { return ptrdiff_t(size == 0 ? 0 : draw() % (size + 1)); };
  const ptrdiff_t at = place(bytes.size());
  const size_t left = bytes.size() - size_t(at);
  const auto length = [&](size_t most) {
    return ptrdiff_t(most == 0 ? 0 : draw() % most % 64 + 1);
  };
  switch (draw() % 7) {
    case 0:
      if (left > 0) bytes[size_t(at)] ^= uint8_t(1 << draw() % 8);
      return;
    case 1:
      if (left > 0) bytes[size_t(at)] = uint8_t(draw());
      return;
    case 2:
      bytes.erase(bytes.begin() + at, bytes.begin() + at + std::min(length(left), ptrdiff_t(left)));
      return;
    case 3: {
      const std::string& text = kTexts[draw() % std::size(kTexts)];
      bytes.insert(bytes.begin() + at, text.begin(), text.end());
      return;
    }
    case 4: {
      const uint64_t number = kNumbers[draw() % std::size(kNumbers)];
      std::memcpy(bytes.data() + at, &number, std::min<size_t>(left, size_t{1} << draw() % 4));
      return;
    }
    case 5:
      if (draw() % 8 == 0) bytes.resize(size_t(at));
      return;
    default: {
      const ptrdiff_t from = place(other.size());
      const ptrdiff_t count = std::min(length(other.size()), ptrdiff_t(other.size()) - from);
      const Bytes part(other.begin() + from, other.begin() + from + count);
      bytes.insert(bytes.begin() + at, part.begin(), part.end());
    }
  }
}

// The input being read, in a file that is there after a crash too.
class Current {
 public:
  explicit Current(const char* file) : file_(::open(file, O_RDWR | O_CREAT | O_TRUNC, 0600)) {
    expect(file_ >= 0 && ::ftruncate(file_, kMost) == 0, "a file for the input being read");
    memory_ = ::mmap(nullptr, kMost, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
    expect(memory_ != MAP_FAILED, "a file for the input being read");
  }
  void set(const Bytes& bytes) const {  // behind eight bytes with its size
    const uint64_t count = bytes.size();
    std::memcpy(memory_, &count, sizeof(count));
    if (count > 0) std::memcpy(static_cast<char*>(memory_) + sizeof(count), bytes.data(), count);
  }
  static constexpr size_t kMost = size_t{1} << 20;

 private:
  int file_;
  void* memory_;
};

void run_changed(Run run, const fs::path& folder, uint64_t count, Draw& draw, const Current& kept) {
  std::vector<Bytes> inputs;
  for (const fs::path& each : files_in(folder)) inputs.push_back(read(each));
  constexpr itimerval kMostTime{{0, 0}, {2, 0}};
  for (uint64_t i = 0; i < count; ++i) {
    Bytes bytes = inputs[draw() % inputs.size()];
    for (unsigned times = 1 + draw() % 6; times > 0; --times) {
      change(bytes, inputs[draw() % inputs.size()], draw);
    }
    if (bytes.size() > Current::kMost - sizeof(uint64_t)) continue;
    kept.set(bytes);
    ::setitimer(ITIMER_PROF, &kMostTime, nullptr);  // ends the program
    run(bytes);
  }
}

}  // namespace

int change_all(const fs::path& corpus, char** arguments, int count) {
  expect(count >= 4, "N, a seed, a file and targets");
  const uint64_t runs = std::stoull(arguments[0]);
  Draw draw(unsigned(std::stoul(arguments[1])));
  const Current kept(arguments[2]);
  for (int i = 3; i < count; ++i) {
    const auto found = targets().find(arguments[i]);
    expect(found != targets().end(), arguments[i]);
    run_changed(found->second, corpus / arguments[i], runs, draw, kept);
    rusage used{};
    ::getrusage(RUSAGE_SELF, &used);
    std::printf("%s: %llu changed inputs, %ld MB at most\n", arguments[i],
                static_cast<unsigned long long>(runs), used.ru_maxrss / 1024);
    std::fflush(stdout);
  }
  return 0;
}

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
  if (count > 2 && std::string_view(arguments[2]) == "--changed") {
    return ridgeline::fuzz::change_all(arguments[1], arguments + 3, count - 3);
  }
  return ridgeline::fuzz::replay_all(arguments[1], {arguments + 2, arguments + count});
}
