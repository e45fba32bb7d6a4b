// The ONNX backend test data (Debian's libonnx-testdata), made by others, through every CPU kernel
// that covers the op.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>

#include "ridgeline/registry.h"
#include "tests/onnx/node_case.h"
#include "tests/support/oracle.h"
#include "tests/support/run_kernel.h"

namespace ridgeline::test {
namespace {

namespace fs = std::filesystem;

fs::path data_folder() {
  const char* given = std::getenv("RIDGELINE_ONNX_DATA");
  return given != nullptr ? fs::path(given) : fs::path("/usr/include/onnx/backend/test/data");
}

struct Tally {
  int found = 0, passed = 0, failed = 0;
};

// The stored outputs are sums of at most a few hundred fp32 products, rounded in another order:
// some 1e-6 of the terms, which are of order one here. A wrong tap or count is 1e-2 or more.
constexpr double kTolerance = 2e-5;

std::string compare(const NodeCase& node, const Arrays& arrays) {
  for (const auto& [value, want] : node.want) {
    const auto got = arrays.doubles(value.id);
    for (size_t i = 0; i < want.size(); ++i) {
      const double bound = kTolerance * (1 + std::abs(want[i]));
      if (!(std::abs(got[i] - want[i]) <= bound)) {
        return fmt::format("{}[{}] is {} and should be {}", node.c.program.info(value.id).name, i,
                           got[i], want[i]);
      }
    }
  }
  return "";
}

// Returns what is wrong with any kernel on this node; "" if all agree.
std::string check(const NodeCase& node, Runtime& runtime, const KernelTable& table) {
  Arrays inputs = node.c.inputs();
  for (const auto& [value, numbers] : node.given) {
    if (int64_t(numbers.size()) != value.shape.numel()) return "an input of another size";
    for (size_t i = 0; i < numbers.size(); ++i) {
      set_element(inputs[value], int64_t(i), numbers[i]);
    }
  }
  for (const Kernel& kernel : table) {
    if (kernel.target != DeviceKind::cpu || !kernel.covers) continue;
    const Cover cover = kernel.covers({node.c.program, 0, runtime});
    if (cover.ops == 0) continue;
    const KernelResult result =
        run_kernel(kernel, cover, node.c.program, 0, inputs, runtime, table);
    if (!result.overruns.empty()) return kernel.name + " wrote past an end";
    const std::string wrong = compare(node, result.arrays);
    if (!wrong.empty()) return kernel.name + ": " + wrong;
  }
  return "";
}

// A test of one node: its inputs are those of the data set, then the graph's initializers, by name.
class Vectors {
 public:
  explicit Vectors(const fs::path& folder) : model_(read_onnx_model(folder / "model.onnx")) {
    std::map<std::string, OnnxTensor> known;
    for (const OnnxTensor& tensor : model_.initializers) known[tensor.name] = tensor;
    const fs::path set = folder / "test_data_set_0";
    size_t next = 0;
    for (const std::string& input : model_.inputs) {
      if (known.contains(input)) continue;
      const fs::path file = set / fmt::format("input_{}.pb", next++);
      if (fs::exists(file)) known[input] = read_onnx_tensor(file);
    }
    for (const std::string& input : model_.nodes[0].inputs) inputs_.push_back(known[input]);
    for (size_t i = 0; i < model_.nodes[0].outputs.size(); ++i) {
      const fs::path file = set / fmt::format("output_{}.pb", i);
      if (fs::exists(file)) outputs_.push_back(read_onnx_tensor(file));
    }
  }

  NodeCase made() const {
    if (outputs_.empty()) return {"has no stored output", {}, {}, {}};
    return node_case(model_.nodes[0], model_.opset, inputs_, outputs_);
  }

 private:
  OnnxModel model_;
  std::vector<OnnxTensor> inputs_, outputs_;
};

TEST(Onnx, EveryVectorThatAppliesPasses) {
  const fs::path data = data_folder();
  if (!fs::exists(data / "node")) {
    GTEST_SKIP() << data.string() << " is not there: install libonnx-testdata";
  }
  const auto runtime = make_runtime(Device{}, 2);
  const KernelTable table = all_kernels();
  const std::set<std::string> ours(std::begin(kOnnxOps), std::end(kOnnxOps));
  std::map<std::string, Tally> tallies;
  std::ofstream rest(fs::path(RIDGELINE_BINARY_DIR) / "onnx-vectors-not-run.txt");
  std::set<fs::path> folders;
  for (const char* part : {"node", "pytorch-converted", "pytorch-operator", "simple"}) {
    if (!fs::exists(data / part)) continue;
    for (const auto& entry : fs::directory_iterator(data / part)) {
      if (fs::exists(entry.path() / "model.onnx")) folders.insert(entry.path());
    }
  }
  for (const fs::path& folder : folders) {
    const OnnxModel model = read_onnx_model(folder / "model.onnx");
    const std::string test = folder.filename().string();
    if (model.nodes.empty()) continue;
    const std::string& op = model.nodes[0].op;
    const auto any = [&](const OnnxNode& node) { return ours.contains(node.op); };
    if (std::none_of(model.nodes.begin(), model.nodes.end(), any)) continue;
    if (model.nodes.size() > 1) {
      rest << test << ": a graph of " << model.nodes.size() << " nodes\n";
      continue;
    }
    Tally& tally = tallies[op];
    ++tally.found;
    const NodeCase node = Vectors(folder).made();
    if (!node.why_not.empty()) {
      rest << test << ": " << node.why_not << '\n';
      continue;
    }
    const std::string wrong = check(node, *runtime, table);
    wrong.empty() ? ++tally.passed : ++tally.failed;
    EXPECT_TRUE(wrong.empty()) << test << ": " << wrong;
  }
  for (const char* op : kOnnxOps) {
    const Tally& tally = tallies[op];
    fmt::print("{:20} {:3} vectors, {:3} apply, {:3} pass\n", op, tally.found,
               tally.passed + tally.failed, tally.passed);
  }
  // The counts of libonnx-testdata 1.12 that apply today: fewer would mean that the reader lost
  // some.
  const std::map<std::string, int> least = {{"Conv", 26},
                                            {"MaxPool", 14},
                                            {"AveragePool", 11},
                                            {"GlobalAveragePool", 2},
                                            {"BatchNormalization", 7},
                                            {"LayerNormalization", 19},
                                            {"Gemm", 7},
                                            {"Relu", 3},
                                            {"Tanh", 3},
                                            {"Sigmoid", 3},
                                            {"Softmax", 8},
                                            {"RNN", 4},
                                            {"GRU", 3},
                                            {"LSTM", 3}};
  for (const auto& [op, count] : least) EXPECT_GE(tallies[op].passed, count) << op;
}

}  // namespace
}  // namespace ridgeline::test
