#include "python/src/compute.h"

#include <pthread.h>

namespace ridgeline::python {
namespace {

// Threads do not survive in forked children, so code that had started some would wait for them
// forever there.
bool computed = false, orphaned = false;

// GPU memory and the object whose queue owns it.
struct GpuMemory {
  GpuQueue queue;
  void* data;
  nb::object owner;
};

nb::object on_gpu(const GpuQueue& queue, std::span<const int64_t> shape, nb::handle owner,
                  float*& data) {
  size_t count = 1;
  for (const int64_t extent : shape) count *= size_t(extent);
  data = static_cast<float*>(queue.allocate(std::max<size_t>(1, count) * sizeof(float)));
  auto* memory = new GpuMemory{queue, data, nb::borrow(owner)};
  const nb::capsule keeper(memory, [](void* p) noexcept {
    auto* held = static_cast<GpuMemory*>(p);
    held->queue.release(held->data);
    delete held;
  });
  const std::vector<size_t> extents(shape.begin(), shape.end());
  const nb::object raw =
      nb::cast(nb::ndarray<float>(data, extents.size(), extents.data(), keeper, nullptr,
                                  nb::dtype<float>(), nb::device::cuda::value, queue.gpu()));
  nb::list dims;
  for (const int64_t extent : shape) dims.append(extent);
  return nb::module_::import_("ridgeline._arrays")
      .attr("DeviceArray")(raw, reinterpret_cast<intptr_t>(data), nb::tuple(dims), queue.gpu(),
                           owner);
}

}  // namespace

void about_to_compute() {
  if (orphaned) {
    throw Error(ErrorKind::usage,
                "this process was forked from one in which ridgeline had computed, and its threads "
                "are not here; start it with multiprocessing's \"spawn\", or compute only after "
                "the fork");
  }
  computed = true;
}

void watch_forks() {
  pthread_atfork(nullptr, nullptr, [] { orphaned = computed; });
}

DeviceOptions device_options(const std::string& device, int threads, bool tune, int64_t batch) {
  DeviceOptions options;
  options.device = device;
  options.threads = threads;
  options.tune = tune;
  options.batch = batch;
  return options;
}

nb::object downloaded(const GpuQueue& queue, intptr_t address, const std::vector<int64_t>& shape) {
  float* data = nullptr;
  nb::object made = new_array<float>(shape, data);
  size_t count = 1;
  for (const int64_t extent : shape) count *= size_t(extent);
  const nb::gil_scoped_release unlocked;
  queue.download(data, reinterpret_cast<const void*>(address), count * sizeof(float));
  return made;
}

Answers::Answers(nb::handle out, std::span<const int64_t> shape, int gpu, nb::handle owner,
                 const GpuQueue* queue) {
  if (!out.is_none()) {
    held_.emplace(out, "out", queue, true);
    check_writable(*held_, "out", "float32", shape, gpu);
    data_ = static_cast<float*>(held_->view().data);
    object_ = nb::borrow(out);
  } else if (gpu >= 0) {
    object_ = on_gpu(*queue, shape, owner, data_);
  } else {
    object_ = new_array<float>({shape.begin(), shape.end()}, data_);
  }
}

}  // namespace ridgeline::python
