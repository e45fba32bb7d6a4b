#pragma once

#include <cstdint>
#include <vector>

#include "ridgeline/core/buffer.h"
#include "ridgeline/plan/program.h"

namespace ridgeline::test {

// How a value that a span reads is filled. Integers without a constant are in [0, below).
struct Fill {
  enum class Kind { normal, uniform, constant, counting, relu, wide, sparse } kind = Kind::normal;
  double a = 1, b = 0;
};
inline Fill normal(double deviation) { return {Fill::Kind::normal, deviation, 0}; }
inline Fill uniform(double low, double high) { return {Fill::Kind::uniform, low, high}; }
inline Fill constant(double value) { return {Fill::Kind::constant, value, 0}; }
inline Fill counting() { return {Fill::Kind::counting, 0, 0}; }  // 0, 1, 2...
inline Fill relu_output() { return {Fill::Kind::relu, 1, 0}; }   // half of it exactly zero
// Exact zeros except for one in `one_in`: bounds stay finite through several layers of wide sums.
inline Fill sparse(double deviation, double one_in) {
  return {Fill::Kind::sparse, deviation, one_in};
}
// Normal deviates times ten to the power of [-6, 1.5], with exact zeros among them.
inline Fill wide() { return {Fill::Kind::wide, 0, 0}; }

// One host array for each value of a program, by id.
class Arrays {
 public:
  // Poisoned: floats are NaN, other bytes 0x7f.
  explicit Arrays(const Program& program);

  // Random numbers of the seed, rounded to each value's dtype.
  void fill(const Program& program, const Value& value, const Fill& fill, uint64_t seed);

  // Returns these numbers with every float value in fp64.
  Arrays widened() const;

  const Tensor& operator[](const Value& value) const { return at(value.id); }
  const Tensor& at(ValueId id) const { return arrays_[size_t(id)].view(); }

  std::vector<double> doubles(ValueId id) const;  // of any dtype

  Arrays(const Arrays& other);
  Arrays& operator=(const Arrays& other);
  Arrays(Arrays&&) = default;
  Arrays& operator=(Arrays&&) = default;

 private:
  Arrays() = default;
  std::vector<HostTensor> arrays_;
};

void set_element(const Tensor& tensor, int64_t i, double value);
double get_element(const Tensor& tensor, int64_t i);

}  // namespace ridgeline::test
