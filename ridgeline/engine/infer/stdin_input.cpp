#include "ridgeline/engine/infer/stdin_input.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <span>
#include <vector>

#include "ridgeline/core/descriptor.h"
#include "ridgeline/core/error.h"
#include "ridgeline/core/file.h"

namespace ridgeline::engine {

StdinInput::StdinInput() : path_("/dev/stdin") {
  struct stat status {};
  if (::fstat(STDIN_FILENO, &status) == 0 && S_ISREG(status.st_mode)) return;
  if (::isatty(STDIN_FILENO) != 0) {
    throw_error(ErrorKind::usage, "--input -: stdin is a terminal; pipe the samples into it");
  }
  scratch_.emplace("ridgeline-stdin");
  const std::filesystem::path file = scratch_->path() / "stdin";
  const Descriptor copy(::open(file.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!copy) throw_error(ErrorKind::io, "{}: cannot open: {}", file.string(), strerror(errno));
  std::vector<std::byte> block(size_t{1} << 20);
  while (true) {
    const ssize_t got = ::read(STDIN_FILENO, block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_error(ErrorKind::io, "stdin: read error: {}", std::strerror(errno));
    if (got == 0) break;
    write_all(copy.get(), std::span(block).first(size_t(got)), file);
  }
  // The copy takes the place of the pipe, so that errors name /dev/stdin.
  if (::dup2(copy.get(), STDIN_FILENO) < 0) {
    throw_error(ErrorKind::io, "stdin: cannot be replaced by a copy: {}", std::strerror(errno));
  }
}

}  // namespace ridgeline::engine
