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

bool is_name(const std::string& text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  });
}

// The names that a list of layers sees: its own so far and those of the lists around it.
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
    return {std::move(layers_), std::move(toml)};
  }

 private:
  // Appends the layers of a list and returns the number of the last. `toml`, which may be null,
  // gets its elements.
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
    if (inputs.empty()) inputs.push_back(before);
    const bool residual = table.is_text("type") && table.text("type", "") == "residual";
    int number = 0;
    if (residual || !table.has("type")) {
      number = read_block(table, inputs, scope, path, residual, toml);
    } else {
      const LayerPtr layer = read_layer(table);
      check_inputs(table, *layer, words);
      number = append(layer, inputs, path);
      toml = layer->to_toml();
    }
    toml = layer_toml(toml, name, words);
    if (!name.empty()) scope.names[name] = number;
    return number;
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

  // A table with layers of its own: a residual block, or a list, which may both repeat.
  int read_block(ConfigTable& table, const std::vector<int>& inputs, const Scope& scope,
                 const std::string& path, bool residual, std::string& toml) {
    if (!table.has("layers")) {
      if (!residual) read_layer(table);  // says that the type is missing
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
