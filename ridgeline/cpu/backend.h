#pragma once

#include "ridgeline/plan/backend.h"

namespace ridgeline::cpu {

const Backend& backend();

}  // namespace ridgeline::cpu
