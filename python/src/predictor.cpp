#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <chrono>

#include "python/src/compute.h"

namespace ridgeline::python {
namespace {

// A prepared network for one caller at a time.
struct Handle {
  Predictor predictor;
  GpuQueue queue;
  std::vector<int64_t> shape;  // of one sample
  const char* type;
  std::atomic<bool> busy{false};
  // The output memory of the last call. Its buffer is held, so that it stays in place, and a loop
  // that passes the same array again need not acquire it again.
  std::optional<Held> last_out;
  PyObject* last_object = nullptr;

  float* known_out(nb::handle out, std::span<const int64_t> extents) const {
    if (!last_out || out.ptr() != last_object) return nullptr;
    const View& view = last_out->view();
    const bool same = std::equal(extents.begin(), extents.end(), view.shape.begin());
    return same ? static_cast<float*>(view.data) : nullptr;
  }
  float* take_out(nb::handle out, std::span<const int64_t> extents) {
    Held held(out, "out", &queue, true);
    check_writable(held, "out", "float32", extents, -1);
    last_out.reset();
    last_out.emplace(std::move(held));
    last_object = out.ptr();
    return static_cast<float*>(last_out->view().data);
  }

  Handle(const Model& model, const PredictorOptions& options)
      : predictor(model, options),
        queue(predictor.queue()),
        shape(predictor.input_shape()),
        type(name_of(predictor.input_type())) {}
  static const char* name_of(ArrayType type) {
    return type == ArrayType::uint8 ? "uint8" : type == ArrayType::int32 ? "int32" : "float32";
  }
};

template <typename From, typename To>
void convert_codes(const void* from, std::span<To> to, int64_t codes) {
  for (size_t i = 0; i < to.size(); ++i) {
    const From code = static_cast<const From*>(from)[i];
    if (code < 0 || int64_t(code) >= codes) {
      throw nb::value_error(("x: got the code " + std::to_string(code) + ", expected codes below " +
                             std::to_string(codes))
                                .c_str());
    }
    to[i] = To(code);
  }
}

// Returns codes that were given as other integers in the handle's type.
template <typename To>
std::vector<To> codes_as(const Array& array, int64_t codes) {
  int64_t count = 1;
  for (const int64_t extent : array.shape) count *= extent;
  std::vector<To> made(static_cast<size_t>(count));
  if (array.type == ArrayType::int64) convert_codes<int64_t>(array.data, std::span(made), codes);
  if (array.type == ArrayType::int32) convert_codes<int32_t>(array.data, std::span(made), codes);
  if (array.type == ArrayType::uint8) convert_codes<uint8_t>(array.data, std::span(made), codes);
  return made;
}

// Keeps out a second thread, which would compute in the same memory.
class Turn {
 public:
  explicit Turn(Handle& handle) : handle_(handle) {
    if (handle_.busy.exchange(true, std::memory_order_acquire)) {
      throw Error(ErrorKind::usage,
                  "the handle is computing in another thread; make one for each thread by "
                  "Model.compile()");
    }
  }
  ~Turn() { handle_.busy.store(false, std::memory_order_release); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  Handle& handle_;
};

bool converts(const Handle& handle, const View& view) {
  const bool integers = view.type == "int64" || view.type == "int32" || view.type == "uint8";
  return handle.predictor.codes() > 0 && view.gpu < 0 && integers && view.type != handle.type;
}

// Accepts samples only in the network's own type (codes in any type of integers) and shape.
void check_samples(const Handle& handle, const View& view) {
  if (view.type != handle.type && !converts(handle, view)) {
    throw nb::type_error(("x: got an array of " + view.type + ", expected " + handle.type).c_str());
  }
  const bool fits = view.rank == int(handle.shape.size()) + 1 &&
                    std::equal(handle.shape.begin(), handle.shape.end(), view.shape.begin() + 1);
  if (!fits || view.shape[0] < 1 || view.shape[0] > handle.predictor.batch()) {
    std::vector<int64_t> most{handle.predictor.batch()};
    most.insert(most.end(), handle.shape.begin(), handle.shape.end());
    throw nb::value_error(
        ("x: got shape " + view.shape_text() + ", expected at most " + shape_text(most)).c_str());
  }
  if (view.gpu >= 0 && view.gpu != handle.queue.gpu()) {
    throw nb::value_error(("x: got an array on cuda:" + std::to_string(view.gpu) +
                           ", expected one on the device of the handle")
                              .c_str());
  }
}

void compute(Handle& handle, const View& view, const void* samples, float* out) {
  const Turn turn(handle);
  const nb::gil_scoped_release unlocked;
  if (view.gpu >= 0) {
    handle.predictor.run_on_gpu(samples, view.shape[0], out);
  } else {
    handle.predictor.run(samples, view.shape[0], out);
  }
}

nb::object run(nb::handle self, nb::handle x, nb::handle out) {
  about_to_compute();
  Handle& handle = nb::cast<Handle&>(self);
  const Held held(x, "x", &handle.queue, false);
  const View& view = held.view();
  check_samples(handle, view);
  const int64_t shape[] = {view.shape[0], handle.predictor.outputs()};
  if (converts(handle, view)) {
    const Borrowed ordered(x, "x", &handle.queue);
    const int64_t codes = handle.predictor.codes();
    Answers answers(out, shape, view.gpu, self, &handle.queue);
    if (handle.predictor.input_type() == ArrayType::uint8) {
      compute(handle, view, codes_as<uint8_t>(ordered.array(), codes).data(), answers.data());
    } else {
      compute(handle, view, codes_as<int32_t>(ordered.array(), codes).data(), answers.data());
    }
    return answers.object();
  }
  if (!out.is_none() && view.gpu < 0 && view.row_major()) {
    float* to = handle.known_out(out, shape);
    compute(handle, view, view.data, to != nullptr ? to : handle.take_out(out, shape));
    return nb::borrow(out);
  }
  Answers answers(out, shape, view.gpu, self, &handle.queue);
  if (view.row_major()) {
    compute(handle, view, view.data, answers.data());
  } else {
    const Borrowed ordered(x, "x", &handle.queue);
    compute(handle, view, ordered.array().data, answers.data());
  }
  return answers.object();
}

// The time of a call without Python, to measure Python's overhead.
double seconds_a_call(Handle& handle, nb::handle x, nb::handle out, int64_t calls) {
  about_to_compute();
  const Held held(x, "x", &handle.queue, false);
  check_samples(handle, held.view());
  const int64_t shape[] = {held.view().shape[0], handle.predictor.outputs()};
  const Answers answers(out, shape, -1, nb::none(), nullptr);
  const Turn turn(handle);
  const nb::gil_scoped_release unlocked;
  const auto begin = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < calls; ++i) {
    handle.predictor.run(held.view().data, held.view().shape[0], answers.data());
  }
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  return taken.count() / double(std::max<int64_t>(1, calls));
}

}  // namespace

void add_predictor(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<Handle>(
      module, "Predictor",
      "A prepared network: predictor(x, out=None) gives [n, outputs], probabilities of "
      "classes or values, for at most `batch` samples. One call at a time.")
      .def(
          "__init__",
          [](Handle* self, const Model& model, int64_t batch, const std::string& device,
             int threads, bool tune) {
            about_to_compute();
            const nb::gil_scoped_release unlocked;
            new (self) Handle(model, {batch, device, threads, tune});
          },
          "model"_a, "batch"_a = 1, "device"_a = "auto", "threads"_a = 1, "tune"_a = true)
      .def("__call__", &run, "x"_a.none(), "out"_a = nb::none(),
           "Answers for samples x; they are written to `out` if that is given.")
      .def("seconds_a_call", &seconds_a_call, "x"_a, "out"_a, "calls"_a,
           "The mean time of so many calls made from C++, to measure what Python adds.")
      .def("__repr__",
           [](const Handle& self) {
             return "Predictor(batch=" + std::to_string(self.predictor.batch()) +
                    ", input_shape=" + shape_text(self.shape) +
                    ", outputs=" + std::to_string(self.predictor.outputs()) + ")";
           })
      .def_prop_ro(
          "batch", [](const Handle& self) { return self.predictor.batch(); },
          "The most samples of a call.")
      .def_prop_ro(
          "input_shape", [](const Handle& self) { return nb::tuple(nb::cast(self.shape)); },
          "The shape of one sample.")
      .def_prop_ro(
          "outputs", [](const Handle& self) { return self.predictor.outputs(); },
          "Numbers for one sample.")
      .def(
          "stream",
          [](const Handle& self) { return reinterpret_cast<intptr_t>(self.queue.stream()); },
          "The CUDA stream that it computes on; 0 on a CPU.")
      .def(
          "let_wait",
          [](const Handle& self, intptr_t stream) {
            self.queue.let_wait(reinterpret_cast<void*>(stream));
          },
          "stream"_a, "Makes a CUDA stream wait for the calls made so far.")
      .def(
          "download",
          [](const Handle& self, intptr_t address, const std::vector<int64_t>& shape) {
            return downloaded(self.queue, address, shape);
          },
          "address"_a, "shape"_a, "Copies float32 numbers of its GPU to the host.")
      .def(
          "synchronize", [](const Handle& self) { self.queue.synchronize(); },
          "Returns when the calls made so far are done.");
}

}  // namespace ridgeline::python
