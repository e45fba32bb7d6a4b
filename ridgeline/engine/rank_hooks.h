#pragma once

#include "ridgeline/core/error.h"
#include "ridgeline/core/file.h"
#include "ridgeline/dist/rank_communicator.h"

namespace ridgeline::engine {

// The ranks, if there are several; else null.
inline dist::RankCommunicator* several(Communicator* ranks) {
  if (ranks == nullptr || ranks->size() == 1) return nullptr;
  return dynamic_cast<dist::RankCommunicator*>(ranks);
}

// Sets the watchdog's callbacks while it lives. A run that continues without lost ranks still does
// so afterwards.
class Hooks {
 public:
  Hooks(dist::RankCommunicator* ranks, const dist::RankHooks& hooks)
      : ranks_(ranks), survives_(hooks.lost != nullptr) {
    if (ranks_ != nullptr) ranks_->set_hooks(hooks);
  }
  ~Hooks() {
    if (ranks_ == nullptr) return;
    dist::RankHooks after;
    if (survives_) {
      after.lost = [](int, const std::string& what) {
        write_stderr(fmt::format("ridgeline: warning: {}, after its last result\n", what));
        return true;
      };
    }
    ranks_->set_hooks(after);
  }
  Hooks(const Hooks&) = delete;
  Hooks& operator=(const Hooks&) = delete;

 private:
  dist::RankCommunicator* ranks_;
  bool survives_;
};

}  // namespace ridgeline::engine
