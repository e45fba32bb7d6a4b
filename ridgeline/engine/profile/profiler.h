#pragma once

#include "ridgeline/engine/profile/profile.h"

namespace ridgeline::engine {

// Measures a plan, each quantity in passes of its own. The profile's subject and ceilings are
// already set. `tracer` is for a GPU and may be null.
void take_profile(Machine& machine, Runner& runner, const ProfileOptions& options,
                  DeviceTracer* tracer, Profile& profile);

}  // namespace ridgeline::engine
