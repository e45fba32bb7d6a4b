#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "ridgeline/serve/infer_request.h"

namespace ridgeline::serve {

// Checks one number of a request against the declared type of its input and appends it. `place`
// counts the numbers before it, and `what` is the input's position in the request, both for
// messages.
class NumberSink {
 public:
  NumberSink(Datatype declared, std::vector<uint8_t>& to, const std::string& what)
      : declared_(declared), to_(to), what_(what) {}

  void add(int64_t value, int64_t place);
  void add(double value, int64_t place);
  // Reserves space for `count` numbers.
  void reserve(int64_t count);

 private:
  [[noreturn]] void refuse_number(const std::string& text, int64_t place) const;
  void put(uint8_t value) { to_.push_back(value); }
  template <typename T>
  void put_bytes(T value);

  Datatype declared_;
  std::vector<uint8_t>& to_;
  const std::string& what_;
};

// Appends the binary values of a tensor, little-endian numbers of the type `given` or texts
// preceded by their lengths, in the declared type. `count` is the number that the shape requires.
// Throws HttpError 400 if the bytes do not match exactly.
void read_binary(std::span<const uint8_t> bytes, Datatype given, Datatype declared, int64_t count,
                 const std::string& what, InputTensor& to);

}  // namespace ridgeline::serve
