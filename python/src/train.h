#pragma once

#include <optional>

#include "python/src/arrays.h"

namespace ridgeline::python {

struct BorrowedNames {
  const char *x = "x", *y = "y", *weights = "sample_weight", *all = "x, y";
};

// Samples, targets and optional weights (None: none) of the caller, as many of each. Throws
// ValueError if they are not.
class BorrowedSamples {
 public:
  BorrowedSamples(nb::handle x, nb::handle y, nb::handle weights, const BorrowedNames& names,
                  const GpuQueue* queue = nullptr);

  Samples samples() const;

 private:
  Borrowed x_, y_;
  std::optional<Borrowed> weights_;
};

// Trains with the GIL released on `data`, and evaluates `validation` after each epoch: each is a
// tuple (x, y, weights), of None if there are none. Returns (model, figures, exception or None): an
// exception of a callback, and KeyboardInterrupt, end the run normally, and the model is that of
// the steps made. After each callback `control.lr` is checked: a number is the rate of the
// following steps.
nb::tuple train(const std::string& toml, const nb::tuple& data, const nb::tuple& validation,
                const Model* start, const std::string& out, nb::object on_progress,
                nb::object on_epoch, nb::object control);

nb::dict as_dict(const Evaluation& scores);

}  // namespace ridgeline::python
