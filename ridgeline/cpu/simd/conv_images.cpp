#include "ridgeline/cpu/simd/conv_images.h"

#include <algorithm>
#include <atomic>
#include <type_traits>

#include "ridgeline/cpu/simd/winograd1d_conv2d.h"
#include "ridgeline/ops/winograd1d.h"

namespace ridgeline::cpu::simd {
namespace {

// Returns the outputs of a Winograd tile; 0 if direct convolution is the better choice.
int64_t winograd1d_outputs(const DirectShape& s) {
  const int64_t products =
      winograd1d_products(s.c, {s.kernel_h, s.pad_h, s.h}, {s.kernel_w, s.pad_w, s.w});
  if (products >= winograd1d_fewest_of_four(s.kernel_w)) return 4;
  return products >= kWinograd1dFewestOfTwo && s.kernel_w > 3 ? 2 : 0;
}

Winograd1dConv2dShape winograd1d_shape(const DirectShape& shape) {
  return {shape, winograd1d_outputs(shape)};
}

size_t filter_elements(const ImageConv& conv) {
  return conv.algorithm == ConvAlgorithm::winograd1d
             ? winograd1d_shape(conv.shape).filter_elements()
             : direct_filter_elements(conv.shape);
}

template <typename T>
size_t thread_elements(const ImageConv& conv) {
  return conv.algorithm == ConvAlgorithm::winograd1d
             ? winograd1d_shape(conv.shape).thread_elements()
             : direct_thread_elements<T>(conv.shape);
}

// A convolution bound to its memory.
template <typename T>
struct Bound {
  ImageConv conv;
  const T *w, *bias;
  T* filters;

  // Arranges a thread's part of the filters.
  void arrange(int thread, int threads) const {
    if constexpr (std::is_same_v<T, float>) {
      if (conv.algorithm == ConvAlgorithm::winograd1d) {
        return winograd1d_conv2d_functions().filters(
            winograd1d_shape(conv.shape), w, filters,
            split(direct_blocks(conv.shape.k), thread, threads));
      }
    }
    if (thread == 0) arrange_filters(conv.shape, w, conv.flipped, filters);
  }
  void run(const T* x, T* y, T* scratch) const {
    if constexpr (std::is_same_v<T, float>) {
      if (conv.algorithm == ConvAlgorithm::winograd1d) {
        return winograd1d_conv2d_functions().image(
            {winograd1d_shape(conv.shape), filters, bias, conv.act}, x, y, scratch);
      }
    }
    direct_functions<T>().image({conv.shape, filters, bias, conv.act}, x, y, scratch);
  }
};

// The scratch of one thread: that of the largest convolution, and two images between convolutions.
template <typename T>
struct ThreadScratch {
  T *scratch, *between[2];
};

template <typename T>
class ConvImages final : public Step {
 public:
  ConvImages(const std::vector<ImageConv>& chain, int threads, std::byte* base) {
    Scratch memory(base);
    size_t scratch = 0;
    int64_t between[2] = {};
    for (size_t i = 0; i < chain.size(); ++i) {
      convs_.push_back({chain[i], nullptr, nullptr, memory.take<T>(filter_elements(chain[i]))});
      filters_ += filter_elements(chain[i]);
      scratch = std::max(scratch, thread_elements<T>(chain[i]));
      if (i + 1 < chain.size()) between[i % 2] = std::max(between[i % 2], chain[i].out());
    }
    for (int t = 0; t < threads; ++t) {
      ThreadScratch<T>& own = own_.emplace_back();
      own.scratch = memory.take<T>(scratch);
      for (const int k : {0, 1}) own.between[k] = memory.take<T>(size_t(between[k]));
    }
    bytes_ = memory.bytes();
  }
  size_t bytes() const { return bytes_; }

  void bind(const Value& x, const Value& y, const Binding& binding) {
    for (Bound<T>& each : convs_) {
      each.w = binding.read(each.conv.w).template as<T>();
      each.bias = binding.read(each.conv.b).template as<T>();
    }
    n_ = x.shape[0];
    x_ = binding.read(x).template as<T>();
    y_ = binding.write(y).template as<T>();
    pool_ = &cpu_runtime(binding.runtime()).pool();
  }

  void run() override {
    // One image is one thread's. With few filters to arrange, another has nothing worth its waking.
    if (n_ == 1 && filters_ < kFewFilters) {
      for (const Bound<T>& each : convs_) each.arrange(0, 1);
      return pass(0, own_.front());
    }
    next_ = 0;
    pool_->run([&](int thread) {
      for (const Bound<T>& each : convs_) each.arrange(thread, pool_->size());
      pool_->barrier();
      for (int64_t i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < n_;) {
        pass(i, own_[size_t(thread)]);
      }
    });
  }

 private:
  void pass(int64_t image, const ThreadScratch<T>& own) const {
    const T* x = x_ + image * convs_.front().conv.in();
    for (size_t i = 0; i < convs_.size(); ++i) {
      const bool last = i + 1 == convs_.size();
      T* y = last ? y_ + image * convs_.back().conv.out() : own.between[i % 2];
      convs_[i].run(x, y, own.scratch);
      x = y;
    }
  }

  static constexpr size_t kFewFilters = 16384;  // about two microseconds of arranging

  std::vector<Bound<T>> convs_;
  std::vector<ThreadScratch<T>> own_;
  size_t filters_ = 0, bytes_ = 0;
  int64_t n_ = 0;
  const T* x_ = nullptr;
  T* y_ = nullptr;
  ThreadPool* pool_ = nullptr;
  std::atomic<int64_t> next_{0};
};

}  // namespace

std::string refuse_winograd1d(const ImageConv& conv, DType dtype) {
  const DirectShape& s = conv.shape;
  if (dtype != DType::fp32) return "takes fp32 only";
  if (s.kernel_w != 3 && s.kernel_w != 5 && s.kernel_w != 7) {
    return "takes filters of 3, 5 or 7 columns";
  }
  if (winograd1d_outputs(s) == 0) return "too few products in a sum";
  return {};
}

size_t conv_images_workspace(const std::vector<ImageConv>& chain, DType dtype, int threads) {
  return with_type(dtype, [&](auto zero) {
    return ConvImages<decltype(zero)>(chain, threads, nullptr).bytes();
  });
}

std::unique_ptr<Step> conv_images_step(const std::vector<ImageConv>& chain, const Value& x,
                                       const Value& y, const Binding& binding) {
  return with_type(x.dtype, [&](auto zero) -> std::unique_ptr<Step> {
    const int threads = cpu_runtime(binding.runtime()).pool().size();
    auto step = std::make_unique<ConvImages<decltype(zero)>>(chain, threads, binding.workspace());
    step->bind(x, y, binding);
    return step;
  });
}

}  // namespace ridgeline::cpu::simd
