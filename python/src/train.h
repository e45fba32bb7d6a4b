#pragma once

#include "python/src/arrays.h"

namespace ridgeline::python {

// Trains with the GIL released. Returns (model, figures, exception or None): an exception of a
// callback, and KeyboardInterrupt, end the run normally, and the model is that of the steps made.
// After each callback `control.lr` is checked: a number is the rate of the following steps.
nb::tuple train(const std::string& toml, nb::handle x, nb::handle y, nb::handle validation_x,
                nb::handle validation_y, const Model* start, const std::string& out,
                nb::object on_progress, nb::object on_epoch, nb::object control);

nb::dict as_dict(const Evaluation& scores);

}  // namespace ridgeline::python
