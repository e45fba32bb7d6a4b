#pragma once

#include "ridgeline/engine/profile/profile.h"

namespace ridgeline::engine {

ProgramUse program_use();  // of this process; unknown values stay 0

}  // namespace ridgeline::engine
