#pragma once

#include "ridgeline/dist/rank_communicator.h"

namespace ridgeline::engine {

// The ranks, if there are several; else null.
inline dist::RankCommunicator* several(Communicator* ranks) {
  if (ranks == nullptr || ranks->size() == 1) return nullptr;
  return dynamic_cast<dist::RankCommunicator*>(ranks);
}

// Sets what the watch may call for as long as it lives.
class Hooks {
 public:
  Hooks(dist::RankCommunicator* ranks, const dist::RankHooks& hooks) : ranks_(ranks) {
    if (ranks_ != nullptr) ranks_->set_hooks(hooks);
  }
  ~Hooks() {
    if (ranks_ != nullptr) ranks_->set_hooks({});
  }
  Hooks(const Hooks&) = delete;
  Hooks& operator=(const Hooks&) = delete;

 private:
  dist::RankCommunicator* ranks_;
};

}  // namespace ridgeline::engine
