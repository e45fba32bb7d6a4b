#pragma once

#include "ridgeline/nn/config_table.h"
#include "ridgeline/nn/layer.h"

namespace ridgeline::nn {

// Layers that move numbers and compute none. The comments of their classes say what each does.
LayerPtr read_reshape(ConfigTable& table);
LayerPtr read_transpose(ConfigTable& table);
LayerPtr read_slice(ConfigTable& table);
LayerPtr read_pad(ConfigTable& table);
LayerPtr read_upsample(ConfigTable& table);

}  // namespace ridgeline::nn
