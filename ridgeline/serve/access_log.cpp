#include "ridgeline/serve/access_log.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <iterator>

#include "ridgeline/core/error.h"
#include "ridgeline/core/text_format.h"
#include "ridgeline/serve/infer_response.h"

namespace ridgeline::serve {
namespace {

constexpr size_t kMostKept = size_t{1} << 16;  // bytes of lines waiting to be written

}  // namespace

LogFile::LogFile(const std::string& path) : path_(path) {
  if (path == "-") fd_ = STDERR_FILENO;
  if (path.empty() || path == "-") return;
  file_ = Descriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640));
  if (!file_) {
    throw_error(ErrorKind::io, "--access-log {}: {}", path, std::strerror(errno));
  }
  fd_ = file_.get();
}

void LogFile::append(const std::string& lines) const {
  size_t done = 0;
  while (done < lines.size()) {
    const ssize_t wrote = ::write(fd_, lines.data() + done, lines.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return;
    done += size_t(wrote);
  }
}

void LogFile::reopen() {
  if (!file_) return;
  const Descriptor fresh(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640));
  // The descriptor's number stays, so that other threads may write meanwhile.
  if (fresh) ::dup3(fresh.get(), fd_, O_CLOEXEC);
}

void AccessLog::add(const Exchange& exchange) {
  if (!file_.wanted()) return;
  const auto out = std::back_inserter(lines_);
  const auto now = std::chrono::system_clock::now();
  const auto since = now.time_since_epoch();
  const auto millis = std::chrono::duration_cast<std::chrono::milliseconds>(since).count() % 1000;
  fmt::format_to(out, "{{\"time\":\"{:%Y-%m-%dT%H:%M:%S}.{:03}Z\",\"peer\":\"{}\"",
                 fmt::gmtime(std::chrono::system_clock::to_time_t(now)), millis, exchange.peer);
  fmt::format_to(out, ",\"method\":{},\"path\":{},\"status\":{},\"in\":{},\"out\":{}",
                 json_text(exchange.method), json_text(exchange.target.substr(0, 256)),
                 exchange.status, exchange.body.size(), exchange.reply.size());
  fmt::format_to(out, ",\"seconds\":{:.6f}", seconds(Clock::now() - exchange.received));
  if (exchange.model) {
    fmt::format_to(out, ",\"model\":\"{}\",\"version\":\"{}\",\"samples\":{}",
                   exchange.model->name(), exchange.model->version(), exchange.count);
    if (exchange.status == 200) {
      fmt::format_to(out, ",\"queue_seconds\":{:.6f},\"batch\":{}",
                     seconds(exchange.started - exchange.queued), exchange.batch);
    }
    if (!exchange.infer.id.empty()) lines_ += ",\"id\":" + json_text(exchange.infer.id);
  }
  lines_ += "}\n";
  if (lines_.size() >= kMostKept) flush();
}

void AccessLog::flush() {
  if (lines_.empty()) return;
  file_.append(lines_);
  lines_.clear();
}

}  // namespace ridgeline::serve
