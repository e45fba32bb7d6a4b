#pragma once

#include "ridgeline/engine/profile/profile.h"

namespace ridgeline::engine {

ProgramUse program_use();  // of this process; what the system does not tell stays 0

}  // namespace ridgeline::engine
