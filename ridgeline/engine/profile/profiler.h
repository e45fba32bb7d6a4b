#pragma once

#include "ridgeline/engine/profile/profile.h"

namespace ridgeline::engine {

// Measures a plan, each kind of figure in passes of its own, into a profile that says already whose
// it is and has its ceilings. `tracer`: of a GPU; may be null.
void take_profile(Machine& machine, Runner& runner, const ProfileOptions& options,
                  DeviceTracer* tracer, Profile& profile);

}  // namespace ridgeline::engine
