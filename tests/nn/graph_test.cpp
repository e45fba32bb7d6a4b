#include "ridgeline/nn/graph.h"

#include <gtest/gtest.h>

#include "ridgeline/nn/activation.h"
#include "ridgeline/nn/graph_config.h"
#include "ridgeline/nn/join.h"
#include "ridgeline/nn/linear.h"
#include "ridgeline/nn/lower.h"
#include "tests/nn/expect_error.h"

namespace ridgeline::nn {
namespace {

Graph parse(const std::string& layers) {
  ConfigTable table = ConfigTable::parse("layers = [" + layers + "]", "net.toml");
  return read_graph(table);
}

std::string linear(const std::string& keys = "out = 4") {
  return "{ type = \"linear\", " + keys + " }";
}

std::vector<std::string> param_names(const Model& model) {
  std::vector<std::string> names;
  for (const Param& param : model.params()) names.push_back(param.name);
  return names;
}

std::vector<std::string> paths(const Graph& graph) {
  std::vector<std::string> all;
  for (const GraphLayer& each : graph.layers()) all.push_back(each.path);
  return all;
}

using Words = std::vector<std::string>;

TEST(Graph, AListIsAChain) {
  const Graph graph = parse(linear() + ", { type = \"relu\" }, " + linear("out = 3, bias = false"));
  ASSERT_EQ(graph.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(graph.layers()[i].inputs, (std::vector<int>{int(i) - 1}));
  }
  EXPECT_EQ(paths(graph), (Words{"0", "1", "2"}));
  EXPECT_EQ(param_names(Model(graph, {5})), (Words{"0.weight", "0.bias", "2.weight"}));
  EXPECT_EQ(graph.toml()[1], "{ type = \"relu\" }");
}

TEST(Graph, NamesAndInputsConnectLayers) {
  const Graph graph = parse(
      "{ name = \"a\", type = \"linear\", out = 4 }, { type = \"relu\", name = \"b\" }, "
      "{ type = \"concat\", inputs = [\"b\", \"a\", \"input\"] }, { type = \"linear\", out = 2 }");
  EXPECT_EQ(graph.layers()[2].inputs, (std::vector<int>{1, 0, kGraphInput}));
  const Model model(graph, {5});
  EXPECT_EQ(model.output_of(2), Shape{13});
  EXPECT_EQ(model.input_of(3), Shape{13});
}

TEST(Graph, BlocksNameWeightsByTheirPlaces) {
  const Graph graph = parse(linear() + ", { type = \"residual\", layers = [" + linear() +
                            ", { type = \"tanh\" }, " + linear() + "], shortcut = [" +
                            linear("out = 4, bias = false") + "] }, { repeat = 2, layers = [" +
                            linear("out = 4, bias = false") + "] }, { layers = [" +
                            linear("out = 4, bias = false") + "] }");
  EXPECT_EQ(paths(graph),
            (Words{"0", "1.shortcut.0", "1.0", "1.1", "1.2", "1.add", "2.0.0", "2.1.0", "3.0"}));
  EXPECT_EQ(graph.layers()[5].inputs, (std::vector<int>{4, 1}));
  EXPECT_EQ(param_names(Model(graph, {3})),
            (Words{"0.weight", "0.bias", "1.shortcut.0.weight", "1.0.weight", "1.0.bias",
                   "1.2.weight", "1.2.bias", "2.0.0.weight", "2.1.0.weight", "3.0.weight"}));
}

TEST(Graph, IsReadBackFromWhatItWrites) {
  const std::string text =
      "{ name = \"a\", type = \"linear\", out = 4 }, { repeat = 3, type = \"residual\", layers = ["
      "{ name = \"b\", inputs = [\"block_input\"], type = \"linear\", out = 4 }, "
      "{ type = \"mean\", inputs = [\"b\", \"a\"] }] }, { type = \"reshape\", shape = [2, -1] }, "
      "{ type = \"transpose\", axes = [1, 0] }, { type = \"slice\", axis = -1, start = 1 }, "
      "{ type = \"pad\", padding = [1, 2], value = 0.5 }, { type = \"upsample\", factor = 2, mode "
      "= "
      "\"bilinear\" }";
  const Graph graph = parse(text);
  std::string written;
  for (const std::string& each : graph.toml()) written += each + ", ";
  const Graph again = parse(written);
  EXPECT_EQ(again.toml(), graph.toml());
  EXPECT_EQ(paths(again), paths(graph));
  EXPECT_EQ(Model(graph, {6}).output(), (Shape{2, 8}));
}

Graph parse_model(const std::string& text) {
  ConfigTable table = ConfigTable::parse(text, "net.toml");
  return read_graph(table);
}

TEST(Graph, LayersShareWeightsByName) {
  const Graph graph = parse(linear("out = 5, name = \"a\"") + ", { type = \"relu\" }, " +
                            linear("out = 5, weights_of = \"a\""));
  const Model model(graph, {5});
  EXPECT_EQ(param_names(model), (Words{"0.weight", "0.bias"}));
  EXPECT_EQ(model.weights_of(2), 0u);
  EXPECT_EQ(parse(graph.toml()[0] + ", " + graph.toml()[1] + ", " + graph.toml()[2]).toml(),
            graph.toml());
  const auto refused = [](const std::string& layers, const std::vector<const char*>& words) {
    test::expect_error(ErrorKind::usage, words, [&] { Model(parse(layers), {5}); });
  };
  const std::string a = linear("out = 5, name = \"first\"") + ", ";
  refused(a + linear("out = 5, weights_of = \"frist\""),
          {"layers.1.weights_of", "'frist'", "did you mean 'first'?"});
  refused(a + "{ type = \"tanh\", weights_of = \"first\" }", {"names a linear", "is a tanh"});
  refused(a + linear("out = 6, weights_of = \"first\""),
          {"layer 1 (linear)", "layer 0 (linear)", "[5, 5] there, [6, 5] wanted"});
}

TEST(Graph, HeadsAreJoinedAndWrittenBack) {
  const std::string layers = "layers = [" + linear("out = 4, name = \"h\"") + ", " +
                             linear("out = 3, name = \"logits\"") + ", " +
                             linear("out = 1, inputs = [\"h\"], name = \"value\"") + "]\n";
  const Graph graph =
      parse_model(layers +
                  "heads = [{ layer = \"logits\", target = \"action\" }, { layer = \"value\", loss "
                  "= \"mse\", weight = 0.5, target = \"return\" }]");
  ASSERT_EQ(graph.heads().size(), 2u);
  EXPECT_EQ(graph.heads()[1].layer, 2);
  EXPECT_EQ(graph.heads()[1].weight, 0.5);
  EXPECT_EQ(graph.heads()[1].loss.kind, LossKind::mse);
  EXPECT_EQ(graph.heads()[0].target, "action");
  EXPECT_EQ(to_toml(graph.heads()[1]),
            "{ layer = \"value\", loss = \"mse\", weight = 0.5, target = \"return\" }");
  EXPECT_EQ(graph.toml().size(), 3u);
  EXPECT_EQ(Model(graph, {7}).output(), Shape{4});
  const auto refused = [&](const std::string& heads, const std::vector<const char*>& words) {
    test::expect_error(ErrorKind::usage, words,
                       [&] { Model(parse_model(layers + "heads = [" + heads + "]"), {7}); });
  };
  refused("{ layer = \"logits\" }", {"heads", "has 1"});
  refused("{ layer = \"logits\" }, { layer = \"valu\" }",
          {"heads.1.layer", "'valu'", "did you mean 'value'?"});
  refused("{ layer = \"logits\" }, { layer = \"logits\" }", {"heads.1.layer", "another head"});
  refused("{ layer = \"logits\" }, { layer = \"value\", target = \"a\" }",
          {"heads.1.target", "for each head"});
  refused("{ layer = \"logits\" }, { layer = \"value\", los = \"mse\" }", {"'los'"});
}

TEST(Graph, OfNumbersWritesNames) {
  const std::vector<LayerPtr> layers{std::make_shared<LinearLayer>(5),
                                     std::make_shared<ActivationLayer>(ActivationKind::tanh),
                                     std::make_shared<JoinLayer>(JoinKind::add)};
  const Graph graph(layers, {{kGraphInput}, {0}, {1, 0}});
  std::string written;
  for (const std::string& each : graph.toml()) written += each + ", ";
  const Graph again = parse(written);
  EXPECT_EQ(again.layers()[2].inputs, (std::vector<int>{1, 0}));
  EXPECT_EQ(again.toml(), graph.toml());
}

TEST(Graph, RefusesWithTheirPlaces) {
  const auto refused = [](const std::string& layers, const std::vector<const char*>& words) {
    test::expect_error(ErrorKind::usage, words, [&] { parse(layers); });
  };
  const std::string a = "{ name = \"skip\", type = \"linear\", out = 4 }, ";
  refused(a + "{ type = \"add\", inputs = [\"skp\", \"skip\"] }",
          {"net.toml:1", "layers.1.inputs", "'skp'", "did you mean 'skip'?"});
  refused(
      "{ type = \"add\", inputs = [\"later\", \"input\"] }, " + linear("name = \"later\", out = 4"),
      {"layers.0.inputs", "no layer before this one", "'later'"});
  refused(a + "{ type = \"add\" }", {"layers.1.inputs", "missing", "2 to 64 layers"});
  refused(a + "{ type = \"relu\", inputs = [\"skip\", \"input\"] }",
          {"relu reads one layer", "concat"});
  refused(a + "{ type = \"relu\", inputs = [] }", {"layers.1.inputs", "empty"});
  refused(a + linear("name = \"skip\", out = 3"), {"layers.1.name", "another layer", "'skip'"});
  refused(linear("name = \"input\", out = 3"), {"layers.0.name", "'input'"});
  refused(linear("name = \"a b\", out = 3"), {"layers.0.name", "letters, digits"});
  refused(a + "{ type = \"add\", inputs = [\"block_input\", \"skip\"] }", {"'block_input'"});
  refused("{ type = \"residual\" }", {"layers.0.layers", "missing"});
  refused("{ type = \"residual\", layers = [] }", {"layers.0.layers", "empty"});
  refused("{ repeat = 2, layers = [" + linear() + "], out = 3 }", {"unknown key 'out'"});
  refused("{ repeat = 0, layers = [" + linear() + "] }", {"layers.0.repeat", "at least 1"});
  refused("{ repeat = 4000, layers = [" + linear() + ", " + linear() + "] }", {"more than 4096"});
  refused("{ out = 3 }", {"layers.0.type", "missing"});
  // The names inside a block are local to it.
  refused("{ layers = [" + linear("name = \"inner\", out = 4") +
              "] }, { type = \"add\", inputs = "
              "[\"inner\", \"input\"] }",
          {"layers.1.inputs", "'inner'"});
}

TEST(Graph, RefusesShapesAndReadsThatDoNotFit) {
  const auto refused = [](const std::string& layers, const std::vector<const char*>& words) {
    test::expect_error(ErrorKind::usage, words, [&] { Model(parse(layers), {4, 6}); });
  };
  refused(
      "{ name = \"a\", type = \"linear\", out = 4 }, { name = \"b\", type = \"linear\", out = 5 }, "
      "{ type = \"add\", inputs = [\"a\", \"b\"] }",
      {"layer 2 (add)", "layer 0 (linear) [4]", "layer 1 (linear) [5]", "one shape"});
  refused(
      "{ name = \"a\", type = \"linear\", out = 4 }, { type = \"concat\", inputs = [\"a\", "
      "\"input\"] }",
      {"layer 1 (concat)", "the input [4, 6]", "differ along axis 0"});
  refused(linear() + ", { type = \"linear\", out = 5, inputs = [\"input\"] }",
          {"no layer reads what layer 0 (linear) gives"});
  refused("{ type = \"reshape\", shape = [5, -1] }", {"[5, -1]", "24 numbers"});
  refused("{ type = \"transpose\", axes = [1, 0, 2] }", {"orders 3 axes", "has 2"});
  refused("{ type = \"slice\", start = 5 }", {"[5, 4)", "axis 0"});
  refused(
      "{ type = \"embedding\", vocabulary = 9, out = 4, name = \"e\" }, { type = \"flatten\", "
      "inputs "
      "= [\"input\"], name = \"f\" }, { type = \"concat\", inputs = [\"e\", \"f\"] }",
      {"layer 0 (embedding)", "layer 1 (flatten)", "codes"});
}

// A value that is read twice gets the sum of two gradients, and nothing below the lowest weights
// gets any.
TEST(Graph, LoweringSumsGradients) {
  const Graph graph = parse(
      "{ type = \"relu\", name = \"x\" }, { name = \"a\", type = \"linear\", out = 4 }, "
      "{ type = \"tanh\" }, { type = \"add\", inputs = [\"a\", \"x\", \"a\"] }, " +
      linear("out = 3"));
  // No layer reads the tanh: give it a name instead.
  EXPECT_THROW(Model(graph, {4}), Error);
  const Graph read = parse(
      "{ type = \"relu\", name = \"x\" }, { name = \"a\", type = \"linear\", out = 4 }, "
      "{ type = \"tanh\", name = \"t\" }, { type = \"add\", inputs = [\"a\", \"x\", \"t\"] }, " +
      linear("out = 3"));
  LowerOptions options;
  options.batch = 5;
  options.order_samples = options.set_samples = 10;
  options.classes = 3;
  const Lowered lowered = lower(Model(read, {4}), options);
  Words names;
  for (const Op& op : lowered.program.ops) names.emplace_back(name(op));
  EXPECT_EQ(names, (Words{"gather", "gather", "activation", "linear", "activation", "add", "linear",
                          "softmax_xent", "softmax_xent_grad", "linear_grad_x", "linear_grad_w",
                          "sgd_update", "sgd_update", "activation_grad", "add", "linear_grad_w",
                          "sgd_update", "sgd_update", "tick"}));
}

}  // namespace
}  // namespace ridgeline::nn
