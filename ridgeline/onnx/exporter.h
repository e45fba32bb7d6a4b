#pragma once

#include <map>
#include <string>
#include <vector>

#include "ridgeline/nn/config_table.h"
#include "ridgeline/nn/model.h"
#include "ridgeline/onnx/graph_writer.h"
#include "ridgeline/onnx/onnx.h"

namespace ridgeline::onnx {

using Ints = std::vector<int64_t>;

// Writes the layers of a model as nodes, in the order they run. Values are [N, sample...] with the
// shapes of the layers' outputs.
class Exporter {
 public:
  Exporter(const nn::Model& model, const ExportOptions& options);
  std::string run();

 private:
  // The path of the current layer, or of the one whose weights it uses.
  const std::string& path() const {
    return model_.graph().layers()[model_.weights_of(layer_)].path;
  }
  // Returns a param of the current layer: "weight". Floats of any width are returned as fp32.
  std::vector<float> values(const std::string& suffix) const;
  std::vector<int64_t> dims(const std::string& suffix) const;
  bool has(const std::string& suffix) const { return find(suffix) != nullptr; }
  const nn::Param* find(const std::string& suffix) const;
  std::string weight(const std::string& suffix);
  // Returns a param, or as many equal numbers if the layer has none.
  std::string weight_or(const std::string& suffix, int64_t count, float number);

  void reshape(const std::vector<int64_t>& sample);
  std::vector<int64_t> sample() const;
  void affine(const ExportOptions::Affine& affine);
  void begin();
  // export_prepare.cpp
  std::string prepare_numbers(std::string x, const data::NumberFeature& number, int64_t axis);
  std::string prepare_words(const std::string& x, const data::CategoryFeature& category);
  void prepare_fields(const data::Preparation& preparation);
  void prepare_sequence(const data::SequenceFeature& sequence);
  void select_by_length(int64_t at);
  void layer(nn::ConfigTable& table, const std::string& type);
  void join(nn::ConfigTable& table, const std::string& type,
            const std::vector<std::pair<std::string, Shape>>& parts);
  bool activation(nn::ConfigTable& table, const std::string& type);
  bool normalisation(nn::ConfigTable& table, const std::string& type);

  void linear(nn::ConfigTable& table);
  void conv(nn::ConfigTable& table, size_t axes);
  void one_hot_conv();
  void pool(nn::ConfigTable& table, bool max, size_t axes);
  void layer_norm(nn::ConfigTable& table);
  void batch_norm(nn::ConfigTable& table);
  void group_norm(nn::ConfigTable& table);
  void rms_norm(nn::ConfigTable& table);
  void recurrent(nn::ConfigTable& table, const std::string& type);
  std::string initial_state(const std::string& suffix);
  // In export_rearrange.cpp; returns false if the layer is not one of these.
  bool rearrange(nn::ConfigTable& table, const std::string& type);
  void transpose(const std::vector<int64_t>& axes);
  void pad();
  void upsample(nn::ConfigTable& table);
  void fields(nn::ConfigTable& table);
  void column_embedding(nn::ConfigTable& table);
  std::string slice(const std::string& x, int64_t axis, int64_t begin, int64_t end);
  std::string mean_of_last(const std::string& x, int64_t axes);
  void end();

  const nn::Model& model_;
  const ExportOptions& options_;
  GraphWriter graph_;
  size_t layer_ = 0;
  std::string x_;        // the value so far
  Shape shape_;          // of a sample of it
  std::string lengths_;  // the timesteps that each sample has; empty: all
};

}  // namespace ridgeline::onnx
