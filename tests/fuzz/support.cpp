#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "tests/fuzz/target.h"

namespace ridgeline::fuzz {
namespace {

namespace fs = std::filesystem;

struct Folder {
  fs::path path;
  Folder() {
    std::string name = fs::is_directory("/dev/shm") ? "/dev/shm" : fs::temp_directory_path();
    name += "/ridgeline-fuzz-XXXXXX";
    expect(::mkdtemp(name.data()) != nullptr, "a folder for the inputs");
    path = name;
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
};

}  // namespace

std::map<std::string, Run>& targets() {
  static std::map<std::string, Run> all;
  return all;
}

void expect(bool holds, std::string_view what) {
  if (holds) return;
  std::fprintf(stderr, "not as expected: %.*s\n", int(what.size()), what.data());
  std::abort();
}

void check_message(std::string_view message) {
  expect(!message.empty(), "a message");
  for (const char c : message) expect(uint8_t(c) >= ' ' && c != 0x7f, message);
}

std::vector<std::string> split(std::string_view text, char mark) {
  std::vector<std::string> parts;
  for (;;) {
    const size_t at = text.find(mark);
    parts.emplace_back(text.substr(0, at));
    if (at == text.npos) return parts;
    text.remove_prefix(at + 1);
  }
}

fs::path as_file(Input input, std::string_view name) {
  static const Folder folder;
  const fs::path path = folder.path / name;
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  const bool written =
      file >= 0 && ::write(file, input.data(), input.size()) == ssize_t(input.size());
  ::close(file);
  expect(written, "a file of the input");
  return path;
}

}  // namespace ridgeline::fuzz
