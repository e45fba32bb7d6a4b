#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ridgeline/onnx/constant.h"

namespace ridgeline::onnx {

struct Matrix {
  int64_t rows = 0, columns = 0;
  std::vector<double> at{};  // row by row

  bool operator==(const Matrix&) const = default;
};

// sum over atoms of matrix * atom, plus a constant. An atom is a vector that is an input, or a
// function of other forms that is not linear.
struct LinearForm {
  int64_t width = 0;
  std::map<int, Matrix> of{};
  std::vector<double> constant{};

  bool operator==(const LinearForm&) const = default;
  // Returns s if the form has the term s * atom, 0 if it has none, and nothing for a matrix that
  // is not a multiple of the identity.
  std::optional<double> times(int atom) const;
  // Returns the atom that this form is; none if it is anything else.
  std::optional<int> atom() const;
  // Whether all its matrices are multiples of the identity.
  bool is_diagonal() const;
};

LinearForm atom_form(int atom, int64_t width);
LinearForm add(const LinearForm& a, const LinearForm& b, double sign = 1);
LinearForm scale_rows(const LinearForm& form, const std::vector<double>& by);
// matrix^T * form: what MatMul(form, matrix) gives for a matrix [width, out].
LinearForm multiply(const LinearForm& form, const Constant& matrix, bool transposed);
LinearForm rows(const LinearForm& form, int64_t begin, int64_t end);
LinearForm stack(const std::vector<LinearForm>& forms);

}  // namespace ridgeline::onnx
