#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <pthread.h>

#include <algorithm>

#include "python/src/arrays.h"
#include "python/src/train.h"

// The module ridgeline._core: what ridgeline/ridgeline.h offers, in Python's types. The Python
// files beside it make the package of it; its functions check arrays and nothing else.
namespace ridgeline::python {
namespace {

// Threads of a process do not live on in its forked children, so that whatever had started some
// would wait for them for ever there.
bool computed = false, orphaned = false;

void about_to_compute() {
  if (orphaned) {
    throw Error(ErrorKind::usage,
                "this process was forked from one in which ridgeline had computed, and its threads "
                "are not here; start it with multiprocessing's \"spawn\", or compute only after "
                "the fork");
  }
  computed = true;
}

DeviceOptions device_options(const std::string& device, int threads, bool tune, int64_t batch) {
  DeviceOptions options;
  options.device = device;
  options.threads = threads;
  options.tune = tune;
  options.batch = batch;
  return options;
}

nb::object predict(Model& model, nb::handle x, nb::handle out) {
  about_to_compute();
  const Borrowed samples(x, "x");
  const std::vector<int64_t> shape{samples.samples(), model.outputs()};
  float* to = nullptr;
  nb::object answer = nb::borrow(out);
  if (out.is_none()) {
    answer = new_array<float>(shape, to);
  } else {
    to = writable<float>(out, "out", shape);
  }
  const nb::gil_scoped_release unlocked;
  model.predict(samples.array(), {to, size_t(shape[0] * shape[1])});
  return answer;
}

// Predicts by a prepared model, which takes samples of its own type and shape only.
nb::object run(Predictor& predictor, nb::handle x, nb::handle out) {
  about_to_compute();
  const Borrowed samples(x, "x");
  const Array& array = samples.array();
  if (array.type != predictor.input_type()) {
    throw nb::type_error(predictor.input_type() == ArrayType::uint8
                             ? "x: got another type, expected an array of uint8"
                             : "x: got another type, expected an array of float32");
  }
  std::vector<int64_t> shape{samples.samples(), predictor.outputs()};
  const std::vector<int64_t>& sample = predictor.input_shape();
  const bool fits =
      std::equal(array.shape.begin() + 1, array.shape.end(), sample.begin(), sample.end());
  if (!fits || shape[0] < 1 || shape[0] > predictor.batch()) {
    std::vector<int64_t> most{predictor.batch()};
    most.insert(most.end(), sample.begin(), sample.end());
    throw nb::value_error(
        ("x: got shape " + shape_text(array.shape) + ", expected at most " + shape_text(most))
            .c_str());
  }
  float* to = nullptr;
  nb::object answer = nb::borrow(out);
  if (out.is_none()) {
    answer = new_array<float>(shape, to);
  } else {
    to = writable<float>(out, "out", shape);
  }
  const nb::gil_scoped_release unlocked;
  predictor.run(array.data, shape[0], to);
  return answer;
}

nb::object predict_classes(Model& model, nb::handle x) {
  about_to_compute();
  const Borrowed samples(x, "x");
  int32_t* to = nullptr;
  nb::object answer = new_array<int32_t>({samples.samples()}, to);
  const nb::gil_scoped_release unlocked;
  model.predict_classes(samples.array(), {to, size_t(samples.samples())});
  return answer;
}

nb::dict evaluate(Model& model, nb::handle x, nb::handle y) {
  about_to_compute();
  const Borrowed inputs(x, "x"), targets(y, "y");
  Evaluation scores;
  {
    const nb::gil_scoped_release unlocked;
    scores = model.evaluate({inputs.array(), targets.array()});
  }
  return as_dict(scores);
}

nb::list weights(const Model& model) {
  nb::list all;
  for (const NamedArray& each : model.weights()) {
    all.append(nb::make_tuple(each.name, copied_array(each.values)));
  }
  return all;
}

void set_weights(Model& model, const std::vector<std::pair<std::string, nb::object>>& weights) {
  std::vector<Borrowed> held;
  std::vector<NamedArray> all;
  held.reserve(weights.size());
  for (const auto& [name, object] : weights) {
    held.emplace_back(object, name.c_str());
    all.push_back({name, held.back().array()});
  }
  model.set_weights(all);
}

nb::bytes to_bytes(const Model& model) {
  std::vector<std::byte> bytes;
  {
    const nb::gil_scoped_release unlocked;
    bytes = model.to_bytes();
  }
  return nb::bytes(bytes.data(), bytes.size());
}

Model from_bytes(const nb::bytes& bytes, const std::string& device, int threads, bool tune,
                 int64_t batch) {
  const std::span<const std::byte> file(static_cast<const std::byte*>(bytes.data()), bytes.size());
  return Model::from_bytes(file, device_options(device, threads, tune, batch));
}

// Raises the class of ridgeline/_errors.py that belongs to the kind.
void raise(const std::exception_ptr& pointer, void*) {
  try {
    std::rethrow_exception(pointer);
  } catch (const Error& error) {
    const nb::object made =
        nb::module_::import_("ridgeline._errors").attr("make")(name(error.kind()), error.what());
    PyErr_SetObject(made.type().ptr(), made.ptr());
  }
}

}  // namespace
}  // namespace ridgeline::python

NB_MODULE(_core, module) {
  namespace nb = nanobind;
  using namespace nb::literals;
  using namespace ridgeline;
  pthread_atfork(nullptr, nullptr, [] { python::orphaned = python::computed; });
  nb::register_exception_translator(python::raise);

  const auto device = "auto";
  nb::class_<Model>(module, "Model")
      .def_static(
          "create",
          [](const std::string& toml, const std::vector<int64_t>& shape, const std::string& device,
             int threads, bool tune, int64_t batch) {
            return Model::create(Config::parse(toml), shape,
                                 python::device_options(device, threads, tune, batch));
          },
          "toml"_a, "shape"_a, "device"_a = device, "threads"_a = 0, "tune"_a = true,
          "batch"_a = 256)
      .def_static(
          "load",
          [](const std::filesystem::path& path, const std::string& device, int threads, bool tune,
             int64_t batch) {
            return Model::load(path, python::device_options(device, threads, tune, batch));
          },
          "path"_a, "device"_a = device, "threads"_a = 0, "tune"_a = true, "batch"_a = 256)
      .def_static("from_bytes", &python::from_bytes, "file"_a, "device"_a = device, "threads"_a = 0,
                  "tune"_a = true, "batch"_a = 256)
      .def("to_bytes", &python::to_bytes)
      .def("save", &Model::save, "path"_a)
      .def("config", &Model::config)
      .def("input_shape", &Model::input_shape)
      .def("outputs", &Model::outputs)
      .def("classes", &Model::classes)
      .def("predict", &python::predict, "x"_a, "out"_a = nb::none())
      .def("predict_classes", &python::predict_classes, "x"_a)
      .def("evaluate", &python::evaluate, "x"_a, "y"_a)
      .def("weights", &python::weights)
      .def("set_weights", &python::set_weights, "weights"_a);

  nb::class_<Predictor>(
      module, "Predictor",
      "A prepared network: predictor(x, out=None) gives [n, outputs], probabilities of "
      "classes or values, for at most `batch` samples. One call at a time.")
      .def(
          "__init__",
          [](Predictor* self, const Model& model, int64_t batch, const std::string& device,
             int threads, bool tune) {
            python::about_to_compute();
            const nb::gil_scoped_release unlocked;
            new (self) Predictor(model, {batch, device, threads, tune});
          },
          "model"_a, "batch"_a = 1, "device"_a = device, "threads"_a = 1, "tune"_a = true)
      .def("__call__", &python::run, "x"_a, "out"_a = nb::none())
      .def_prop_ro("batch", &Predictor::batch)
      .def_prop_ro("input_shape",
                   [](const Predictor& self) { return nb::tuple(nb::cast(self.input_shape())); })
      .def_prop_ro("outputs", &Predictor::outputs);

  module.def(
      "train",
      [](const std::string& toml, nb::handle x, nb::handle y, nb::handle validation_x,
         nb::handle validation_y, const Model* start, const std::string& out,
         nb::object on_progress, nb::object on_epoch) {
        python::about_to_compute();
        return python::train(toml, x, y, validation_x, validation_y, start, out,
                             std::move(on_progress), std::move(on_epoch));
      },
      "toml"_a, "x"_a.none(), "y"_a.none(), "validation_x"_a.none(), "validation_y"_a.none(),
      "start"_a.none(), "out"_a, "on_progress"_a.none(), "on_epoch"_a.none());
  module.def("copied_bytes", &python::copied_bytes);
  module.def("version", &version);
}
