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

StdinInput::StdinInput() {
  struct stat status {};
  if (::fstat(STDIN_FILENO, &status) == 0 && S_ISREG(status.st_mode)) {
    path_ = "/dev/stdin";
    return;
  }
  if (::isatty(STDIN_FILENO) != 0) {
    throw_error(ErrorKind::usage, "--input -: stdin is a terminal; pipe the samples into it");
  }
  scratch_.emplace("ridgeline-stdin");
  path_ = scratch_->path() / "stdin";
  const Descriptor copy(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!copy) throw_error(ErrorKind::io, "{}: cannot open: {}", path_.string(), strerror(errno));
  std::vector<std::byte> block(size_t{1} << 20);
  while (true) {
    const ssize_t got = ::read(STDIN_FILENO, block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_error(ErrorKind::io, "stdin: read error: {}", std::strerror(errno));
    if (got == 0) return;
    write_all(copy.get(), std::span(block).first(size_t(got)), path_);
  }
}

}  // namespace ridgeline::engine
