#include <algorithm>
#include <map>
#include <set>

#include "ridgeline/onnx/importer.h"

// The model that the layers of an imported graph make.
namespace ridgeline::onnx {

// Layers whose weights are the same constants of the graph share them, so that training keeps them
// equal.
void Importer::share_weights() {
  std::map<std::pair<std::string, std::vector<ConstantPtr>>, int> owners;
  for (size_t i = 0; i < drafts_.size(); ++i) {
    Draft& draft = drafts_[i];
    if (draft.weights.empty() || draft.origins.empty()) continue;
    const auto [found, fresh] = owners.try_emplace({draft.toml(), draft.origins}, int(i));
    const Draft& owner = drafts_[size_t(found->second)];
    const auto is_same = [](const ImportedModel::Weight& a, const ImportedModel::Weight& b) {
      return a.name == b.name && a.values == b.values;
    };
    if (fresh || !std::ranges::equal(draft.weights, owner.weights, is_same)) continue;
    draft.weights_of = found->second;
    draft.weights.clear();
  }
}

// Removes the layers that the layer `end` does not depend on, as those of outputs of a node that
// nobody reads. Returns the new number of `end`.
int Importer::drop_unread(int end) {
  std::vector<bool> read(drafts_.size(), false);
  if (end >= 0) read[size_t(end)] = true;
  for (int i = end; i >= 0; --i) {
    const Draft& draft = drafts_[size_t(i)];
    if (!read[size_t(i)]) continue;
    for (const int each : draft.inputs) {
      if (each >= 0) read[size_t(each)] = true;
    }
    if (draft.weights_of >= 0) read[size_t(draft.weights_of)] = true;
  }
  std::vector<int> numbers(drafts_.size(), -1);
  std::vector<Draft> kept;
  for (size_t i = 0; i < drafts_.size(); ++i) {
    if (!read[i]) continue;
    numbers[i] = int(kept.size());
    Draft draft = std::move(drafts_[i]);
    for (int& each : draft.inputs) each = each < 0 ? each : numbers[size_t(each)];
    if (draft.weights_of >= 0) draft.weights_of = numbers[size_t(draft.weights_of)];
    kept.push_back(std::move(draft));
  }
  drafts_ = std::move(kept);
  return end < 0 ? end : numbers[size_t(end)];
}

ImportedModel Importer::result() {
  const auto end = activations_.find(output_);
  const auto fail = [&](const std::string& what) {
    throw RefusedModel(fmt::format("{}: {}", graph_.file, what), {what});
  };
  if (end == activations_.end()) fail("its output does not depend on its input");
  if (end->second.view.merged != 1) fail("its output mixes the batch with other dimensions");
  if (!end->second.view.in_order()) {
    try {
      softmax_ = false;  // one that follows is over all numbers in any order
      resume(end->second.layer, end->second.stored);
      end->second.view = straighten(end->second.view);
      end->second.layer = source_;
      end->second.stored = stored_;
    } catch (const Refusal& refusal) {
      fail("its output is transposed, and " + refusal.reason);
    }
  }
  end->second.layer = drop_unread(end->second.layer);
  share_weights();
  const size_t axis = end->second.view.batch_axis;
  if (batch_axis_ != 0 || axis != 0) {
    warnings_.push_back(
        fmt::format("{}: has its batch as dimension {} of the input and {} of the output; here "
                    "samples come first",
                    graph_.file, batch_axis_, axis));
  }
  if (drafts_.empty()) {
    Draft nothing;
    nothing.type = "flatten";
    nothing.inputs = {-1};
    drafts_.push_back(nothing);
  }
  ImportedModel model;
  // Layers that read the one before need no names.
  std::set<int> named_layers;
  const auto chained = [&](size_t i) { return drafts_[i].inputs == std::vector<int>{int(i) - 1}; };
  for (size_t i = 0; i < drafts_.size(); ++i) {
    if (!chained(i)) named_layers.insert(drafts_[i].inputs.begin(), drafts_[i].inputs.end());
    // A layer that uses others' weights has a name too, as does theirs.
    if (drafts_[i].weights_of >= 0) named_layers.insert({int(i), drafts_[i].weights_of});
  }
  for (size_t i = 0; i < drafts_.size(); ++i) {
    std::vector<std::string> inputs;
    for (const int each : chained(i) ? std::vector<int>{} : drafts_[i].inputs) {
      inputs.push_back(each < 0 ? "\"input\"" : fmt::format("\"layer{}\"", each));
    }
    model.layers.push_back(
        drafts_[i].toml(named_layers.contains(int(i)) ? fmt::format("layer{}", i) : std::string(),
                        fmt::format("{}", fmt::join(inputs, ", "))));
    for (ImportedModel::Weight& weight : drafts_[i].weights) {
      model.weights.push_back({fmt::format("{}.{}", i, weight.name), std::move(weight.values)});
    }
  }
  model.input = input_;
  model.sample = sample_;
  model.input_name = graph_.inputs.front().name;
  model.inputs = std::move(inputs_);
  model.output_name = output_;
  model.input_batch_axis = batch_axis_;
  model.output_batch_axis = axis;
  model.codes = codes_;
  model.softmax = end->second.softmax;
  model.classes = std::move(classes_);
  model.words = words_;
  model.warnings = std::move(warnings_);
  return model;
}

}  // namespace ridgeline::onnx
