#pragma once

namespace ridgeline::cli {

// Keeps a little memory back for the message that there is no more.
void prepare_for_lack_of_memory();

}  // namespace ridgeline::cli
