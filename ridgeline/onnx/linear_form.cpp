#include "ridgeline/onnx/linear_form.h"

#include <algorithm>

namespace ridgeline::onnx {
namespace {

bool is_zero(const Matrix& matrix) {
  return std::ranges::all_of(matrix.at, [](double each) { return each == 0; });
}

std::optional<double> multiple_of_identity(const Matrix& matrix) {
  if (matrix.rows != matrix.columns || matrix.at.empty()) return std::nullopt;
  for (int64_t i = 0; i < matrix.rows; ++i) {
    for (int64_t j = 0; j < matrix.columns; ++j) {
      const double wanted = i == j ? matrix.at[0] : 0;
      if (matrix.at[size_t(i * matrix.columns + j)] != wanted) return std::nullopt;
    }
  }
  return matrix.at[0];
}

}  // namespace

std::optional<double> LinearForm::times(int atom) const {
  const auto found = of.find(atom);
  return found == of.end() ? 0.0 : multiple_of_identity(found->second);
}

std::optional<int> LinearForm::atom() const {
  const auto is_nothing = [](double each) { return each == 0; };
  if (of.size() != 1 || !std::ranges::all_of(constant, is_nothing)) return std::nullopt;
  if (times(of.begin()->first) != 1.0) return std::nullopt;
  return of.begin()->first;
}

bool LinearForm::is_diagonal() const {
  return std::ranges::all_of(
      of, [](const auto& each) { return multiple_of_identity(each.second).has_value(); });
}

LinearForm atom_form(int atom, int64_t width) {
  Matrix identity{width, width, std::vector<double>(size_t(width * width), 0.0)};
  for (int64_t i = 0; i < width; ++i) identity.at[size_t(i * width + i)] = 1;
  return {width, {{atom, std::move(identity)}}, std::vector<double>(size_t(width), 0.0)};
}

LinearForm add(const LinearForm& a, const LinearForm& b, double sign) {
  LinearForm made = a;
  for (const auto& [atom, matrix] : b.of) {
    Matrix& to = made.of[atom];
    if (to.at.empty()) to = {matrix.rows, matrix.columns, std::vector<double>(matrix.at.size())};
    for (size_t i = 0; i < matrix.at.size(); ++i) to.at[i] += sign * matrix.at[i];
    if (is_zero(to)) made.of.erase(atom);
  }
  for (size_t i = 0; i < made.constant.size(); ++i) made.constant[i] += sign * b.constant[i];
  return made;
}

LinearForm scale_rows(const LinearForm& form, const std::vector<double>& by) {
  LinearForm made = form;
  for (auto& [atom, matrix] : made.of) {
    for (size_t i = 0; i < matrix.at.size(); ++i) matrix.at[i] *= by[i / size_t(matrix.columns)];
  }
  std::erase_if(made.of, [](const auto& each) { return is_zero(each.second); });
  for (size_t i = 0; i < by.size(); ++i) made.constant[i] *= by[i];
  return made;
}

LinearForm multiply(const LinearForm& form, const Constant& matrix, bool transposed) {
  const int64_t out = matrix.dims[transposed ? 0 : 1], in = form.width;
  const auto weight = [&](int64_t o, int64_t i) {
    return matrix.number(transposed ? o * in + i : i * out + o);
  };
  LinearForm made{out, {}, std::vector<double>(size_t(out), 0.0)};
  for (const auto& [atom, from] : form.of) {
    Matrix to{out, from.columns, std::vector<double>(size_t(out * from.columns), 0.0)};
    for (int64_t i = 0; i < in; ++i) {
      for (int64_t c = 0; c < from.columns; ++c) {
        const double value = from.at[size_t(i * from.columns + c)];
        if (value == 0) continue;
        for (int64_t o = 0; o < out; ++o)
          to.at[size_t(o * from.columns + c)] += weight(o, i) * value;
      }
    }
    if (!is_zero(to)) made.of[atom] = std::move(to);
  }
  for (int64_t o = 0; o < out; ++o) {
    for (int64_t i = 0; i < in; ++i) {
      made.constant[size_t(o)] += weight(o, i) * form.constant[size_t(i)];
    }
  }
  return made;
}

LinearForm rows(const LinearForm& form, int64_t begin, int64_t end) {
  LinearForm made{end - begin, {}, {form.constant.begin() + begin, form.constant.begin() + end}};
  for (const auto& [atom, from] : form.of) {
    Matrix to{end - begin,
              from.columns,
              {from.at.begin() + begin * from.columns, from.at.begin() + end * from.columns}};
    if (!is_zero(to)) made.of[atom] = std::move(to);
  }
  return made;
}

LinearForm stack(const std::vector<LinearForm>& forms) {
  LinearForm made;
  for (const LinearForm& form : forms) made.width += form.width;
  int64_t begin = 0;
  for (const LinearForm& form : forms) {
    made.constant.insert(made.constant.end(), form.constant.begin(), form.constant.end());
    for (const auto& [atom, from] : form.of) {
      Matrix& to = made.of[atom];
      if (to.at.empty()) {
        to = {made.width, from.columns, std::vector<double>(size_t(made.width * from.columns))};
      }
      std::ranges::copy(from.at, to.at.begin() + begin * from.columns);
    }
    begin += form.width;
  }
  return made;
}

}  // namespace ridgeline::onnx
