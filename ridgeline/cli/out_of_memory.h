#pragma once

namespace ridgeline::cli {

// Reserves a little memory for the message that there is no more.
void prepare_for_lack_of_memory();

}  // namespace ridgeline::cli
