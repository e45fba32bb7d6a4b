#pragma once

#include <string>

#include "ridgeline/engine/clock.h"

namespace ridgeline::engine {

// Shows the progress of a run on stderr: a bar that redraws itself on a terminal, plain lines
// elsewhere.
class Progress {
 public:
  enum class Style { automatic, none };  // automatic: a bar on a terminal, else lines

  explicit Progress(Style style = Style::automatic);
  ~Progress() { end_bar(); }

  struct State {
    int64_t epoch = 0, epochs = 0;  // from 1
    int64_t step = 0, steps = 0;    // of the run
    double loss = 0, accuracy = 0;  // accuracy in [0, 1]; negative: none
    double inputs_per_second = 0;
    double seconds_left = 0;
    std::string last_score{};  // of the last evaluation; empty: there was none
  };
  // True if the bar is due, so that the caller should compute the state.
  bool due() const;
  void update(const State& state);

  void line(const std::string& text);     // above the bar
  void warning(const std::string& text);  // "ridgeline: warning: ..."; shown in any style

 private:
  void end_bar();

  bool quiet_, terminal_;
  bool drawn_ = false;
  Clock clock_;
  double last_ = -1e9;
};

// Shows what a long start-up is doing: after half a second, then at intervals, on a terminal in a
// line that is redrawn. It never waits for an answer.
class StartNotice {
 public:
  explicit StartNotice(Progress::Style style);
  ~StartNotice() { clear(); }
  StartNotice(const StartNotice&) = delete;
  StartNotice& operator=(const StartNotice&) = delete;

  void say(const std::string& text);
  void clear();  // removes the line; another may follow

 private:
  bool quiet_, terminal_;
  bool drawn_ = false;
  Clock clock_;
  double next_;  // when the next line is due, by the clock
};

std::string duration(double seconds);   // "1:02:03", "4:05", "12 s", "340 ms"
std::string engineering(double value);  // "12.3 k", "4.56 G": the unit follows directly
std::string grouped(double value);      // "12,345"

}  // namespace ridgeline::engine
