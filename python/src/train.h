#pragma once

#include "python/src/arrays.h"

namespace ridgeline::python {

// Trains with the GIL released. Returns (model, figures, exception or None): what a callback
// raises, and KeyboardInterrupt, end the run in order, and the model is that of the steps made.
// After each callback `control.lr` is looked at: a number is the rate of the steps that follow.
nb::tuple train(const std::string& toml, nb::handle x, nb::handle y, nb::handle validation_x,
                nb::handle validation_y, const Model* start, const std::string& out,
                nb::object on_progress, nb::object on_epoch, nb::object control);

nb::dict as_dict(const Evaluation& scores);

}  // namespace ridgeline::python
