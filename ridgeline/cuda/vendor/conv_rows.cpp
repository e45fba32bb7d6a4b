#include "ridgeline/cuda/row.h"
#include "ridgeline/cuda/vendor/rows.h"

#ifdef RIDGELINE_HAVE_CUDNN

#include <array>

#include "ridgeline/cuda/plain/conv.h"
#include "ridgeline/cuda/plain/geometry.h"
#include "ridgeline/cuda/vendor/cudnn_api.h"

namespace ridgeline::cuda {
namespace {

constexpr int kProposals = 3;
constexpr size_t kMostWorkspace = size_t{1} << 30;
constexpr size_t kWorkspaceAlignment = 256;  // an arena's pieces start at multiples of 64

enum class Pass { forward, data, filter };

void check_cudnn(const Cudnn& library, cudnnStatus_t status, const char* what) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  throw_error(ErrorKind::device, "{}: cuDNN reports {}", what, library.api().status_text(status));
}

cudnnDataType_t type_of(DType dtype) {
  return dtype == DType::fp64   ? CUDNN_DATA_DOUBLE
         : dtype == DType::fp32 ? CUDNN_DATA_FLOAT
         : dtype == DType::bf16 ? CUDNN_DATA_BFLOAT16
                                : CUDNN_DATA_HALF;
}

// cuDNN's words for one convolution.
class Descriptors {
 public:
  Descriptors(const Cudnn& library, const Conv2dShape& shape, int64_t n, DType dtype,
              Precision precision)
      : library_(library) {
    const auto& api = library.api();
    const auto ok = [&](cudnnStatus_t status) { check_cudnn(library, status, "conv2d"); };
    const auto type = type_of(dtype);
    const Image in = shape.in, out = shape.out();
    const auto set = [&](cudnnTensorDescriptor_t& tensor, int items, const Image& image) {
      ok(api.tensor_create(&tensor));
      ok(api.tensor_set(tensor, CUDNN_TENSOR_NCHW, type, items, int(image.c), int(image.h),
                        int(image.w)));
    };
    set(x_, int(n), in);
    set(y_, int(n), out);
    set(b_, 1, Image{out.c, 1, 1});
    ok(api.filter_create(&w_));
    ok(api.filter_set(w_, type, CUDNN_TENSOR_NCHW, int(shape.k), int(shape.group_in()),
                      int(shape.window.h.kernel), int(shape.window.w.kernel)));
    const Slide &down = shape.window.h, &right = shape.window.w;
    ok(api.conv_create(&conv_));
    ok(api.conv_set(conv_, int(down.pad), int(right.pad), int(down.stride), int(right.stride),
                    int(down.dilation), int(right.dilation), CUDNN_CROSS_CORRELATION,
                    dtype == DType::fp64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT));
    // Without this fp32 factors would be rounded to tf32.
    const bool exact = dtype == DType::fp64 || precision == Precision::fp32;
    ok(api.conv_set_math(conv_, exact ? CUDNN_FMA_MATH : CUDNN_TENSOR_OP_MATH));
    ok(api.conv_set_groups(conv_, int(shape.groups)));
  }
  ~Descriptors() {
    const auto& api = library_.api();
    for (const auto tensor : {x_, y_, b_}) api.tensor_destroy(tensor);
    api.filter_destroy(w_);
    api.conv_destroy(conv_);
  }
  Descriptors(const Descriptors&) = delete;
  Descriptors& operator=(const Descriptors&) = delete;

  const Cudnn& library() const { return library_; }
  cudnnTensorDescriptor_t x() const { return x_; }
  cudnnTensorDescriptor_t y() const { return y_; }
  cudnnTensorDescriptor_t b() const { return b_; }
  cudnnFilterDescriptor_t w() const { return w_; }
  cudnnConvolutionDescriptor_t conv() const { return conv_; }

 private:
  const Cudnn& library_;
  cudnnTensorDescriptor_t x_ = nullptr, y_ = nullptr, b_ = nullptr;
  cudnnFilterDescriptor_t w_ = nullptr;
  cudnnConvolutionDescriptor_t conv_ = nullptr;
};

struct Algorithm {
  int number = 0;
  size_t workspace = 0;
};

// A transform's error is not that of a sum of products: FFT and Winograd stay out.
bool sums_products(Pass pass, int number) {
  switch (pass) {
    case Pass::forward:
      return number <= CUDNN_CONVOLUTION_FWD_ALGO_DIRECT;
    case Pass::data:
      return number == CUDNN_CONVOLUTION_BWD_DATA_ALGO_1;
    case Pass::filter:
      return number == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1;
  }
  return false;
}

// The heuristics' proposals, best first, as far as we can take them.
std::vector<Algorithm> algorithms(const Descriptors& d, Pass pass) {
  const auto& api = d.library().api();
  const auto handle = static_cast<cudnnHandle_t>(d.library().handle());
  std::vector<Algorithm> list;
  const auto take = [&](const auto& results, int count) {
    for (int i = 0; i < count; ++i) {
      const auto& each = results[size_t(i)];
      if (each.status == CUDNN_STATUS_SUCCESS && each.determinism == CUDNN_DETERMINISTIC &&
          each.memory <= kMostWorkspace && sums_products(pass, int(each.algo))) {
        list.push_back({int(each.algo), each.memory});
      }
    }
  };
  constexpr int kMost = 16;
  int count = 0;
  if (pass == Pass::forward) {
    std::array<cudnnConvolutionFwdAlgoPerf_t, kMost> results;
    if (api.forward_algorithms(handle, d.x(), d.w(), d.conv(), d.y(), kMost, &count,
                               results.data()) == CUDNN_STATUS_SUCCESS) {
      take(results, count);
    }
  } else if (pass == Pass::data) {
    std::array<cudnnConvolutionBwdDataAlgoPerf_t, kMost> results;
    if (api.data_algorithms(handle, d.w(), d.y(), d.conv(), d.x(), kMost, &count, results.data()) ==
        CUDNN_STATUS_SUCCESS) {
      take(results, count);
    }
  } else {
    std::array<cudnnConvolutionBwdFilterAlgoPerf_t, kMost> results;
    if (api.filter_algorithms(handle, d.x(), d.y(), d.conv(), d.w(), kMost, &count,
                              results.data()) == CUDNN_STATUS_SUCCESS) {
      take(results, count);
    }
  }
  return list;
}

Cover cover(const Rest& rest, const Conv2dShape& shape, int64_t n, const Values& values, Pass pass,
            int proposal) {
  const Cudnn& library = cuda_runtime(rest.runtime).cudnn();
  if (!library.refusal().empty()) return Cover::no(library.refusal());
  std::string reason = refuse_floats(values);
  // Seen with cuDNN 9.19 on sm_90: CUDNN_STATUS_BAD_PARAM from algorithms that it had proposed.
  if (size_of(values[0].dtype) == 2) reason = "cuDNN proposes what it does not compute in halves";
  if (reason.empty()) {
    reason = refuse_large({n, shape.in.numel(), shape.out().numel(), shape.weight().numel()});
  }
  if (!reason.empty()) return Cover::no(reason);
  const Descriptors d(library, shape, n, values[0].dtype, rest.program.precision);
  const auto list = algorithms(d, pass);
  if (size_t(proposal) >= list.size()) {
    return Cover::no(fmt::format("cuDNN proposes only {} algorithms", list.size()));
  }
  return cover_unless({}, 1, list[size_t(proposal)].workspace + kWorkspaceAlignment);
}

void* aligned(std::byte* workspace) {
  const auto at = reinterpret_cast<uintptr_t>(workspace);
  return workspace +
         ((at + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment - at);
}

// What a prepared pass needs when it runs.
struct Prepared {
  std::shared_ptr<Descriptors> d;
  Algorithm algorithm;
  void* workspace = nullptr;
  double one = 1, zero = 0;  // alpha and beta: double for fp64, else float
  float one_f = 1, zero_f = 0;
  bool wide = false;

  const void* alpha() const { return wide ? static_cast<const void*>(&one) : &one_f; }
  const void* beta() const { return wide ? static_cast<const void*>(&zero) : &zero_f; }
};

Prepared prepare_pass(const Span& span, const Binding& binding, const Conv2dShape& shape, int64_t n,
                      DType dtype, Pass pass, int proposal) {
  Prepared prepared;
  prepared.d = std::make_shared<Descriptors>(cuda_runtime(binding.runtime()).cudnn(), shape, n,
                                             dtype, span.program.precision);
  const auto list = algorithms(*prepared.d, pass);
  if (size_t(proposal) >= list.size()) {
    throw_error(ErrorKind::device, "{}: cuDNN no longer proposes algorithm {}",
                describe(span.op(0)), proposal);
  }
  prepared.algorithm = list[size_t(proposal)];
  prepared.workspace = aligned(binding.workspace());
  prepared.wide = dtype == DType::fp64;
  return prepared;
}

// A step of calls(api, handle), which returns the last status; `after` follows it on the stream.
template <typename Calls, typename After>
std::unique_ptr<Step> cudnn_step(const Span& span, const Binding& binding, const Prepared& prepared,
                                 Calls calls, After after) {
  const std::string what = describe(span.op(0));
  return launch_step(binding, what, [=](cudaStream_t stream) {
    const Cudnn& library = prepared.d->library();
    const auto handle = static_cast<cudnnHandle_t>(library.handle());
    check_cudnn(library, library.api().set_stream(handle, stream), what.c_str());
    check_cudnn(library, calls(library.api(), handle, prepared), what.c_str());
    return after(stream);
  });
}

constexpr auto kNothing = [](cudaStream_t) { return cudaSuccess; };

Cover covers_conv(const Rest& rest, int proposal) {
  const auto* op = rest.get<Conv2d>(0);
  if (op == nullptr) return no_such_op(Conv2d::kName);
  return cover(rest, op->shape, op->n(), {op->x, op->w, op->b, op->y}, Pass::forward, proposal);
}

std::unique_ptr<Step> prepare_conv(const Span& span, const Binding& binding, int proposal) {
  const auto& op = span.get<Conv2d>(0);
  const Prepared prepared =
      prepare_pass(span, binding, op.shape, op.n(), op.x.dtype, Pass::forward, proposal);
  return cudnn_step(
      span, binding, prepared,
      [x = binding.read(op.x).data, w = binding.read(op.w).data, b = binding.read(op.b).data,
       y = binding.write(op.y).data](const Cudnn::Api& api, cudnnHandle_t handle,
                                     const Prepared& p) {
        const auto algorithm = cudnnConvolutionFwdAlgo_t(p.algorithm.number);
        const cudnnStatus_t status =
            api.forward(handle, p.alpha(), p.d->x(), x, p.d->w(), w, p.d->conv(), algorithm,
                        p.workspace, p.algorithm.workspace, p.beta(), p.d->y(), y);
        if (status != CUDNN_STATUS_SUCCESS || b == nullptr) return status;
        return api.add_tensor(handle, p.alpha(), p.d->b(), b, p.alpha(), p.d->y(), y);
      },
      kNothing);
}

Cover covers_grad_x(const Rest& rest, int proposal) {
  const auto* op = rest.get<Conv2dGradX>(0);
  if (op == nullptr) return no_such_op(Conv2dGradX::kName);
  return cover(rest, op->shape, op->n(), {op->dy, op->w, op->dx}, Pass::data, proposal);
}

std::unique_ptr<Step> prepare_grad_x(const Span& span, const Binding& binding, int proposal) {
  const auto& op = span.get<Conv2dGradX>(0);
  const Prepared prepared =
      prepare_pass(span, binding, op.shape, op.n(), op.dy.dtype, Pass::data, proposal);
  return cudnn_step(
      span, binding, prepared,
      [dy = binding.read(op.dy).data, w = binding.read(op.w).data, dx = binding.write(op.dx).data](
          const Cudnn::Api& api, cudnnHandle_t handle, const Prepared& p) {
        const auto algorithm = cudnnConvolutionBwdDataAlgo_t(p.algorithm.number);
        return api.backward_data(handle, p.alpha(), p.d->w(), w, p.d->y(), dy, p.d->conv(),
                                 algorithm, p.workspace, p.algorithm.workspace, p.beta(), p.d->x(),
                                 dx);
      },
      kNothing);
}

Cover covers_grad_w(const Rest& rest, int proposal) {
  const auto* op = rest.get<Conv2dGradW>(0);
  if (op == nullptr) return no_such_op(Conv2dGradW::kName);
  return cover(rest, op->shape, op->n(), {op->x, op->dy, op->dw, op->db}, Pass::filter, proposal);
}

// The bias gradient is summed by a kernel of ours, in the accumulating type.
std::unique_ptr<Step> prepare_grad_w(const Span& span, const Binding& binding, int proposal) {
  const auto& op = span.get<Conv2dGradW>(0);
  const Prepared prepared =
      prepare_pass(span, binding, op.shape, op.n(), op.x.dtype, Pass::filter, proposal);
  return dispatch_device_float(op.x.dtype, [&](auto type) {
    using T = decltype(type);
    const LooseOut<T> db{binding.write(op.db).data};
    return cudnn_step(
        span, binding, prepared,
        [x = binding.read(op.x).data, dy = binding.read(op.dy).data,
         dw = binding.write(op.dw).data](const Cudnn::Api& api, cudnnHandle_t handle,
                                         const Prepared& p) {
          const auto algorithm = cudnnConvolutionBwdFilterAlgo_t(p.algorithm.number);
          return api.backward_filter(handle, p.alpha(), p.d->x(), x, p.d->y(), dy, p.d->conv(),
                                     algorithm, p.workspace, p.algorithm.workspace, p.beta(),
                                     p.d->w(), dw);
        },
        [db, dy = binding.read(op.dy).as<T>(),
         g = geometry_of(op.shape, op.n())](cudaStream_t stream) {
          if (!db) return cudaSuccess;
          return launch_conv2d_grad_b<T>(g, dy, db, stream);
        });
  });
}

}  // namespace

Table cudnn_rows() {
  struct Family {
    const char* name;
    Cover (*covers)(const Rest&, int proposal);
    std::unique_ptr<Step> (*prepare)(const Span&, const Binding&, int proposal);
    int proposals;
  };
  const Family families[] = {{"conv2d", covers_conv, prepare_conv, kProposals},
                             {"conv2d_grad_x", covers_grad_x, prepare_grad_x, 1},
                             {"conv2d_grad_w", covers_grad_w, prepare_grad_w, 1}};
  Table table;
  for (const Family& family : families) {
    for (int proposal = 0; proposal < family.proposals; ++proposal) {
      table.push_back(cuda_row(
          fmt::format("cuda.{}.cudnn.{}", family.name, proposal),
          [family, proposal](const Rest& rest) { return family.covers(rest, proposal); },
          [family, proposal](const Span& span, const Binding& binding) {
            return family.prepare(span, binding, proposal);
          }));
    }
  }
  return table;
}

}  // namespace ridgeline::cuda

#else

namespace ridgeline::cuda {
Table cudnn_rows() { return {}; }
}  // namespace ridgeline::cuda

#endif
