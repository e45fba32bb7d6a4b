#include "ridgeline/engine/progress.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "ridgeline/core/file.h"
#include "ridgeline/core/text_format.h"

namespace ridgeline::engine {
namespace {

constexpr double kRedrawSeconds = 0.1;
constexpr double kLineSeconds = 10;                              // between plain lines
constexpr double kPatienceSeconds = 0.5, kStartLineSeconds = 5;  // of a slow start

int terminal_width() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

std::string figures(const Progress::State& state) {
  std::string text = fmt::format("epoch {}/{}  step {}/{}  loss {:.4f}", state.epoch, state.epochs,
                                 state.step, state.steps, state.loss);
  if (state.accuracy >= 0) text += fmt::format("  accuracy {:.2f} %", 100 * state.accuracy);
  if (!state.last_score.empty()) text += fmt::format("  ({})", state.last_score);
  text += fmt::format("  {} inputs/s", grouped(state.inputs_per_second));
  if (state.seconds_left >= 0) text += fmt::format("  ETA {}", duration(state.seconds_left));
  return text;
}

std::string bar(double part, int width) {
  const int full = std::clamp(int(std::lround(part * width)), 0, width);
  return fmt::format("[{:#<{}}{:.<{}}]", "", full, "", width - full);
}

}  // namespace

std::string duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  if (seconds < 1) return fmt::format("{:.0f} ms", seconds * 1e3);
  if (seconds < 60) return fmt::format("{:.0f} s", seconds);
  const int64_t whole = int64_t(std::llround(std::min(seconds, 1e12)));
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string engineering(double value) {
  static constexpr const char* kUnits[] = {"", "k", "M", "G", "T", "P"};
  size_t unit = 0;
  while (std::abs(value) >= 999.5 && unit + 1 < std::size(kUnits)) {
    value /= 1000;
    ++unit;
  }
  const int digits = std::abs(value) >= 100 ? 0 : std::abs(value) >= 10 ? 1 : 2;
  return fmt::format("{:.{}f} {}", value, digits, kUnits[unit]);
}

std::string grouped(double value) {
  const std::string digits =
      fmt::format("{:.0f}", std::isfinite(value) ? std::max(0.0, value) : 0.0);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

Progress::Progress(Style style)
    : quiet_(style == Style::none), terminal_(isatty(STDERR_FILENO) != 0) {}

bool Progress::due() const {
  if (quiet_) return false;
  return clock_.seconds() - last_ >= (terminal_ ? kRedrawSeconds : kLineSeconds);
}

void Progress::update(const State& state) {
  if (quiet_) return;
  if (!terminal_) {
    // Prints nothing at first: for a short run its evaluations suffice.
    if (last_ >= 0) line(figures(state));
    last_ = clock_.seconds();
    return;
  }
  last_ = clock_.seconds();
  const double part = state.steps > 0 ? double(state.step) / double(state.steps) : 0;
  std::string text = bar(part, 20) + " " + figures(state);
  text.resize(std::min(text.size(), size_t(std::max(10, terminal_width() - 1))));
  write_stderr("\r\033[K" + text);
  drawn_ = true;
}

void Progress::line(const std::string& text) {
  if (quiet_) return;
  end_bar();
  write_stderr(one_line(text) + "\n");
}

void Progress::warning(const std::string& text) {
  end_bar();
  write_stderr("ridgeline: warning: " + one_line(text) + "\n");
}

void Progress::end_bar() {
  if (drawn_) write_stderr("\r\033[K");
  drawn_ = false;
}

StartNotice::StartNotice(Progress::Style style)
    : quiet_(style == Progress::Style::none),
      terminal_(isatty(STDERR_FILENO) != 0),
      next_(kPatienceSeconds) {}

void StartNotice::say(const std::string& text) {
  if (quiet_ || clock_.seconds() < next_) return;
  next_ = clock_.seconds() + (terminal_ ? kRedrawSeconds : kStartLineSeconds);
  write_stderr(terminal_ ? "\r\033[K" + text : text + "\n");
  drawn_ = terminal_;
}

void StartNotice::clear() {
  if (drawn_) write_stderr("\r\033[K");
  drawn_ = false;
}

}  // namespace ridgeline::engine
