#include "ridgeline/nn/embedding.h"

#include <fmt/format.h>

#include "ridgeline/nn/builder.h"

namespace ridgeline::nn {

LayerPtr EmbeddingLayer::read(ConfigTable& table) {
  constexpr int64_t kMost = int64_t{1} << 24;
  const int64_t vocabulary = table.integer("vocabulary", std::nullopt, {1, kMost});
  const int64_t out = table.integer("out", std::nullopt, {1, kMost});
  // PyTorch's nn.Embedding begins with N(0, 1).
  const Init init = table.has("init") ? read_init(table, "init") : Init{InitKind::normal, 1.0, {}};
  return std::make_shared<EmbeddingLayer>(vocabulary, out, init);
}

Shape EmbeddingLayer::output(const Shape& input) const { return {input.numel(), out_}; }

std::vector<ParamSpec> EmbeddingLayer::params(const Shape&) const {
  return {{"weight", {vocabulary_, out_}, init_, Fans{vocabulary_, out_}}};
}

Value EmbeddingLayer::forward(Builder& builder, LayerValues& values) const {
  if (is_float(values.x.dtype)) {
    throw_error(ErrorKind::usage,
                "layer {} (embedding): must be the first layer, where samples are "
                "codes",
                values.layer);
  }
  const int64_t n = values.x.shape[0], steps = values.x.shape.numel() / n;
  const Value y = builder.temp(fmt::format("x{}", values.layer + 1), {n, steps * out_});
  Value rows = y;
  rows.shape = {n * steps, out_};
  builder.add(Embedding{values.x, values.params[0], rows});
  return y;
}

Value EmbeddingLayer::backward(Builder& builder, const LayerValues& values, const Value& dy,
                               bool) const {
  Value rows = dy;
  rows.shape = {values.x.shape.numel(), out_};
  builder.add(EmbeddingGrad{values.x, rows, values.grads[0]});
  return {};
}

std::string EmbeddingLayer::to_toml() const {
  return fmt::format("{{ type = \"embedding\", vocabulary = {}, out = {}, init = {} }}",
                     vocabulary_, out_, nn::to_toml(init_));
}

}  // namespace ridgeline::nn
