#include "ridgeline/cuda/libraries/conv_plans.h"

#ifdef RIDGELINE_HAVE_CUDNN

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "ridgeline/core/error.h"
#include "ridgeline/cuda/libraries/cudnn_api.h"

namespace ridgeline::cuda {
namespace {

constexpr size_t kMostWorkspace = size_t{1} << 30;

// The identifiers of the operands in a cuDNN graph.
enum Uid : int64_t { kX = 1, kW, kY, kBias, kAddend, kInner };

// One of cuDNN's descriptors. A failed call leaves it invalid; ok() tells.
class Descriptor {
 public:
  Descriptor(const Cudnn& library, cudnnBackendDescriptorType_t type) : api_(library.api()) {
    keep(api_.backend_create(type, &handle_));
  }
  ~Descriptor() {
    if (handle_ != nullptr) api_.backend_destroy(handle_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  Descriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                  const void* values) {
    if (ok()) keep(api_.backend_set(handle_, name, type, count, values));
    return *this;
  }
  Descriptor& set(cudnnBackendAttributeName_t name, const Descriptor& value) {
    if (!value.ok()) keep(value.status_);
    return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value.handle_);
  }
  Descriptor& set(cudnnBackendAttributeName_t name, int64_t value) {
    return set(name, CUDNN_TYPE_INT64, 1, &value);
  }
  Descriptor& set(cudnnBackendAttributeName_t name, cudnnDataType_t value) {
    return set(name, CUDNN_TYPE_DATA_TYPE, 1, &value);
  }
  Descriptor& set(cudnnBackendAttributeName_t name, const std::array<int64_t, 2>& values) {
    return set(name, CUDNN_TYPE_INT64, 2, values.data());
  }
  Descriptor& set(cudnnBackendAttributeName_t name, const std::array<int64_t, 4>& values) {
    return set(name, CUDNN_TYPE_INT64, 4, values.data());
  }
  Descriptor& set_handle(cudnnBackendAttributeName_t name, const Cudnn& library) {
    const auto handle = static_cast<cudnnHandle_t>(library.handle());
    return set(name, CUDNN_TYPE_HANDLE, 1, &handle);
  }
  Descriptor& finish() {
    if (ok()) keep(api_.backend_finalize(handle_));
    return *this;
  }

  // Reads up to `most` values of an attribute into `values`; returns how many there are.
  int64_t get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t most,
              void* values) const {
    int64_t count = 0;
    if (!ok() ||
        api_.backend_get(handle_, name, type, most, &count, values) != CUDNN_STATUS_SUCCESS) {
      return 0;
    }
    return count;
  }

  bool ok() const { return status_ == CUDNN_STATUS_SUCCESS; }
  cudnnBackendDescriptor_t handle() const { return handle_; }

 private:
  void keep(cudnnStatus_t status) {
    if (ok()) status_ = status;
  }

  const Cudnn::Api& api_;
  cudnnBackendDescriptor_t handle_ = nullptr;
  cudnnStatus_t status_ = CUDNN_STATUS_SUCCESS;
};

using Held = std::shared_ptr<Descriptor>;

cudnnDataType_t type_of(DType dtype) {
  return dtype == DType::fp64   ? CUDNN_DATA_DOUBLE
         : dtype == DType::fp32 ? CUDNN_DATA_FLOAT
         : dtype == DType::bf16 ? CUDNN_DATA_BFLOAT16
                                : CUDNN_DATA_HALF;
}

// The accumulator type.
cudnnDataType_t sums_of(DType dtype) {
  return dtype == DType::fp64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
}

// The ops that follow a convolution in its graph.
enum class Follows { bias, addend, relu };

// The graph of a problem, with everything it consists of.
class Graph {
 public:
  Graph(const Cudnn& library, const ConvProblem& problem) : library_(library), problem_(problem) {
    const Conv2dShape& shape = problem.shape;
    const Image in = shape.in, out = shape.out();
    const auto type = [&](bool written) {
      return type_of(written ? problem.written : problem.dtype);
    };
    const std::array filter{shape.k, shape.group_in(), shape.window.h.kernel,
                            shape.window.w.kernel};
    const std::array image{problem.n, out.c, out.h, out.w};
    const Held x =
        tensor(kX, type(problem.pass == ConvPass::grad_x), {problem.n, in.c, in.h, in.w});
    const Held w = tensor(kW, type(problem.pass == ConvPass::grad_w), filter);
    const Held y = tensor(kY, type(problem.pass == ConvPass::forward), image);
    const bool grad_x = problem.pass == ConvPass::grad_x;
    const std::array written = grad_x ? std::array{problem.n, in.c, in.h, in.w} : image;
    std::vector<Follows> follow;
    if (problem.bias) follow.push_back(Follows::bias);
    if (problem.relu_first) follow.push_back(Follows::relu);
    if (problem.addend) follow.push_back(Follows::addend);
    if (problem.relu) follow.push_back(Follows::relu);
    const Held last = grad_x ? x : problem.pass == ConvPass::forward ? y : w;
    // Between the ops, sums stay in the accumulator type.
    const auto inner = [&](size_t i) {
      return i == follow.size()
                 ? last
                 : tensor(kInner + int64_t(i), sums_of(problem.dtype), written, true);
    };
    const Held first = inner(0);
    add_convolution(grad_x ? first : x, problem.pass == ConvPass::grad_w ? first : w,
                    problem.pass == ConvPass::forward ? first : y);
    Held from = first;
    for (size_t i = 0; i < follow.size(); ++i) {
      const Held to = inner(i + 1);
      add_pointwise(follow[i], from, to, written);
      from = to;
    }
    std::vector<cudnnBackendDescriptor_t> ops;
    for (const Held& op : ops_) ops.push_back(op->handle());
    graph_ = make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    graph_->set_handle(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, library)
        .set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, int64_t(ops.size()),
             ops.data())
        .finish();
  }

  const Descriptor& descriptor() const { return *graph_; }

 private:
  Held make(cudnnBackendDescriptorType_t type) {
    parts_.push_back(std::make_shared<Descriptor>(library_, type));
    return parts_.back();
  }

  Held tensor(int64_t uid, cudnnDataType_t type, const std::array<int64_t, 4>& extents,
              bool inside = false) {
    const auto [n, c, h, w] = extents;
    const std::array first{c * h * w, h * w, w, int64_t{1}};
    const std::array last{c * h * w, int64_t{1}, w * c, c};
    return describe(uid, type, extents, problem_.channels_last ? last : first, inside);
  }

  Held describe(int64_t uid, cudnnDataType_t type, const std::array<int64_t, 4>& extents,
                const std::array<int64_t, 4>& strides, bool inside) {
    const Held tensor = make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    tensor->set(CUDNN_ATTR_TENSOR_UNIQUE_ID, uid)
        .set(CUDNN_ATTR_TENSOR_DATA_TYPE, type)
        .set(CUDNN_ATTR_TENSOR_DIMENSIONS, extents)
        .set(CUDNN_ATTR_TENSOR_STRIDES, strides)
        .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, int64_t{16})
        .set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &inside)
        .finish();
    return tensor;
  }

  void add_convolution(const Held& x, const Held& w, const Held& y) {
    const Slide &down = problem_.shape.window.h, &right = problem_.shape.window.w;
    const std::array pads{down.pad, right.pad}, strides{down.stride, right.stride};
    const std::array dilations{down.dilation, right.dilation};
    const auto mode = CUDNN_CROSS_CORRELATION;
    const Held conv = make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    conv->set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, sums_of(problem_.dtype))
        .set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode)
        .set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, int64_t{2})
        .set(CUDNN_ATTR_CONVOLUTION_DILATIONS, dilations)
        .set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, strides)
        .set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, pads)
        .set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, pads)
        .finish();
    struct Names {
      cudnnBackendDescriptorType_t op;
      cudnnBackendAttributeName_t x, w, y, conv, alpha, beta;
    };
    static constexpr Names kNames[] = {
        {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
        {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
        {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA}};
    const Names& names = kNames[size_t(problem_.pass)];
    const bool wide = problem_.dtype == DType::fp64;
    const double one = 1, zero = 0;
    const float one_f = 1, zero_f = 0;
    const auto number = wide ? CUDNN_TYPE_DOUBLE : CUDNN_TYPE_FLOAT;
    ops_.push_back(make(names.op));
    ops_.back()
        ->set(names.x, *x)
        .set(names.w, *w)
        .set(names.y, *y)
        .set(names.conv, *conv)
        .set(names.alpha, number, 1, wide ? static_cast<const void*>(&one) : &one_f)
        .set(names.beta, number, 1, wide ? static_cast<const void*>(&zero) : &zero_f)
        .finish();
  }

  void add_pointwise(Follows kind, const Held& from, const Held& to,
                     const std::array<int64_t, 4>& extents) {
    const auto mode = kind == Follows::relu ? CUDNN_POINTWISE_RELU_FWD : CUDNN_POINTWISE_ADD;
    const Held function = make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    function->set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode)
        .set(CUDNN_ATTR_POINTWISE_MATH_PREC, sums_of(problem_.dtype))
        .finish();
    const Held op = make(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    op->set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, *function)
        .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, *from);
    const int64_t k = problem_.shape.k;
    if (kind == Follows::bias) {
      op->set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
              *describe(kBias, type_of(*problem_.bias), {1, k, 1, 1}, {k, 1, k, k}, false));
    } else if (kind == Follows::addend) {
      op->set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
              *tensor(kAddend, type_of(problem_.written), extents));
    }
    op->set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, *to).finish();
    ops_.push_back(op);
  }

  const Cudnn& library_;
  const ConvProblem& problem_;
  std::vector<Held> parts_;
  std::vector<Held> ops_;
  Held graph_;
};

// The proposals of the heuristics in one of their modes.
std::vector<Held> proposals(const Cudnn& library, const Graph& graph, cudnnBackendHeurMode_t mode) {
  Descriptor heuristics(library, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph.descriptor())
      .set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode)
      .finish();
  const auto get = [&](int64_t most, void* values) {
    return heuristics.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, most,
                          values);
  };
  std::vector<Held> list;
  std::vector<cudnnBackendDescriptor_t> handles;
  for (int64_t i = get(0, nullptr); i > 0; --i) {
    list.push_back(std::make_shared<Descriptor>(library, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
    handles.push_back(list.back()->handle());
  }
  if (!list.empty()) list.resize(size_t(get(int64_t(list.size()), handles.data())));
  return list;
}

// Observed with cuDNN 9.19: engines for the filter gradient that have the error of a transform
// (17), or truncate factors to tf32 instead of rounding them (68, which is exact for halves),
// without a numerical note that says so.
bool known_as_rough(const ConvProblem& problem, int64_t engine) {
  return problem.pass == ConvPass::grad_w &&
         (engine == 17 || (engine == 68 && size_of(problem.dtype) > 2));
}

// Whether a proposal's results are sums of products of the factors in the required precision, and
// the same every time. A transform (Winograd, FFT) has a different error.
bool sums_products(const Cudnn& library, const Descriptor& proposal, const ConvProblem& problem) {
  Descriptor engine(library, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t handle = engine.handle();
  if (proposal.get(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &handle) != 1) {
    return false;
  }
  int64_t number = 0;
  if (engine.get(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &number) != 1 ||
      known_as_rough(problem, number)) {
    return false;
  }
  std::array<cudnnBackendNumericalNote_t, CUDNN_NUMERICAL_NOTE_TYPE_COUNT> notes;
  const int64_t count = engine.get(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                   int64_t(notes.size()), notes.data());
  return std::all_of(notes.begin(), notes.begin() + count, [&](cudnnBackendNumericalNote_t note) {
    if (note == CUDNN_NUMERICAL_NOTE_TENSOR_CORE) {
      return !(problem.exact && problem.dtype == DType::fp32);
    }
    if (note == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) return !problem.repeats;
    return note == CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP;
  });
}

}  // namespace

std::string to_string(const ConvProblem& problem) {
  return fmt::format("pass {}, {} x {}, {} to {}{}{}{}{}{}{}{}", int(problem.pass), problem.n,
                     problem.shape.attributes(), name(problem.dtype), name(problem.written),
                     problem.bias ? fmt::format(", bias {}", name(*problem.bias)) : "",
                     problem.relu_first ? ", relu" : "", problem.addend ? ", addend" : "",
                     problem.relu ? ", relu" : "", problem.channels_last ? ", channels last" : "",
                     problem.exact ? ", exact" : "", problem.repeats ? "" : ", any order");
}

struct ConvPlans::Parts {
  struct Plan {
    Held descriptor;
    size_t workspace = 0;
  };

  const Cudnn& library;
  ConvProblem problem;
  Graph graph;
  std::vector<Held> left;  // proposals that were not examined yet, the next one last
  std::vector<Plan> plans;

  Parts(const Cudnn& cudnn, const ConvProblem& of)
      : library(cudnn), problem(of), graph(library, problem) {
    for (const auto mode : {CUDNN_HEUR_MODE_FALLBACK, CUDNN_HEUR_MODE_A}) {
      std::vector<Held> list = proposals(library, graph, mode);
      left.insert(left.end(), list.rbegin(), list.rend());
    }
  }

  const Plan* at(int number) {
    while (plans.size() <= size_t(number) && !left.empty()) {
      const Held proposal = left.back();
      left.pop_back();
      if (sums_products(library, *proposal, problem)) build(proposal);
    }
    return size_t(number) < plans.size() ? &plans[size_t(number)] : nullptr;
  }

  // cuDNN may propose engines that it cannot build.
  void build(const Held& proposal) {
    auto plan = std::make_shared<Descriptor>(library, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan->set_handle(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, library)
        .set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, *proposal)
        .finish();
    int64_t bytes = 0;
    if (plan->get(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &bytes) != 1 ||
        size_t(bytes) > kMostWorkspace) {
      return;
    }
    plans.push_back({std::move(plan), size_t(bytes)});
  }
};

ConvPlans::ConvPlans(const Cudnn& library, const ConvProblem& problem)
    : parts_(std::make_shared<Parts>(library, problem)) {}
ConvPlans::~ConvPlans() = default;

std::optional<size_t> ConvPlans::workspace(int number) {
  const Parts::Plan* plan = parts_->at(number);
  if (plan == nullptr) return std::nullopt;
  return plan->workspace;
}

ConvPlans::Call ConvPlans::call(int number, const ConvOperands& operands, void* workspace,
                                const std::string& what) {
  const Parts::Plan* plan = parts_->at(number);
  if (plan == nullptr) {
    throw_error(ErrorKind::device, "{}: cuDNN no longer proposes way {}", what, number);
  }
  std::vector<int64_t> uids{kX, kW, kY};
  std::vector<const void*> data{operands.x, operands.w, operands.y};
  if (parts_->problem.bias) {
    uids.push_back(kBias);
    data.push_back(operands.bias);
  }
  if (parts_->problem.addend) {
    uids.push_back(kAddend);
    data.push_back(operands.addend);
  }
  auto pack = std::make_shared<Descriptor>(parts_->library, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack->set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, int64_t(uids.size()), uids.data())
      .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, int64_t(data.size()),
           data.data())
      .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace)
      .finish();
  return [parts = parts_, plan = plan->descriptor, pack, what](cudaStream_t stream) {
    const Cudnn& library = parts->library;
    const auto handle = static_cast<cudnnHandle_t>(library.handle());
    cudnnStatus_t status = library.api().set_stream(handle, stream);
    if (status == CUDNN_STATUS_SUCCESS) {
      status = library.api().backend_execute(handle, plan->handle(), pack->handle());
    }
    if (status != CUDNN_STATUS_SUCCESS) {
      throw_error(ErrorKind::device, "{}: cuDNN reports {}", what,
                  library.api().status_text(status));
    }
  };
}

}  // namespace ridgeline::cuda

#endif
