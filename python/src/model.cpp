#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>

#include "python/src/compute.h"
#include "python/src/train.h"

namespace ridgeline::python {
namespace {

// Returns the queue of a model that computes on a GPU. For a model on a CPU it opens no queue.
std::optional<GpuQueue> queue_of(Model& model, nb::handle x) {
  if (!nb::hasattr(x, "__cuda_array_interface__") && !nb::hasattr(x, "__dlpack_device__")) {
    return std::nullopt;
  }
  if (PyObject_CheckBuffer(x.ptr()) != 0) return std::nullopt;
  return model.queue();
}

// Calls compute(samples, first) without Python's lock for one part of the samples after another,
// and lets Python handle signals in between, so that Ctrl-C ends a long call.
template <typename F>
void in_parts(const Array& all, F compute) {
  constexpr int64_t kBatch = 256;  // of the models that this module makes
  constexpr auto kShort = std::chrono::milliseconds(20);
  const int64_t count = all.gpu >= 0 || all.shape.empty() ? 0 : all.shape[0];
  if (count <= kBatch) {
    const nb::gil_scoped_release unlocked;
    compute(all, int64_t{0});
    return;
  }
  const bool wide = all.type == ArrayType::int64 || all.type == ArrayType::float64;
  int64_t bytes = all.type == ArrayType::uint8 ? 1 : wide ? 8 : 4;
  for (size_t i = 1; i < all.shape.size(); ++i) bytes *= all.shape[i];
  Array part = all;
  for (int64_t first = 0, size = kBatch; first < count; first += part.shape[0]) {
    part.data = static_cast<const std::byte*>(all.data) + first * bytes;
    part.shape[0] = std::min(size, count - first);
    const auto begin = std::chrono::steady_clock::now();
    {
      const nb::gil_scoped_release unlocked;
      compute(part, first);
    }
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    if (std::chrono::steady_clock::now() - begin < kShort) size *= 2;
  }
}

nb::object predict(nb::object self, nb::handle x, nb::handle out) {
  about_to_compute();
  Model& model = nb::cast<Model&>(self);
  const std::optional<GpuQueue> queue = queue_of(model, x);
  const Borrowed samples(x, "x", queue ? &*queue : nullptr);
  const int64_t shape[] = {samples.samples(), model.outputs()};
  const int gpu = samples.array().gpu;
  if (gpu >= 0 && queue->gpu() != gpu) {
    throw nb::value_error(("x: got an array on cuda:" + std::to_string(gpu) +
                           ", expected one on the device that the model computes on")
                              .c_str());
  }
  Answers answers(out, shape, gpu, self, queue ? &*queue : nullptr);
  in_parts(samples.array(), [&](const Array& part, int64_t first) {
    model.predict(part, answers.data() + first * shape[1], gpu);
  });
  return answers.object();
}

nb::object predict_classes(Model& model, nb::handle x) {
  about_to_compute();
  const std::optional<GpuQueue> queue = queue_of(model, x);
  const Borrowed samples(x, "x", queue ? &*queue : nullptr);
  int32_t* to = nullptr;
  nb::object answer = new_array<int32_t>({samples.samples()}, to);
  in_parts(samples.array(), [&](const Array& part, int64_t first) {
    const int64_t count = part.shape.empty() ? 0 : part.shape[0];
    model.predict_classes(part, {to + first, size_t(count)});
  });
  return answer;
}

// Lets Python handle signals, so that Ctrl-C ends a long call of the library.
void handle_signals() {
  const nb::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

nb::dict evaluate(Model& model, nb::handle x, nb::handle y, nb::handle weights) {
  about_to_compute();
  const std::optional<GpuQueue> queue = queue_of(model, x);
  const BorrowedSamples samples(x, y, weights, {}, queue ? &*queue : nullptr);
  Evaluation scores;
  {
    const nb::gil_scoped_release unlocked;
    scores = model.evaluate(samples.samples(), handle_signals);
  }
  return as_dict(scores);
}

nb::list layers(const Model& model) {
  nb::list all;
  for (const LayerInfo& each : model.layers()) {
    all.append(nb::make_tuple(each.path, each.type, nb::tuple(nb::cast(each.output_shape)),
                              each.parameters));
  }
  return all;
}

nb::list weights(nb::object self, bool copy) {
  nb::list all;
  for (const NamedArray& each : nb::cast<Model&>(self).weights()) {
    all.append(nb::make_tuple(each.name,
                              copy ? copied_array(each.values) : view_array(each.values, self)));
  }
  return all;
}

void set_weights(Model& model, const std::vector<std::pair<std::string, nb::object>>& weights) {
  std::vector<Borrowed> held;
  std::vector<NamedArray> all;
  held.reserve(weights.size());
  for (const auto& [name, object] : weights) {
    held.emplace_back(object, name.c_str());
    if (held.back().array().gpu >= 0) {
      throw nb::value_error((name + ": got an array on cuda:" +
                             std::to_string(held.back().array().gpu) + ", expected one on the CPU")
                                .c_str());
    }
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

nb::tuple to_onnx(const Model& model, int64_t opset, bool half_weights) {
  std::vector<std::string> warnings;
  const std::string file = model.to_onnx(opset, half_weights, &warnings);
  return nb::make_tuple(nb::bytes(file.data(), file.size()), warnings);
}

}  // namespace

void add_model(nb::module_& module) {
  using namespace nb::literals;
  const auto device = "auto";
  nb::class_<Model>(module, "Model", "A network as the library has it; ridgeline.Model holds one.")
      .def_static(
          "create",
          [](const std::string& toml, const std::vector<int64_t>& shape, const std::string& device,
             int threads, bool tune, int64_t batch) {
            return Model::create(Config::parse(toml), shape,
                                 device_options(device, threads, tune, batch));
          },
          "toml"_a, "shape"_a, "device"_a = device, "threads"_a = 0, "tune"_a = true,
          "batch"_a = 256)
      .def_static(
          "load",
          [](const std::filesystem::path& path, const std::string& device, int threads, bool tune,
             int64_t batch) {
            return Model::load(path, device_options(device, threads, tune, batch));
          },
          "path"_a, "device"_a = device, "threads"_a = 0, "tune"_a = true, "batch"_a = 256)
      .def_static(
          "from_onnx",
          [](const std::filesystem::path& path, const std::vector<int64_t>& shape, bool classes,
             const std::string& device, int threads, bool tune, int64_t batch) {
            return Model::from_onnx(path, shape, classes,
                                    device_options(device, threads, tune, batch));
          },
          "path"_a, "shape"_a, "classes"_a, "device"_a = device, "threads"_a = 0, "tune"_a = true,
          "batch"_a = 256)
      .def_static("from_bytes", &from_bytes, "file"_a, "device"_a = device, "threads"_a = 0,
                  "tune"_a = true, "batch"_a = 256)
      .def("to_bytes", &to_bytes)
      .def("to_onnx", &to_onnx, "opset"_a = 17, "half_weights"_a = false)
      .def("save", &Model::save, "path"_a)
      .def("config", &Model::config)
      .def("input_shape", &Model::input_shape)
      .def("outputs", &Model::outputs)
      .def("classes", &Model::classes)
      .def("layers", &layers)
      .def("predict", &predict, "x"_a, "out"_a = nb::none())
      .def("predict_classes", &predict_classes, "x"_a)
      .def("evaluate", &evaluate, "x"_a, "y"_a, "weights"_a.none())
      .def("weights", &weights, "copy"_a = true)
      .def("weights_changed", &Model::weights_changed)
      .def("set_weights", &set_weights, "weights"_a)
      .def("stream", [](Model& self) { return reinterpret_cast<intptr_t>(self.queue().stream()); })
      .def(
          "let_wait",
          [](Model& self, intptr_t stream) {
            self.queue().let_wait(reinterpret_cast<void*>(stream));
          },
          "stream"_a)
      .def(
          "download",
          [](Model& self, intptr_t address, const std::vector<int64_t>& shape) {
            return downloaded(self.queue(), address, shape);
          },
          "address"_a, "shape"_a)
      .def("synchronize", [](Model& self) { self.queue().synchronize(); });
}

}  // namespace ridgeline::python
