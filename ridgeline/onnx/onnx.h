#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "ridgeline/core/error.h"
#include "ridgeline/core/shape.h"
#include "ridgeline/data/prepare/preparation.h"
#include "ridgeline/nn/model.h"

// ONNX files in and out. A build without protobuf or without the onnx.proto of libonnx-dev has the
// functions too; they throw usage and say what is missing.
namespace ridgeline::onnx {

bool available();

// Recognises ONNX's own format by the file extension.
bool is_onnx_file(const std::filesystem::path& file);

struct ImportOptions {
  // The shape of one sample, if the file leaves it open; rank 0: as in the file.
  Shape input{};
  // The output of the graph to import; empty: the first that holds floats.
  std::string output{};
  bool classes = false;  // the outputs are those of classes
};

// An ONNX graph as a network of our layers.
struct ImportedModel {
  struct Weight {
    std::string name;  // as Model::params() has it: "0.weight"
    std::vector<float> values;
  };

  // One of several inputs: their samples are side by side in the input of the net.
  struct Input {
    std::string name;
    Shape shape;  // of one sample
  };

  std::vector<std::string> layers;  // as in a config: { type = "linear", out = 10, ... }
  std::vector<Weight> weights;
  Shape input;   // of one sample
  Shape sample;  // as the file has it: the same numbers, with or without extents of one
  std::string input_name, output_name;
  std::vector<Input> inputs{};  // if the graph has more than one
  // The graph's batch dimension; our samples always come first.
  size_t input_batch_axis = 0, output_batch_axis = 0;
  bool codes = false;    // samples are integers, which an embedding reads
  bool softmax = false;  // the graph ends in a softmax over the outputs, which no layer computes
  std::vector<std::string> classes{};  // names, if the file has them
  bool words = false;                  // the names are words, not integers
  std::vector<std::string> warnings;
};

// An operator, or a use of one, that our layers cannot express.
class RefusedModel : public Error {
 public:
  RefusedModel(const std::string& message, std::vector<std::string> nodes)
      : Error(ErrorKind::model, message), nodes_(std::move(nodes)) {}
  // One line per node: its name, its operator, the shapes of its inputs and the reason.
  const std::vector<std::string>& nodes() const { return nodes_; }

 private:
  std::vector<std::string> nodes_;
};

// Throws RefusedModel, or Error(model) for a file that is damaged or not ONNX.
ImportedModel import_model(const std::filesystem::path& file, const ImportOptions& options = {});

struct ExportOptions {
  enum class Input { floats, bytes, codes };
  enum class End { as_is, softmax, sigmoid };
  // y = (x - subtract) * multiply + add: one number, or one per element; empty: left out.
  struct Affine {
    std::vector<double> subtract{}, multiply{}, add{};
  };

  int64_t opset = 17;
  bool half_weights = false;  // stored in fp16; computed in fp32
  Input input = Input::floats;
  Affine before{};  // what samples go through before the first layer
  // How the fields of the data become samples, in the place of `input` and `before`; null: they are
  // samples already. The fields are numbers and words, or a sequence.
  const data::Preparation* preparation = nullptr;
  End end = End::as_is;
  Affine after{};  // applied to outputs after the last layer
};

// The bytes of an ONNX file with the input "input" [N, ...] and the output "output". A preparation
// with words has an input for each field, and one of sequences a second input "lengths". Throws
// usage for an opset or a layer that cannot be written.
std::string export_model(const nn::Model& model, const ExportOptions& options = {});

}  // namespace ridgeline::onnx
