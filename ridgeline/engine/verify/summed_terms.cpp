#include "ridgeline/engine/verify/summed_terms.h"

namespace ridgeline::engine {
namespace {

// How many terms each element has of the sums over the batch that an op writes; 0: it writes none.
int64_t terms(const Op& op) {
  if (const auto* linear = std::get_if<LinearGradW>(&op)) return linear->n();
  if (const auto* conv = std::get_if<Conv2dGradW>(&op)) {
    return conv->n() * conv->shape.out().pixels();
  }
  if (const auto* conv = std::get_if<OneHotConv1dGradW>(&op)) return conv->n() * conv->steps();
  if (const auto* norm = std::get_if<BatchNorm>(&op)) return norm->count();
  if (const auto* norm = std::get_if<BatchNormGrad>(&op)) return norm->count();
  if (const auto* norm = std::get_if<LayerNormGrad>(&op)) return norm->rows();
  if (const auto* norm = std::get_if<GroupNormGrad>(&op)) {
    return norm->x.shape[0] * norm->spatial;
  }
  if (const auto* rnn = std::get_if<RnnGradW>(&op)) return rnn->shape.rows();
  if (const auto* embedding = std::get_if<EmbeddingGrad>(&op)) return embedding->count();
  if (const auto* custom = std::get_if<CustomGrad>(&op)) return custom->x.shape[0];
  return 0;
}

}  // namespace

std::unordered_map<std::string, int64_t> summed_terms(const Program& program) {
  std::unordered_map<std::string, int64_t> found;
  std::unordered_map<ValueId, int64_t> written;  // terms of gradients
  const auto update = [&](const auto& op) {
    for (const Value& value : op.writes()) {
      if (value) found[program.info(value.id).name] = written[op.dw.id];
    }
  };
  for (const Op& op : program.ops) {
    if (const auto* start = std::get_if<AllReduceStart>(&op)) {
      for (size_t i = 0; i < start->grads.size(); ++i) {
        written[start->sums[i].id] = written[start->grads[i].id] * start->ranks;
      }
    } else if (const auto* add = std::get_if<Add>(&op)) {  // of layers that share their weights
      for (const Value& value : add->reads()) written[add->y.id] += written[value.id];
    } else if (const auto* sgd = std::get_if<SgdUpdate>(&op)) {
      update(*sgd);
    } else if (const auto* adam = std::get_if<AdamUpdate>(&op)) {
      update(*adam);
    } else if (const int64_t count = terms(op); count > 0) {
      for (const Value& value : writes(op)) {
        written[value.id] = count;
        const bool running = program.info(value.id).role == Role::param;  // a batch norm's
        if (running) found[program.info(value.id).name] = count;
      }
    }
  }
  return found;
}

}  // namespace ridgeline::engine
