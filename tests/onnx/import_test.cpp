// The ONNX backend test data (Debian's libonnx-testdata, or the folder that RIDGELINE_ONNX_DATA
// names) through the import: every model either gives the stored outputs or is refused.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>

#include "ridgeline/engine/onnx_model.h"
#include "ridgeline/engine/predict.h"
#include "tests/onnx/onnx_model.h"

#ifdef RIDGELINE_HAVE_ONNX
#include "ridgeline/onnx/importer.h"
#endif

namespace ridgeline::test {
namespace {

namespace fs = std::filesystem;

#ifdef RIDGELINE_HAVE_ONNX

constexpr const char* kFolders[] = {"node", "simple", "pytorch-converted", "pytorch-operator"};
// As in backend_test.cpp: sums of a few hundred fp32 products, in another order.
constexpr double kTolerance = 2e-5;

fs::path data_folder() {
  const char* given = std::getenv("RIDGELINE_ONNX_DATA");
  return given != nullptr ? fs::path(given) : fs::path("/usr/include/onnx/backend/test/data");
}

// [outer, batch, inner] -> [batch, outer, inner], or back.
std::vector<double> moved(const std::vector<double>& from, const std::vector<int64_t>& dims,
                          size_t axis) {
  int64_t outer = 1, inner = 1;
  for (size_t i = 0; i < axis; ++i) outer *= dims[i];
  for (size_t i = axis + 1; i < dims.size(); ++i) inner *= dims[i];
  std::vector<double> to;
  for (int64_t n = 0; n < dims[axis]; ++n) {
    for (int64_t o = 0; o < outer; ++o) {
      const auto begin = from.begin() + (o * dims[axis] + n) * inner;
      to.insert(to.end(), begin, begin + inner);
    }
  }
  return to;
}

onnx::ConstantPtr as_constant(const OnnxTensor& tensor) {
  using Type = OnnxTensor::Type;
  if (tensor.type == Type::int32 || tensor.type == Type::int64 || tensor.type == Type::uint8) {
    return onnx::make_ints(tensor.dims, {tensor.values.begin(), tensor.values.end()});
  }
  return onnx::make_floats(tensor.dims, {tensor.values.begin(), tensor.values.end()});
}

std::vector<double> run(const engine::LoadedModel& loaded, bool codes,
                        const std::vector<double>& samples, int64_t batch) {
  engine::Machine machine(loaded.config.run);
  engine::Predictor predictor(machine, loaded.config, loaded.model, loaded.scaling, loaded.classes,
                              batch, nullptr, engine::Answer::outputs,
                              codes ? DType::uint8 : DType::fp32);
  const std::vector<float> floats(samples.begin(), samples.end());
  const std::vector<uint8_t> bytes(samples.begin(), samples.end());
  if (codes) return predictor.run(bytes);
  std::vector<uint8_t> raw(floats.size() * sizeof(float));
  std::memcpy(raw.data(), floats.data(), raw.size());
  return predictor.run(raw);
}

// Whether the tests' reader supports the type.
bool is_read(const OnnxTensor& tensor) { return int64_t(tensor.values.size()) == tensor.numel(); }

struct Outcome {
  enum { passed, refused, failed } kind = refused;
  std::string reason;
};

// The inputs and outputs of a test, in the order of the graph's.
struct Vectors {
  std::map<std::string, OnnxTensor> inputs, outputs;
};

Vectors read_vectors(const onnx::Graph& graph, const fs::path& folder) {
  const fs::path set = folder / "test_data_set_0";
  Vectors found;
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const fs::path file = set / fmt::format("input_{}.pb", i);
    if (fs::exists(file)) found.inputs[graph.inputs[i].name] = read_onnx_tensor(file);
  }
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    const fs::path file = set / fmt::format("output_{}.pb", i);
    if (fs::exists(file)) found.outputs[graph.outputs[i].name] = read_onnx_tensor(file);
  }
  return found;
}

std::string compare(const std::vector<double>& got, const std::vector<double>& want) {
  if (got.size() != want.size()) return fmt::format("{} outputs, not {}", got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    if (std::isnan(want[i]) && std::isnan(got[i])) continue;
    const double bound = kTolerance * (1 + std::abs(want[i]));
    if (want[i] != got[i] && !(std::abs(got[i] - want[i]) <= bound)) {
      return fmt::format("output {} is {} and should be {}", i, got[i], want[i]);
    }
  }
  return "";
}

// The samples of several inputs side by side; empty if these are not of one batch.
std::vector<double> joined(const onnx::ImportedModel& imported, const Vectors& vectors,
                           int64_t& batch) {
  std::vector<const OnnxTensor*> all;
  for (const auto& input : imported.inputs) all.push_back(&vectors.inputs.at(input.name));
  batch = all[0]->dims.empty() ? 0 : all[0]->dims[0];
  std::vector<double> samples;
  for (int64_t n = 0; n < batch; ++n) {
    for (const OnnxTensor* each : all) {
      if (each->dims.empty() || each->dims[0] != batch) return {};
      const int64_t size = each->numel() / batch;
      samples.insert(samples.end(), each->values.begin() + n * size,
                     each->values.begin() + (n + 1) * size);
    }
  }
  return samples;
}

// The places of the largest of each sample's numbers, which are the last of its net.
std::vector<double> labels_of(const std::vector<double>& outputs, int64_t batch) {
  const auto each = int64_t(outputs.size()) / batch;
  std::vector<double> labels;
  for (int64_t i = 0; i < batch; ++i) {
    const auto begin = outputs.begin() + i * each;
    labels.push_back(double(std::max_element(begin, begin + each) - begin));
  }
  return labels;
}

// One input is the samples and the others are weights; without `data` all of them are samples.
Outcome try_input(onnx::Graph graph, const Vectors& vectors, const std::string& data,
                  const fs::path& file) {
  std::vector<onnx::ValueInfo> left;
  for (const onnx::ValueInfo& input : graph.inputs) {
    if (input.name == data || data.empty()) {
      left.push_back(input);
    } else if (vectors.inputs.contains(input.name) && !is_read(vectors.inputs.at(input.name))) {
      graph.untaken[input.name] = "a type that this test does not read";
    } else if (vectors.inputs.contains(input.name)) {
      graph.constants[input.name] = as_constant(vectors.inputs.at(input.name));
    }
  }
  graph.inputs = std::move(left);
  const bool labels = !graph.nodes.empty() && graph.nodes.back().op == "ArgMax";
  onnx::ImportedModel imported;
  engine::ModelOptions options;
  options.run.device = "cpu";
  options.run.tune = false;
  options.run.threads = 1;
  options.run.quiet = true;
  std::vector<double> samples;
  int64_t batch = 0;
  try {
    imported = onnx::Importer(std::move(graph), {}).run();
    if (imported.inputs.empty()) {
      const OnnxTensor& given = vectors.inputs.at(data.empty() ? imported.input_name : data);
      const size_t axis = imported.input_batch_axis;
      if (given.dims.size() > axis && given.numel() > 0) {
        samples = moved(given.values, given.dims, axis);
        batch = given.dims[axis];
      }
    } else {
      samples = joined(imported, vectors, batch);
    }
    if (samples.empty()) return {Outcome::refused, "no samples"};
  } catch (const Error& error) {
    return {Outcome::refused, error.what()};
  }
  const auto wanted = vectors.outputs.find(imported.output_name);
  if (wanted == vectors.outputs.end() || !is_read(wanted->second)) {
    return {Outcome::refused, "has no stored output of a type that this test reads"};
  }
  // Some vectors of doubles are what lay in memory; fp32, in which nets run here, ends at 3e38.
  const auto is_beyond = [](double each) {
    return std::isfinite(each) && std::abs(each) > double(std::numeric_limits<float>::max());
  };
  if (std::ranges::any_of(samples, is_beyond) ||
      std::ranges::any_of(wanted->second.values, is_beyond)) {
    return {Outcome::refused, "has numbers that fp32 cannot hold"};
  }
  const size_t out = imported.output_batch_axis;
  const bool codes = imported.codes;
  const engine::LoadedModel loaded = engine::make_model(std::move(imported), file, options);
  auto got = run(loaded, codes, samples, batch);
  if (labels) got = labels_of(got, batch);
  const OnnxTensor& want = wanted->second;
  const std::string wrong = compare(got, moved(want.values, want.dims, out));
  return {wrong.empty() ? Outcome::passed : Outcome::failed, wrong};
}

Outcome check(const fs::path& folder, std::string& op) {
  const fs::path file = folder / "model.onnx";
  Outcome outcome;
  try {
    const OnnxModel model = read_onnx_model(file);
    op = model.nodes.size() == 1 ? model.nodes[0].op : "several nodes";
    const onnx::Graph graph = onnx::read_graph(file);
    const Vectors vectors = read_vectors(graph, folder);
    for (const onnx::ValueInfo& input : graph.inputs) {
      if (!vectors.inputs.contains(input.name)) continue;
      if (!is_read(vectors.inputs.at(input.name))) continue;
      const Outcome tried = try_input(graph, vectors, input.name, file);
      if (tried.kind != Outcome::refused) return tried;
      if (outcome.reason.empty()) outcome = tried;
    }
    const bool all_read = std::ranges::all_of(graph.inputs, [&](const onnx::ValueInfo& input) {
      return vectors.inputs.contains(input.name) && is_read(vectors.inputs.at(input.name));
    });
    if (graph.inputs.size() > 1 && all_read) {
      const Outcome tried = try_input(graph, vectors, "", file);
      if (tried.kind != Outcome::refused) return tried;
    }
  } catch (const Error& error) {
    return {Outcome::refused, error.what()};
  }
  return outcome;
}

TEST(OnnxImport, EveryModelOfTheBackendTestsPassesOrIsRefused) {
  const fs::path data = data_folder();
  if (!fs::exists(data / "node")) {
    GTEST_SKIP() << data.string() << " is not there: install libonnx-testdata";
  }
  struct Tally {
    int passed = 0, refused = 0, failed = 0;
  };
  std::map<std::string, Tally> tallies;
  Tally all;
  // A suite given by name writes files of its own.
  const std::string which = std::getenv("RIDGELINE_ONNX_DATA") != nullptr ? "-named" : "";
  const fs::path build(RIDGELINE_BINARY_DIR);
  std::ofstream reasons(build / fmt::format("onnx-import-refused{}.txt", which));
  for (const char* part : kFolders) {
    if (!fs::exists(data / part)) continue;
    std::vector<fs::path> folders;
    for (const auto& entry : fs::directory_iterator(data / part)) {
      if (fs::exists(entry.path() / "model.onnx")) folders.push_back(entry.path());
    }
    std::ranges::sort(folders);
    for (const fs::path& folder : folders) {
      std::string op = "unreadable";
      const Outcome outcome = check(folder, op);
      Tally& tally = tallies[op];
      tally.passed += outcome.kind == Outcome::passed,
          all.passed += outcome.kind == Outcome::passed;
      tally.refused += outcome.kind == Outcome::refused;
      all.refused += outcome.kind == Outcome::refused;
      tally.failed += outcome.kind == Outcome::failed,
          all.failed += outcome.kind == Outcome::failed;
      if (outcome.kind == Outcome::refused) {
        reasons << folder.filename().string() << ": " << outcome.reason << "\n";
      }
      EXPECT_NE(outcome.kind, Outcome::failed) << folder.string() << ": " << outcome.reason;
    }
  }
  std::ofstream table(build / fmt::format("onnx-import-suite{}.md", which));
  table << "| operator | pass | refused | fail |\n| --- | --- | --- | --- |\n";
  int nothing = 0, nothing_refused = 0;
  for (const auto& [op, tally] : tallies) {
    if (tally.passed + tally.failed == 0) {
      ++nothing, nothing_refused += tally.refused;
      continue;
    }
    table << fmt::format("| {} | {} | {} | {} |\n", op, tally.passed, tally.refused, tally.failed);
  }
  table << fmt::format("| {} other operators | 0 | {} | 0 |\n", nothing, nothing_refused);
  table << fmt::format("| all | {} | {} | {} |\n", all.passed, all.refused, all.failed);
  fmt::print("{} models pass, {} are refused, {} fail\n", all.passed, all.refused, all.failed);
  EXPECT_GT(all.passed, 300);
}

#else

TEST(OnnxImport, SaysThatItIsNotBuiltIn) {
  EXPECT_FALSE(onnx::available());
  EXPECT_THROW(onnx::import_model("net.onnx"), Error);
}

#endif

}  // namespace
}  // namespace ridgeline::test
