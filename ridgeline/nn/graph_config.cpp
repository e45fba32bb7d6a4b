#include "ridgeline/nn/graph_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "ridgeline/core/error.h"
#include "ridgeline/core/text.h"
#include "ridgeline/core/text_format.h"
#include "ridgeline/nn/join.h"
#include "ridgeline/nn/layers.h"

namespace ridgeline::nn {
namespace {

constexpr const char* kInputName = "input";             // the net's
constexpr const char* kBlockInputName = "block_input";  // of the innermost block
constexpr int64_t kMostRepeats = kMostLayers;
constexpr double kMostWeight = 1e12;  // of a head's loss

bool is_name(const std::string& text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  });
}

// The names visible in a list of layers: its own so far and those of the enclosing lists.
struct Scope {
  const Scope* outer = nullptr;
  int input = kGraphInput;  // of the block
  std::map<std::string, int> names{};

  const int* find(const std::string& name) const {
    const auto found = names.find(name);
    if (found != names.end()) return &found->second;
    return outer != nullptr ? outer->find(name) : nullptr;
  }
  std::vector<std::string> known() const {
    std::vector<std::string> all;
    for (const Scope* scope = this; scope != nullptr; scope = scope->outer) {
      for (const auto& each : scope->names) all.push_back(each.first);
    }
    all.emplace_back(kInputName);
    if (outer != nullptr) all.emplace_back(kBlockInputName);
    return all;
  }
};

class GraphReader {
 public:
  explicit GraphReader(ConfigTable& root) : root_(root) {}

  Graph read(std::vector<ConfigTable> tables) {
    std::vector<std::string> toml;
    Scope scope;
    read_list(tables, scope, "", &toml);
    std::vector<Head> heads = read_heads(scope);
    return {std::move(layers_), std::move(toml), std::move(heads)};
  }

 private:
  // A last layer joins several outputs, so that the net has one.
  std::vector<Head> read_heads(const Scope& scope) {
    std::vector<Head> heads;
    std::vector<int> inputs;
    for (ConfigTable& table : root_.tables("heads")) {
      Head head;
      head.name = table.text("layer", std::nullopt);
      head.layer = find_layer(table, "layer", head.name, scope);
      head.loss = read_loss(table, "loss");
      head.weight = table.number("weight", 1.0, {0.0, kMostWeight});
      head.target = table.text("target", "");
      table.finish();
      for (const Head& other : heads) {
        if (other.layer == head.layer) table.fail("layer", "another head has this layer");
        if (other.target.empty() != head.target.empty()) {
          table.fail("target", "give a target for each head, or for none of them");
        }
      }
      inputs.push_back(head.layer);
      heads.push_back(std::move(head));
    }
    if (root_.has("heads") && (heads.size() < 2 || heads.size() > kMostJoined)) {
      root_.fail("heads", fmt::format("has {}; give 2 to {}, or train.loss for the last layer",
                                      heads.size(), kMostJoined));
    }
    if (!heads.empty()) {
      append(std::make_shared<JoinLayer>(JoinKind::concat), inputs, "heads");
    }
    return heads;
  }

  // Returns the layer of this name, which must come earlier.
  int find_layer(ConfigTable& table, const char* key, const std::string& name, const Scope& scope) {
    if (const int* found = scope.find(name)) return *found;
    std::vector<std::string> known;
    for (const Scope* each = &scope; each != nullptr; each = each->outer) {
      for (const auto& entry : each->names) known.push_back(entry.first);
    }
    const std::vector<std::string_view> views(known.begin(), known.end());
    const std::string near = nearest(name, views);
    table.fail(key,
               fmt::format("no layer before this has the name {}{}; known: {}", quote(name),
                           near.empty() ? "" : fmt::format("; did you mean '{}'?", near),
                           known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", "))));
  }

  // Appends the layers of a list and returns the number of the last. The list's elements are added
  // to `toml`, which may be null.
  int read_list(std::vector<ConfigTable>& tables, Scope& scope, const std::string& prefix,
                std::vector<std::string>* toml) {
    int before = scope.input;
    for (size_t i = 0; i < tables.size(); ++i) {
      std::string text;
      before = read_entry(tables[i], before, scope, fmt::format("{}{}", prefix, i), text);
      if (toml != nullptr) toml->push_back(std::move(text));
    }
    return before;
  }

  int read_entry(ConfigTable& table, int before, Scope& scope, const std::string& path,
                 std::string& toml) {
    const std::string name = read_name(table, scope);
    const std::vector<std::string> words = table.texts("inputs", {});
    if (table.has("inputs") && words.empty()) {
      table.fail("inputs", "is empty; name the layers to read, or leave it out");
    }
    std::vector<int> inputs;
    for (const std::string& word : words) inputs.push_back(resolve(table, word, scope));
    const bool fields = table.is_text("type") && table.text("type", "") == "fields";
    if (inputs.empty()) inputs.push_back(fields ? kGraphInput : before);
    const bool residual = table.is_text("type") && table.text("type", "") == "residual";
    int number = 0;
    if (residual || !table.has("type")) {
      number = read_block(table, inputs, scope, path, residual, toml);
    } else {
      const std::string owner = table.text("weights_of", "");
      const int weights_of = owner.empty() ? -1 : find_layer(table, "weights_of", owner, scope);
      const LayerPtr layer = read_layer(table);
      check_inputs(table, *layer, words);
      number = append(layer, inputs, path);
      if (weights_of >= 0) share_weights(table, number, weights_of);
      toml = layer->to_toml();
      if (!owner.empty()) {
        toml = fmt::format("{{ weights_of = {}, {}", toml_text(owner), toml.substr(2));
      }
    }
    toml = layer_toml(toml, name, words);
    if (!name.empty()) scope.names[name] = number;
    return number;
  }

  void share_weights(ConfigTable& table, int layer, int owner) {
    const GraphLayer& of = layers_[size_t(owner)];
    GraphLayer& with = layers_[size_t(layer)];
    if (of.layer->type() != with.layer->type()) {
      table.fail("weights_of", fmt::format("names a {}, but this layer is a {}", of.layer->type(),
                                           with.layer->type()));
    }
    with.weights_of = of.weights_of >= 0 ? of.weights_of : owner;
  }

  std::string read_name(ConfigTable& table, const Scope& scope) {
    if (!table.has("name")) return {};
    const std::string name = table.text("name", "");
    if (!is_name(name)) {
      table.fail("name", fmt::format("{} is no name; use letters, digits, _ and -", quote(name)));
    }
    if (name == kInputName || name == kBlockInputName) {
      table.fail("name", fmt::format("{} is what layers read that read an input; take another name",
                                     quote(name)));
    }
    if (scope.find(name) != nullptr) {
      table.fail("name", fmt::format("another layer has the name {}; take a new one", quote(name)));
    }
    return name;
  }

  int resolve(ConfigTable& table, const std::string& word, const Scope& scope) {
    if (word == kInputName) return kGraphInput;
    if (word == kBlockInputName && scope.outer != nullptr) return scope.input;
    if (const int* found = scope.find(word)) return *found;
    const std::vector<std::string> known = scope.known();
    const std::vector<std::string_view> views(known.begin(), known.end());
    const std::string near = nearest(word, views);
    table.fail("inputs",
               fmt::format("no layer before this one has the name {}; {}known: {}", quote(word),
                           near.empty() ? "" : fmt::format("did you mean '{}'? ", near),
                           fmt::join(known, ", ")));
  }

  void check_inputs(ConfigTable& table, const Layer& layer, const std::vector<std::string>& words) {
    const bool joins = layer.joins();
    if (joins && (words.size() < 2 || words.size() > kMostJoined)) {
      table.fail("inputs", fmt::format("{}; {} wants the names of 2 to {} layers",
                                       words.empty() ? std::string("missing")
                                                     : fmt::format("has {}", words.size()),
                                       layer.type(), kMostJoined));
    }
    if (!joins && words.size() > 1) {
      table.fail("inputs", fmt::format("has {}, but {} reads one layer; join them by add, "
                                       "multiply, mean or concat first",
                                       words.size(), layer.type()));
    }
  }

  // Reads a table with layers of its own: a residual block or a list, either of which may repeat.
  int read_block(ConfigTable& table, const std::vector<int>& inputs, const Scope& scope,
                 const std::string& path, bool residual, std::string& toml) {
    if (!table.has("layers")) {
      if (!residual) read_layer(table);  // reports the missing type
      table.fail("layers", "missing; give the layers whose result is added to their input");
    }
    if (inputs.size() > 1) {
      table.fail("inputs", "has more than one, but a block reads one layer; join them first");
    }
    const bool repeats = table.has("repeat");
    const int64_t count = table.integer("repeat", 1, {1, kMostRepeats});
    toml = "{ ";
    if (repeats) toml += fmt::format("repeat = {}, ", count);
    if (residual) toml += "type = \"residual\", ";
    int before = inputs[0];
    for (int64_t i = 0; i < count; ++i) {
      std::vector<std::string> body, shortcut;
      const std::string begin = repeats ? fmt::format("{}.{}", path, i) : path;
      before = read_body(table, before, scope, begin, residual, body, shortcut);
      if (i > 0) continue;
      toml += fmt::format("layers = [{}]", fmt::join(body, ", "));
      if (!shortcut.empty()) toml += fmt::format(", shortcut = [{}]", fmt::join(shortcut, ", "));
    }
    toml += " }";
    table.finish();
    return before;
  }

  int read_body(ConfigTable& table, int input, const Scope& scope, const std::string& path,
                bool residual, std::vector<std::string>& body, std::vector<std::string>& shortcut) {
    int skip = input;
    // The shortcut runs first, so that the sum follows the layers that it may be fused with.
    if (residual && table.has("shortcut")) {
      skip = read_branch(table, "shortcut", input, scope, path + ".shortcut.", shortcut);
    }
    const int last = read_branch(table, "layers", input, scope, path + ".", body);
    if (!residual) return last;
    return append(std::make_shared<JoinLayer>(JoinKind::add), {last, skip}, path + ".add");
  }

  int read_branch(ConfigTable& table, const char* key, int input, const Scope& scope,
                  const std::string& prefix, std::vector<std::string>& toml) {
    std::vector<ConfigTable> tables = table.tables(key);
    if (tables.empty()) table.fail(key, "is empty; give at least one layer");
    Scope inner{&scope, input};
    return read_list(tables, inner, prefix, &toml);
  }

  int append(LayerPtr layer, std::vector<int> inputs, const std::string& path) {
    if (int64_t(layers_.size()) == kMostLayers) {
      root_.fail("layers",
                 fmt::format("has more than {} layers where blocks are repeated", kMostLayers));
    }
    layers_.push_back({std::move(layer), std::move(inputs), path});
    return int(layers_.size()) - 1;
  }

  ConfigTable& root_;
  std::vector<GraphLayer> layers_;
};

}  // namespace

Graph read_graph(ConfigTable& table) {
  std::vector<ConfigTable> tables = table.tables("layers");
  if (int64_t(tables.size()) > kMostLayers) {
    table.fail("layers",
               fmt::format("has {} layers; at most {} are allowed", tables.size(), kMostLayers));
  }
  Graph graph = GraphReader(table).read(std::move(tables));
  table.finish();
  if (graph.empty()) table.fail("layers", "missing; give at least one layer");
  return graph;
}

std::string to_toml(const Head& head) {
  std::string text = fmt::format("{{ layer = {}, loss = {}, weight = {}", toml_text(head.name),
                                 to_toml(head.loss), toml_number(head.weight));
  if (!head.target.empty()) text += fmt::format(", target = {}", toml_text(head.target));
  return text + " }";
}

std::string layer_toml(const std::string& layer, const std::string& name,
                       const std::vector<std::string>& inputs) {
  std::string keys;
  if (!name.empty()) keys += fmt::format("name = {}, ", toml_text(name));
  if (!inputs.empty()) {
    std::vector<std::string> quoted;
    for (const std::string& input : inputs) quoted.push_back(toml_text(input));
    keys += fmt::format("inputs = [{}], ", fmt::join(quoted, ", "));
  }
  return keys.empty() ? layer : "{ " + keys + layer.substr(2);
}

}  // namespace ridgeline::nn
