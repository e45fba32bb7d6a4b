#include <algorithm>
#include <map>

#include "ridgeline/onnx/composition.h"
#include "ridgeline/onnx/importer.h"

// Einsum of one or two operands, as transposes, reshapes and a product of matrices.
namespace ridgeline::onnx {
namespace {

struct Equation {
  std::vector<std::string> operands;  // the letters of each
  std::string result;
};

Equation read_equation(Importer& in) {
  std::string text = in.node().text("equation", "");
  std::erase(text, ' ');
  const size_t arrow = text.find("->");
  Equation found;
  std::string left = text.substr(0, arrow);
  for (size_t comma; (comma = left.find(',')) != std::string::npos;) {
    found.operands.push_back(left.substr(0, comma));
    left.erase(0, comma + 1);
  }
  found.operands.push_back(left);
  std::map<char, int> counts;
  for (const std::string& each : found.operands) {
    for (const char letter : each) {
      if (letter == '.') in.refuse("its equation has an ellipsis");
      if (std::ranges::count(each, letter) > 1) in.refuse("takes a diagonal");
      ++counts[letter];
    }
  }
  if (arrow != std::string::npos) {
    found.result = text.substr(arrow + 2);
  } else {  // the letters that occur once, in alphabetical order
    for (const auto& [letter, count] : counts) {
      if (count == 1) found.result += letter;
    }
  }
  for (const char letter : found.result) {
    if (!counts.contains(letter) || std::ranges::count(found.result, letter) > 1) {
      in.refuse("its equation is none");
    }
  }
  return found;
}

bool has(const std::string& letters, char letter) {
  return letters.find(letter) != std::string::npos;
}

std::vector<int64_t> permutation(const std::string& from, const std::string& to) {
  std::vector<int64_t> perm;
  for (const char letter : to) perm.push_back(int64_t(from.find(letter)));
  return perm;
}

// The first two operands, and then their product with the others. It keeps the letters that these
// or the result have.
void import_in_turn(Importer& in, Composition& make, const Equation& equation) {
  const std::vector<std::string>& operands = equation.operands;
  std::string rest = equation.result, kept, others;
  for (size_t i = 2; i < operands.size(); ++i) {
    rest += operands[i];
    others += "," + operands[i];
  }
  for (const char letter : operands[0] + operands[1]) {
    if (has(rest, letter) && !has(kept, letter)) kept += letter;
  }
  const auto text = [](std::string equation) {
    Attribute made;
    made.s = std::move(equation);
    return Composition::Attributes{{"equation", std::move(made)}};
  };
  std::vector<std::string> inputs = in.node().inputs;
  inputs[1] = make.add("Einsum", {inputs[0], inputs[1]},
                       text(operands[0] + "," + operands[1] + "->" + kept));
  inputs.erase(inputs.begin());
  make.finish("Einsum", inputs, text(kept + others + "->" + equation.result));
}

}  // namespace

void import_einsum(Importer& in) {
  const Equation equation = read_equation(in);
  const size_t count = equation.operands.size();
  if (count != in.node().inputs.size()) in.refuse("its equation does not fit its inputs");
  Composition make(in);
  if (count > 2) return import_in_turn(in, make, equation);
  std::map<char, int64_t> extents;
  std::vector<std::string> names, letters = equation.operands;
  for (size_t i = 0; i < count; ++i) {
    const std::vector<int64_t>& dims =
        in.is_known(i) ? in.require_known(i)->dims : in.look(i).view.dims;
    if (dims.size() != letters[i].size()) in.refuse("its equation does not fit its inputs");
    for (size_t k = 0; k < dims.size(); ++k) {
      const auto [found, fresh] = extents.try_emplace(letters[i][k], dims[k]);
      if (!fresh && found->second != dims[k]) in.refuse("its equation does not fit its inputs");
    }
    // Letters that only this operand has, and the result has not, are summed over.
    std::vector<int64_t> summed;
    std::string kept;
    for (size_t k = 0; k < dims.size(); ++k) {
      const char letter = letters[i][k];
      const bool elsewhere =
          has(equation.result, letter) || (count == 2 && has(equation.operands[1 - i], letter));
      elsewhere ? void(kept += letter) : summed.push_back(int64_t(k));
    }
    names.push_back(in.node().input(i));
    if (!summed.empty()) {
      names[i] = make.add("ReduceSum", {names[i], make.integers(summed)},
                          {{"keepdims", Composition::integer(0)}});
      letters[i] = kept;
    }
  }
  if (count == 1) {
    return make.finish("Transpose", {names[0]},
                       {{"perm", Composition::list(permutation(letters[0], equation.result))}});
  }
  std::string both, inner, left, right;
  for (const char letter : letters[0]) {
    const bool shared = has(letters[1], letter), kept = has(equation.result, letter);
    (!shared ? left : kept ? both : inner) += letter;
  }
  for (const char letter : letters[1]) {
    if (!has(letters[0], letter)) right += letter;
  }
  const auto extent_of = [&](const std::string& all) {
    int64_t extent = 1;
    for (const char letter : all) {
      if (extents[letter] == kBatch) in.refuse("sums over the batch, or multiplies samples");
      extent *= extents[letter];
    }
    return extent;
  };
  const auto list = [&](const std::string& all) {
    std::vector<int64_t> dims;
    for (const char letter : all) dims.push_back(extents[letter]);
    return dims;
  };
  const auto shaped = [&](const std::string& x, std::vector<int64_t> dims) {
    return make.add("Reshape", {x, make.integers(std::move(dims))});
  };
  const int64_t depth = extent_of(inner);
  std::string result;
  if (in.is_known(0) != in.is_known(1) && both.empty()) {
    // The constant is a matrix; all letters of the other operand but the inner ones are kept.
    const size_t value = in.is_known(0) ? 1 : 0;
    const std::string &outer = value == 0 ? left : right, &made = value == 0 ? right : left;
    std::vector<int64_t> rows = list(outer);
    rows.push_back(depth);
    const std::string x =
        shaped(make.transpose(names[value], permutation(letters[value], outer + inner)), rows);
    const std::string w =
        shaped(make.transpose(names[1 - value], permutation(letters[1 - value], inner + made)),
               {depth, extent_of(made)});
    result = shaped(make.add("MatMul", {x, w}), list(outer + made));
    letters[0] = outer + made;
  } else {
    std::vector<int64_t> a = list(both), b = a;
    a.insert(a.end(), {extent_of(left), depth});
    b.insert(b.end(), {depth, extent_of(right)});
    const std::string x =
        shaped(make.transpose(names[0], permutation(letters[0], both + left + inner)), a);
    const std::string w =
        shaped(make.transpose(names[1], permutation(letters[1], both + inner + right)), b);
    result = shaped(make.add("MatMul", {x, w}), list(both + left + right));
    letters[0] = both + left + right;
  }
  make.finish("Transpose", {result},
              {{"perm", Composition::list(permutation(letters[0], equation.result))}});
}

}  // namespace ridgeline::onnx
