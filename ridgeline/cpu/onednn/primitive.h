#pragma once

#include <omp.h>

#include <dnnl.hpp>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "ridgeline/cpu/runtime.h"
#include "ridgeline/plan/impl.h"

namespace ridgeline::cpu {

using Dim = dnnl::memory::dim;

// oneDNN's view of fp32 matrices in our memory: [rows, columns] with any strides.
inline dnnl::memory::desc matrix(Dim rows, Dim columns, Dim row_stride, Dim column_stride) {
  return {{rows, columns}, dnnl::memory::data_type::f32, {row_stride, column_stride}};
}
inline dnnl::memory::desc matrix(Dim rows, Dim columns) {
  return matrix(rows, columns, columns, 1);
}
inline dnnl::memory::desc transposed(Dim rows, Dim columns) {
  return matrix(rows, columns, 1, rows);
}
inline dnnl::memory::desc vector(Dim size) {
  return {{size}, dnnl::memory::data_type::f32, dnnl::memory::dims{1}};
}

// A primitive with its memory: all made when prepared, run() only executes. Debian's oneDNN brings
// OpenMP's threads, which are told our count whenever it matters: it is a setting of the calling
// thread, and two runtimes may differ.
class PrimitiveStep final : public Step {
 public:
  explicit PrimitiveStep(const Binding& binding)
      : threads_(cpu_runtime(binding.runtime()).pool().size()),
        engine_(dnnl::engine::kind::cpu, 0),
        stream_(engine_) {
    omp_set_num_threads(threads_);
  }

  const dnnl::engine& engine() const { return engine_; }
  void set(dnnl::primitive primitive) { primitive_ = std::move(primitive); }
  void bind(int argument, const dnnl::memory::desc& description, const Tensor& tensor) {
    arguments_.insert({argument, dnnl::memory(description, engine_, tensor.data)});
  }

  void run() override {
    omp_set_num_threads(threads_);
    primitive_.execute(stream_, arguments_);
  }

 private:
  int threads_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::primitive primitive_;
  std::unordered_map<int, dnnl::memory> arguments_;
};

// What oneDNN throws, as our Error with the row's name.
template <typename F>
std::unique_ptr<Step> checked(std::string_view row, F make) {
  try {
    return make();
  } catch (const dnnl::error& error) {
    throw_error(ErrorKind::device, "{}: oneDNN: {}; leave the row out with --except {}", row,
                error.what(), row);
  }
}

}  // namespace ridgeline::cpu
