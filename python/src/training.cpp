#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "python/src/compute.h"
#include "python/src/train.h"

namespace ridgeline::python {
namespace {

nb::tuple step(StepTrainer& self, nb::handle x, nb::handle y, nb::handle weights,
               std::optional<double> rate) {
  about_to_compute();
  const GpuQueue queue = self.queue();
  const BorrowedSamples batch(x, y, weights, {}, &queue);
  StepResult result;
  {
    const nb::gil_scoped_release unlocked;
    result = self.step(batch.samples(), rate);
  }
  return nb::make_tuple(result.loss, result.accuracy);
}

// Returns the samples, or none if the config names the data.
std::optional<Samples> samples_of(const std::optional<Borrowed>& x,
                                  const std::optional<Borrowed>& y) {
  if (!x) return std::nullopt;
  return Samples{x->array(), y->array()};
}

nb::tuple report(const std::string& toml, nb::handle x, nb::handle y,
                 std::optional<double> seconds) {
  about_to_compute();
  std::optional<Borrowed> inputs, targets;
  if (!x.is_none()) {
    inputs.emplace(x, "x");
    targets.emplace(y, "y");
  }
  StepReport made;
  {
    const nb::gil_scoped_release unlocked;
    const Config config = Config::parse(toml);
    const std::optional<Samples> samples = samples_of(inputs, targets);
    made = seconds ? profile(config, samples, *seconds) : plan(config, samples);
  }
  return nb::make_tuple(made.text, made.json, made.roofline);
}

}  // namespace

void add_training(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<StepTrainer>(module, "StepTrainer", "Steps of training, one a call.")
      .def(
          "__init__",
          [](StepTrainer* self, const Model& model, const std::string& device, int threads,
             bool tune) {
            about_to_compute();
            const nb::gil_scoped_release unlocked;
            new (self) StepTrainer(model, device_options(device, threads, tune, 256));
          },
          "model"_a, "device"_a = "auto", "threads"_a = 0, "tune"_a = true)
      .def("step", &step, "x"_a, "y"_a, "weights"_a.none(), "lr"_a.none() = nb::none())
      .def("steps", &StepTrainer::steps)
      .def("give_weights", &StepTrainer::give_weights, "model"_a);
  module.def(
      "train",
      [](const std::string& toml, const nb::tuple& data, const nb::tuple& validation,
         const Model* start, const std::string& out, nb::object on_progress, nb::object on_epoch,
         nb::object control) {
        about_to_compute();
        return train(toml, data, validation, start, out, std::move(on_progress),
                     std::move(on_epoch), std::move(control));
      },
      "toml"_a, "data"_a, "validation"_a, "start"_a.none(), "out"_a, "on_progress"_a.none(),
      "on_epoch"_a.none(), "control"_a.none());
  module.def("report", &report, "toml"_a, "x"_a.none(), "y"_a.none(), "seconds"_a.none());
}

}  // namespace ridgeline::python
