#include "ridgeline/nn/layers.h"

#include "ridgeline/nn/activation.h"
#include "ridgeline/nn/column_embedding.h"
#include "ridgeline/nn/conv.h"
#include "ridgeline/nn/custom.h"
#include "ridgeline/nn/dropout.h"
#include "ridgeline/nn/embedding.h"
#include "ridgeline/nn/fields.h"
#include "ridgeline/nn/flatten.h"
#include "ridgeline/nn/group_norm.h"
#include "ridgeline/nn/join.h"
#include "ridgeline/nn/linear.h"
#include "ridgeline/nn/norm.h"
#include "ridgeline/nn/one_hot_conv.h"
#include "ridgeline/nn/pool.h"
#include "ridgeline/nn/rearrange.h"
#include "ridgeline/nn/recurrent.h"
#include "ridgeline/nn/select_timestep.h"
#include "ridgeline/nn/softmax.h"
#include "ridgeline/nn/unary.h"

namespace ridgeline::nn {
namespace {

struct LayerType {
  std::string_view name;
  LayerPtr (*read)(ConfigTable& table);
};

// A block of layers, read by read_graph() of graph_config.h.
constexpr const char* kResidual = "residual";

// Every layer a config can name. A new one is a header and source pair and one line here.
constexpr LayerType kTypes[] = {
    {"linear", LinearLayer::read},
    {"relu", ActivationLayer::read<ActivationKind::relu>},
    {"tanh", ActivationLayer::read<ActivationKind::tanh>},
    {"sigmoid", ActivationLayer::read<ActivationKind::sigmoid>},
    {"gelu", ActivationLayer::read<ActivationKind::gelu>},
    {"silu", ActivationLayer::read<ActivationKind::silu>},
    {"leaky_relu", ActivationLayer::read<ActivationKind::leaky_relu>},
    {"elu", ActivationLayer::read<ActivationKind::elu>},
    {"softplus", ActivationLayer::read<ActivationKind::softplus>},
    {"hardswish", ActivationLayer::read<ActivationKind::hardswish>},
    {"exp", UnaryLayer::read<UnaryKind::exp>},
    {"log", UnaryLayer::read<UnaryKind::log>},
    {"sqrt", UnaryLayer::read<UnaryKind::sqrt>},
    {"reciprocal", UnaryLayer::read<UnaryKind::reciprocal>},
    {"sin", UnaryLayer::read<UnaryKind::sin>},
    {"floor", UnaryLayer::read<UnaryKind::floor>},
    {"round", UnaryLayer::read<UnaryKind::round>},
    {"step", UnaryLayer::read<UnaryKind::step>},
    {"dropout", DropoutLayer::read},
    {"flatten", FlattenLayer::read},
    {"conv2d", ConvLayer::read<Axes::two>},
    {"conv1d", ConvLayer::read<Axes::one>},
    {"onehot_conv1d", OneHotConvLayer::read},
    {"maxpool2d", PoolLayer::read<PoolKind::max, Axes::two>},
    {"maxpool1d", PoolLayer::read<PoolKind::max, Axes::one>},
    {"avgpool2d", PoolLayer::read<PoolKind::average, Axes::two>},
    {"avgpool1d", PoolLayer::read<PoolKind::average, Axes::one>},
    {"global_avgpool", PoolLayer::read_global},
    {"layernorm", LayerNormLayer::read},
    {"batchnorm", BatchNormLayer::read},
    {"groupnorm", GroupNormLayer::read},
    {"rmsnorm", RmsNormLayer::read},
    {"embedding", EmbeddingLayer::read},
    {"column_embedding", ColumnEmbeddingLayer::read},
    {"fields", FieldsLayer::read},
    {"rnn", RecurrentLayer::read_rnn},
    {"gru", RecurrentLayer::read_gru},
    {"lstm", RecurrentLayer::read_lstm},
    {"select", SelectTimestepLayer::read},
    {"softmax", SoftmaxLayer::read<false>},
    {"output_sigmoid", SoftmaxLayer::read<true>},
    {"add", JoinLayer::read<JoinKind::add>},
    {"multiply", JoinLayer::read<JoinKind::multiply>},
    {"mean", JoinLayer::read<JoinKind::mean>},
    {"concat", JoinLayer::read<JoinKind::concat>},
    {"reshape", read_reshape},
    {"transpose", read_transpose},
    {"slice", read_slice},
    {"pad", read_pad},
    {"upsample", read_upsample},
};

}  // namespace

std::vector<std::string> layer_types() {
  std::vector<std::string> names;
  for (const LayerType& type : kTypes) names.emplace_back(type.name);
  names.emplace_back(kResidual);
  for (std::string& name : added_layer_types()) names.push_back(std::move(name));
  return names;
}

LayerPtr read_layer(ConfigTable& table) {
  const std::vector<std::string> types = layer_types();
  const std::vector<std::string_view> names(types.begin(), types.end());
  const std::string name = table.choice("type", std::nullopt, names);
  if (name == kResidual) table.fail("type", "is a block of layers and has no place here");
  LayerPtr layer = read_added_layer(name, table);
  for (const LayerType& type : kTypes) {
    if (type.name == name) layer = type.read(table);
  }
  table.finish();
  return layer;
}

std::vector<ParamSpec> Layer::params(const Shape&) const { return {}; }

Shape Layer::output_of(const std::vector<Shape>& inputs) const {
  if (inputs.size() != 1) {
    throw_error(ErrorKind::usage, "takes one input, not {}; join them first", inputs.size());
  }
  return output(inputs[0]);
}

Values Layer::backward_of(Builder& builder, const LayerValues& values, const Value& dy,
                          const std::vector<bool>& needs_dx) const {
  return {backward(builder, values, dy, needs_dx[0])};
}

}  // namespace ridgeline::nn
