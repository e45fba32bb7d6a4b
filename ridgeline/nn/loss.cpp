#include "ridgeline/nn/loss.h"

#include "ridgeline/core/error.h"

namespace ridgeline::nn {

std::string_view name(Loss loss) { return loss == Loss::mse ? "mse" : "cross-entropy"; }

Loss parse_loss(std::string_view text) {
  for (const Loss loss : {Loss::cross_entropy, Loss::mse}) {
    if (text == name(loss)) return loss;
  }
  throw_error(ErrorKind::usage, "'{}' is not a loss; use cross-entropy or mse", text);
}

}  // namespace ridgeline::nn
