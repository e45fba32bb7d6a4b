#include "ridgeline/cuda/mlp_train/kernels.h"

#include "ridgeline/cuda/kernel.h"
#include "ridgeline/cuda/mlp_train/mlp_train.h"
#include "ridgeline/cuda/mlp_train/tables.h"
#include "ridgeline/cuda/workspace.h"
#include "ridgeline/plan/mlp_step.h"

namespace ridgeline::cuda {
namespace {

using Layout = MlpTrainLayout (*)(const MlpTrainShape&, int);

// Why a step has features that these kernels do not support; "" if it has none.
std::string refuse_details(const MlpStepOps& step) {
  const SgdUpdate& sgd = *step.layers.front().sgd_w;
  if (sgd.momentum != 0) return "takes no momentum";
  if (sgd.weight_decay != 0) return "takes no decay of biases";
  if (step.xent->scale != 1.0 / double(step.inputs->y.shape[0])) {
    return "wants the mean over its own batch";
  }
  for (const MlpStepOps::Layer& layer : step.layers) {
    if (!layer.linear->b) return "wants a bias in every layer";
    if (layer.activation == nullptr) continue;
    if (!saves_output(layer.activation->kind)) return "takes relu, tanh and sigmoid only";
    if (layer.activation->kind != step.layers.front().activation->kind) {
      return "wants one kind of activation";
    }
  }
  return {};
}

// Weights have the type of the values, or are kept in fp32 with copies in that type for the
// products; biases have no copies. Gradients are never stored, so their type does not matter.
std::string refuse_types(const MlpStepOps::Layer& layer, DType dtype, bool masters) {
  const SgdUpdate &w = *layer.sgd_w, &b = *layer.sgd_b;
  const DType kept = masters ? DType::fp32 : dtype;
  if (layer.linear->w.dtype != dtype || layer.linear->y.dtype != dtype) {
    return "wants all values of one type";
  }
  if (w.w.dtype != kept || b.w.dtype != kept || bool(w.copy) != masters || b.copy) {
    return "wants weights of the values' type, or in fp32 with copies of all but the biases";
  }
  return {};
}

std::string refuse(const RemainingOps& rest, const MlpStepOps& step) {
  if (!step.refusal.empty()) return step.refusal;
  if (rest.begin != 0 || step.ops != rest.size()) return "covers whole programs only";
  if (std::string reason = refuse_details(step); !reason.empty()) return reason;
  const size_t layers = step.layers.size();
  if (layers < 2 || layers > size_t(kMlpMaxLayers)) {
    return fmt::format("takes 2 to {} layers", kMlpMaxLayers);
  }
  const DType dtype = step.inputs->y.dtype;
  if (dtype != DType::bf16 && dtype != DType::fp16) return "takes bf16 and fp16 only";
  for (const MlpStepOps::Layer& layer : step.layers) {
    if (std::string reason = refuse_types(layer, dtype, step.copies); !reason.empty())
      return reason;
  }
  return {};
}

MlpTrainShape shape_of(const MlpStepOps& step) {
  MlpTrainShape shape;
  shape.layers = int(step.layers.size());
  shape.batch = int(step.inputs->y.shape[0]);
  shape.sizes[0] = int(step.layers.front().linear->in());
  for (int i = 0; i < shape.layers; ++i) {
    shape.sizes[i + 1] = int(step.layers[size_t(i)].linear->out());
  }
  shape.masters = step.copies;
  shape.half = step.inputs->y.dtype;
  shape.activation = activation_of(step.layers.front().activation->kind);
  return shape;
}

// The slices of the workspace.
struct MlpTrainWorkspace {
  // The tables of a launch.
  int64_t* first;
  double* lr;
  float* loss;
  int32_t* correct;
  // Half-precision biases that the GPU functions write beside the fp32 ones; nothing reads them.
  std::vector<void*> spare_bias;
  void* own;  // for the GPU function

  MlpTrainWorkspace(const MlpStepOps& step, int64_t repeats, size_t own_bytes,
                    WorkspaceSlices& slices) {
    first = slices.take_of<int64_t>(1);
    lr = slices.take_of<double>(size_t(repeats));
    loss = slices.take_of<float>(size_t(repeats));
    correct = slices.take_of<int32_t>(size_t(repeats));
    for (const MlpStepOps::Layer& layer : step.layers) {
      if (step.copies) spare_bias.push_back(slices.take(size_t(layer.linear->out()) * 2));
    }
    own = slices.take(own_bytes);
  }
};

Cover covers(const RemainingOps& rest, Layout layout_of) {
  const MlpStepOps step = match_mlp_step(rest);
  if (std::string reason = refuse(rest, step); !reason.empty()) return Cover::no(reason);
  const MlpTrainLayout layout = layout_of(shape_of(step), 0);
  if (!layout.refusal.empty()) return Cover::no(layout.refusal);
  Cover cover = Cover::of(step.ops);
  cover.skips = step.inside;
  WorkspaceSlices counted;
  MlpTrainWorkspace(step, rest.program.repeats, layout.workspace_bytes, counted);
  cover.workspace = counted.total();
  return cover;
}

class MlpTrainStep final : public Step {
 public:
  MlpTrainStep(MlpTrainArgs args, MlpTables tables, MlpTrainLayout layout, void* workspace,
               cudaStream_t stream)
      : args_(args),
        tables_(tables),
        layout_(std::move(layout)),
        workspace_(workspace),
        stream_(stream) {}

  void run() override { run_many(1); }
  void run_many(int64_t count) override {
    args_.steps = int(count);
    check(launch_mlp_enter(tables_, args_.steps, stream_), "mlp_train: its tables");
    check(mlp_train_launch(args_, layout_, workspace_, stream_), what());
    check(launch_mlp_leave(tables_, args_.steps, stream_), "mlp_train: its tables");
  }

 private:
  std::string what() const {
    std::string text =
        fmt::format("mlp_train of {} samples, {}", args_.shape.batch, args_.shape.sizes[0]);
    for (int i = 1; i <= args_.shape.layers; ++i) text += fmt::format("-{}", args_.shape.sizes[i]);
    return text;
  }

  MlpTrainArgs args_;
  MlpTables tables_;
  MlpTrainLayout layout_;
  void* workspace_;
  cudaStream_t stream_;
};

std::unique_ptr<Step> prepare(const Span& span, const Binding& binding, Layout layout_of) {
  const MlpStepOps step = match_mlp_step({span.program, span.begin, binding.runtime()});
  const MlpTrainLayout layout = layout_of(shape_of(step), 0);
  WorkspaceSlices slices(binding.workspace());
  const MlpTrainWorkspace workspace(step, span.program.repeats, layout.workspace_bytes, slices);

  MlpTables tables;
  tables.tick = binding.write(step.tick->tick).as<int32_t>();
  tables.first = binding.read(step.inputs->first).as<int64_t>();
  tables.lr = binding.read(step.layers[0].sgd_w->lr).as<double>();
  tables.loss = binding.write(step.xent->loss).as<double>();
  tables.correct = binding.write(step.xent->correct).as<int32_t>();
  tables.batch = step.inputs->y.shape[0];
  tables.own_first = workspace.first;
  tables.own_lr = workspace.lr;
  tables.own_loss = workspace.loss;
  tables.own_correct = workspace.correct;

  MlpTrainArgs args;
  args.shape = shape_of(step);
  for (size_t i = 0; i < step.layers.size(); ++i) {
    const SgdUpdate &w = *step.layers[i].sgd_w, &b = *step.layers[i].sgd_b;
    if (!step.copies) {
      args.w[i] = binding.write(w.w).data;
      args.bias[i] = binding.write(b.w).data;
      continue;
    }
    args.w[i] = binding.write(w.copy).data;
    args.master_w[i] = binding.write(w.w).as<float>();
    args.bias[i] = workspace.spare_bias[i];
    args.master_bias[i] = binding.write(b.w).as<float>();
  }
  args.images = binding.read(step.inputs->set).as<uint8_t>();
  args.labels = binding.read(step.targets->set).as<int32_t>();
  args.order = binding.read(step.inputs->order).as<int32_t>();
  args.first = tables.own_first;
  args.lr = tables.own_lr;
  args.scale = float(step.inputs->scale);
  args.shift = float(step.inputs->shift);
  args.weight_decay = step.layers[0].sgd_w->weight_decay;
  args.loss = workspace.loss;
  args.correct = workspace.correct;
  return std::make_unique<MlpTrainStep>(args, tables, layout, workspace.own,
                                        cuda_runtime(binding.runtime()).stream());
}

}  // namespace

KernelTable mlp_train_kernels() {
  const std::pair<const char*, Layout> ways[] = {
      {"cluster_replicated", mlp_train_cluster_replicated_layout},
      {"grid_sharded", mlp_train_grid_sharded_layout},
      {"weight_streaming", mlp_train_weight_streaming_layout}};
  KernelTable table;
  for (const auto& [how, layout_of] : ways) {
    table.push_back(cuda_kernel(fmt::format("cuda.mlp_train.{}", how), covers, prepare, layout_of,
                                kWgmmaOfHalves));
  }
  return table;
}

}  // namespace ridgeline::cuda
