#include "ridgeline/core/launch_group.h"

namespace ridgeline {
namespace {

thread_local LaunchGroup* group_of_this_thread = nullptr;

}  // namespace

LaunchGroup* LaunchGroup::current() { return group_of_this_thread; }

void LaunchGroup::enter() {
  entered();
  group_of_this_thread = this;
}

void LaunchGroup::leave() noexcept {
  group_of_this_thread = nullptr;
  left();
}

}  // namespace ridgeline
