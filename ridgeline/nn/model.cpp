#include "ridgeline/nn/model.h"

#include <fmt/format.h>

#include "ridgeline/core/host_memory.h"

namespace ridgeline::nn {

namespace {

// "[4, 8]" for one input; for several "layer 2 (relu) [4, 8] and the input [8, 8]".
std::string describe_inputs(const Graph& graph, const GraphLayer& layer,
                            const std::vector<Shape>& shapes) {
  if (shapes.size() == 1) return to_string(shapes[0]);
  std::string text;
  for (size_t i = 0; i < shapes.size(); ++i) {
    if (i > 0) text += i + 1 == shapes.size() ? " and " : ", ";
    text += fmt::format("{} {}", graph.label(layer.inputs[i]), to_string(shapes[i]));
  }
  return text;
}

// Checks that each layer reads earlier layers, that all but the last are read, and that all readers
// of the input want floats or the same codes.
void check_reads(const Graph& graph) {
  std::vector<bool> read(graph.size());
  for (size_t i = 0; i < graph.size(); ++i) {
    const GraphLayer& layer = graph.layers()[i];
    if (layer.inputs.empty()) {
      throw_error(ErrorKind::usage, "{} reads nothing; give it an input", graph.label(int(i)));
    }
    for (const int input : layer.inputs) {
      if (input < kGraphInput || input >= int(i)) {
        throw_error(ErrorKind::usage, "{} reads layer {}, which does not come before it",
                    graph.label(int(i)), input);
      }
      if (input != kGraphInput) {
        read[size_t(input)] = true;
      } else if (layer.layer->codes_below() != graph[0]->codes_below()) {
        throw_error(ErrorKind::usage, "{} and {} both read the input, but not as the same codes",
                    graph.label(0), graph.label(int(i)));
      }
    }
  }
  for (size_t i = 0; i + 1 < graph.size(); ++i) {
    if (read[i]) continue;
    throw_error(ErrorKind::usage,
                "no layer reads what {} gives; name it in the inputs of a later layer, or leave "
                "it out",
                graph.label(int(i)));
  }
}

// Checks that the weights of a layer have the shapes of the shared weights that it uses.
void check_shared(const Graph& graph, const Outline& so_far, const GraphLayer& layer,
                  const std::vector<ParamSpec>& wanted) {
  const auto owner = size_t(layer.weights_of);
  const size_t first = so_far.first_param[owner], end = so_far.first_param[owner + 1];
  bool fits = end - first == wanted.size();
  for (size_t p = 0; fits && p < wanted.size(); ++p) {
    const ParamSpec& have = so_far.params[first + p].second;
    fits = have.suffix == wanted[p].suffix && have.shape == wanted[p].shape;
  }
  if (fits) return;
  const std::string weight = end > first ? to_string(so_far.params[first].second.shape) : "none";
  throw_error(ErrorKind::usage, "the weights of {} do not fit it: {} there, {} wanted here",
              graph.label(layer.weights_of), weight,
              wanted.empty() ? "none" : to_string(wanted[0].shape));
}

// The outputs of heads are rows of numbers, which the net's output has side by side.
void check_heads(const Graph& graph, const std::vector<Shape>& outputs) {
  for (const Head& head : graph.heads()) {
    const Shape& shape = outputs[size_t(head.layer)];
    if (shape.rank() == 1) continue;
    throw_error(ErrorKind::usage,
                "the head {} gives {}, and not one row of numbers; end it with a linear layer",
                graph.label(head.layer), to_string(shape));
  }
}

}  // namespace

Outline outline(const Graph& graph, const Shape& input) {
  if (graph.empty()) {
    throw_error(ErrorKind::usage, "the model has no layers; give it at least one");
  }
  int64_t depth = 0;
  for (const GraphLayer& each : graph.layers()) depth += each.layer->depth();
  if (depth > kMostLayers) {
    throw_error(ErrorKind::usage, "the model has {} layers; at most {} are allowed", depth,
                kMostLayers);
  }
  check_reads(graph);
  Outline found;
  for (size_t i = 0; i < graph.size(); ++i) {
    const GraphLayer& each = graph.layers()[i];
    std::vector<Shape> shapes;
    for (const int from : each.inputs) {
      shapes.push_back(from == kGraphInput ? input : found.outputs[size_t(from)]);
    }
    if (!graph.heads().empty() && i + 1 == graph.size()) check_heads(graph, found.outputs);
    try {
      found.outputs.push_back(each.layer->output_of(shapes));
      found.first_param.push_back(found.params.size());
      if (each.weights_of >= 0) {
        check_shared(graph, found, each, each.layer->params(shapes[0]));
        continue;
      }
      for (ParamSpec& spec : each.layer->params(shapes[0])) {
        found.params.emplace_back(fmt::format("{}.{}", each.path, spec.suffix), std::move(spec));
      }
    } catch (const Error& error) {
      const bool residual = each.path.ends_with(".add");
      throw_error(
          ErrorKind::usage, "{} with {} {}: {}{}", graph.label(int(i)),
          shapes.size() == 1 ? "input" : "inputs", describe_inputs(graph, each, shapes),
          error.what(),
          residual ? "; give the residual a shortcut, a list of layers to the same shape" : "");
    }
  }
  found.first_param.push_back(found.params.size());
  return found;
}

Model::Model(Graph graph, const Shape& input, DType weights)
    : graph_(std::move(graph)), input_(input) {
  Outline found = outline(graph_, input);
  for (const GraphLayer& each : graph_.layers()) layers_.push_back(each.layer);
  outputs_ = std::move(found.outputs);
  first_param_ = std::move(found.first_param);
  size_t layer = 0;
  for (auto& [name, spec] : found.params) {
    while (first_param_[layer + 1] == params_.size()) ++layer;
    const DType dtype = spec.kind == ParamKind::counter ? DType::int64 : weights;
    require_host_memory(
        size_t(checked_mul(spec.shape.numel(), int64_t(size_of(dtype)), name.c_str())),
        fmt::format("{} has a {} {}; use smaller layers", graph_.label(int(layer)), spec.suffix,
                    to_string(spec.shape))
            .c_str());
    params_.push_back({name, spec.init, spec.fans, HostTensor(dtype, spec.shape), spec.kind});
  }
}

int64_t Model::parameter_count() const {
  int64_t count = 0;
  for (const Param& param : params_) {
    if (param.trained()) count += param.value.view().numel();
  }
  return count;
}

void Model::initialise(uint64_t seed) {
  for (size_t i = 0; i < params_.size(); ++i) {
    const Param& param = params_[i];
    if (param.kind == ParamKind::counter) {
      *param.value.view().as<int64_t>() = 0;
      continue;
    }
    fill(param.init, param.fans, seed, i, param.value.view());
  }
}

}  // namespace ridgeline::nn
